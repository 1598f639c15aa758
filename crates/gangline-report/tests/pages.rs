//! The page of a report in a browser, at the widths of phones, a tablet, a desk and a wide screen, and on paper.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use gangline_report::RunReport;

/// What a page is shown in, and its width in pixels. A4 paper has this one between its margins.
const FRAMES: [(&str, u32); 7] = [
    ("a small phone", 360),
    ("a phone", 390),
    ("a tablet", 768),
    ("a desk", 1440),
    ("a desk in the dark", 1440),
    ("a wide screen", 1920),
    ("paper", 717),
];

/// Says what `findings.js` finds in each frame, which of the needed elements are not there, and that it looked.
const LOOK: &str = r"
const found = [];
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument;
  const say = (what) => found.push(`${frame.dataset.what}: ${what}`);
  findings(frame.contentWindow, frame.dataset.what.startsWith('paper')).forEach(say);
  for (const needed of NEEDED) if (!page.querySelector(needed)) say(`has no ${needed}`);
  say(`looked at, ${page.querySelectorAll('*').length > 100}`);
}
document.body.innerHTML = '<pre id=found></pre>';
document.getElementById('found').textContent = found.join('\n') + '\nend of findings\n';
";

/// A page in a frame of a width.
struct Frame {
    what: String,
    width: u32,
    page: String,
}

#[test]
fn a_report_can_be_read_on_every_screen_and_on_paper() {
    let Some(browser) = browser() else { return skipped() };
    let drawn = [
        ".mark",
        ".again",
        ".straggler",
        ".curve",
        ".failure",
        ".retried",
        ".outline",
        ".bar span",
    ];
    let kinds =
        ["path.work", "path.loading", "path.held_back", "path.order", "path.journal", "path.dead"];
    let drawn = [&drawn[..], &kinds].concat();
    check(&browser, &crowded().to_html(), &drawn);
}

#[test]
fn a_comparison_can_be_read_on_every_screen_and_on_paper() {
    let Some(browser) = browser() else { return skipped() };
    let after = crowded();
    let mut before = after.clone();
    before.failures.truncate(3);
    before.lasted /= 2;
    before.provenance.command.push("--max-per-gpu".to_owned());
    check(&browser, &before.compare(&after).to_html(), &["table", ".bad", ".whole"]);
}

/// Changes of the style that hide something, each with what is to be found, on a phone or on paper.
const BREAKS: [(&str, &str, &str); 15] = [
    ("phone", ".text { white-space: nowrap; overflow: hidden }", "text cut off"),
    ("phone", ".text { white-space: nowrap; overflow: clip }", "text cut off"),
    ("phone", "dl div { height: 2rem; overflow: hidden }", "text cut off"),
    ("phone", "dd { width: 2rem; white-space: nowrap }", "text outside its box"),
    ("phone", ".conclusion { width: 60rem }", "outside the page"),
    ("phone", ".conclusion { overflow-wrap: normal }", "text outside its box"),
    ("phone", "li { overflow-wrap: normal }", "text outside its box"),
    ("phone", "table td::before { content: none }", "not there"),
    ("phone", ".whole { display: inline }", "broken at a hyphen"),
    ("phone", ".mark { opacity: 0.3 }", "does not stand out"),
    ("phone", ".work { fill: #cfe0fa }", "does not stand out"),
    ("phone", ".note { color: #a9b3be }", "hard to read"),
    ("paper", "section:nth-of-type(3) { display: none }", "not there"),
    ("paper", "details::details-content { content-visibility: hidden }", "not there"),
    ("paper", "details pre { max-height: 2rem; overflow: auto }", "cut off"),
];

#[test]
fn what_hides_a_part_of_a_page_is_found() {
    let Some(browser) = browser() else { return skipped() };
    let page = crowded().to_html();
    let frame = |(place, style, _): &(&str, &str, &str)| Frame {
        what: format!("{place} with {style}"),
        width: if *place == "paper" { 717 } else { 390 },
        page: if *place == "paper" { printed(&page) } else { page.clone() }
            .replace("</style>", &format!("{style}</style>")),
    };
    let found = look(&browser, &BREAKS.iter().map(frame).collect::<Vec<_>>(), &[]);
    for (place, style, expected) in BREAKS {
        let start = format!("{place} with {style}: {expected}");
        assert!(found.iter().any(|line| line.starts_with(&start)), "{start} not in {found:#?}");
    }
}

/// Checks that nothing is found in a page in any frame.
#[track_caller]
fn check(browser: &str, page: &str, needed: &[&str]) {
    let frame = |(what, width): (&str, u32)| {
        let page = match what {
            "paper" => printed(page),
            "a desk in the dark" => in_the_dark(page),
            _ => page.to_owned(),
        };
        Frame { what: what.to_owned(), width, page }
    };
    let found = look(browser, &FRAMES.map(frame), needed);
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns what is found in frames, each line behind the name of its frame.
#[track_caller]
fn look(browser: &str, frames: &[Frame], needed: &[&str]) -> Vec<String> {
    let mut text = "<!DOCTYPE html><meta charset=\"utf-8\"><body>\n".to_owned();
    for Frame { what, width, page } in frames {
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        let style = format!("width:{width}px;height:900px;border:0");
        writeln!(
            text,
            "<iframe data-what=\"{what}\" style=\"{style}\" srcdoc=\"{page}\"></iframe>"
        )
        .unwrap();
    }
    let findings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings.js");
    let findings = fs::read_to_string(findings).unwrap();
    write!(
        text,
        "<script>{findings}\nconst NEEDED = {needed:?};\nonload = () => {{ {LOOK} }}</script></body>"
    )
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("frames.html");
    fs::write(&file, text).unwrap();
    let output = Command::new("timeout")
        .args(["120", browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--hide-scrollbars", "--window-size=2000,1000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(&file)
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split("<pre id=\"found\">").nth(1).unwrap_or_else(|| panic!("{output:?}"));
    let found = found.lines().take_while(|line| *line != "end of findings").map(str::to_owned);
    let (looked, found): (Vec<_>, _) = found.partition(|line| line.ends_with(": looked at, true"));
    assert_eq!(looked.len(), frames.len(), "{found:#?}");
    found
}

/// The page as a printer has it.
fn printed(page: &str) -> String {
    assert!(page.contains("@media print"), "the page has a style for paper");
    page.replace("@media screen and", "@media speech and").replace("@media print", "@media all")
}

/// The page as a browser with a dark scheme has it.
fn in_the_dark(page: &str) -> String {
    let dark = "@media (prefers-color-scheme: dark)";
    assert!(page.contains(dark), "the page has a style for the dark");
    page.replace(dark, "@media all")
}

fn browser() -> Option<String> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(|name| {
        let is_there =
            Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success());
        is_there.then(|| name.to_owned())
    })
}

#[expect(clippy::print_stderr, reason = "a test that checked nothing has to say so")]
fn skipped() {
    eprintln!("skipped: there is no chromium to show the page");
}

/// A report with long texts, without spaces too, large numbers, failures of many causes and every section.
fn crowded() -> RunReport {
    // The last part has nowhere to break.
    let long = "/data/sessions/2026-11-24/a-directory-with-a-long-name/".repeat(2)
        + &"FoilHole_7412_Data_1233445_".repeat(6);
    let mut producers = Vec::new();
    let mut rows = Vec::new();
    for producer in 0..24 {
        producers.push(serde_json::json!({
            "stage": if producer < 12 { "decode" } else { &long },
            "place": format!("cuda:{producer}+cuda:{}", producer + 1), "items": 123_456_789,
            "failed": 12_345, "busy": 0.987, "working": 86_399.0, "waiting": 3_599.0, "init": 35.6,
            "states_lost": 3, "rebuilds": 3, "rebuilding": 106.8,
            "times": {"loading": 1_000.0, "held_back": 1_000.0, "order": 1_000.0, "journal": 1_000.0, "dead": 1_000.0},
            "latency": {"count": 1_000, "p50": if producer == 3 { 3.0 } else { 1.0 }, "p90": 119.0,
                "p99": 3_599.0, "max": 7_199.0},
            "quarantined": (producer == 5).then_some(&long), "abandoned": producer == 6,
        }));
        rows.push(vec![900_000_000_000_u64; 64]);
    }
    let failures: Vec<_> = (0..30)
        .map(|item| {
            serde_json::json!({
                "item": item, "key": format!("{long}{item}"), "producer": 1, "device": "cuda:1",
                "hook": "producer_work", "attempts": 3, "is_panic": false,
                "error": format!("producer_work failed for item {item} on cuda:1"),
                "causes": [format!("{} {long}", "no such file: ".repeat(item as usize + 1))],
            })
        })
        .collect();
    let slowest: Vec<_> = (0..20)
        .map(|item| {
            let took = if item == 0 { 7_199.0 } else { 9.0 };
            serde_json::json!({"item": item, "key": long, "producer": 1, "attempt": 1, "together": 64, "took": took})
        })
        .collect();
    // Times of seven powers of ten, with one peak.
    let spans: Vec<_> = (0..2_000)
        .map(|item| {
            let took = if item == 0 { 7_199.0 } else { 10_f64.powi(item % 7 - 3) };
            serde_json::json!({"item": item, "producer": 1, "attempt": 1, "start": 100.0, "took": took})
        })
        .collect();
    let stage = |name: &str| {
        serde_json::json!({"name": name, "report": {
            "account": {"ok": 987_654_321, "failed": 9, "already_done": 0, "cancelled": 0, "unread": 0}, "conclusion": format!("See {long}."), "producers": &producers[..12],
            "spans": &spans, "window": 64,
        }})
    };
    let stages = [stage("decode"), stage(&long)];
    // Of these lengths, some option has to go to the next line, whatever the font.
    let options = (1..40).map(|n| format!("--option-{}", "x".repeat(n % 13 + 1)));
    let name = "denoise".to_owned();
    let retry: Vec<_> = [name].into_iter().chain(options).chain([long.replace('/', "-")]).collect();
    let kinds = ["loading", "held_back", "order", "journal", "dead"];
    let others = kinds.map(
        |kind| serde_json::json!({ "kind": kind, "ns": vec![vec![450_000_000_000_u64; 64]; 24] }),
    );
    let report = serde_json::json!({
        "description": format!("Denoising {long}"), "ending": "failed", "error": long, "window": 64,
        "conclusion": format!("The producers limited the run: see {long}."),
        "lasted": 86_400.0, "producers": producers, "failures": failures, "slowest": slowest,
        "account": {"ok": 987_654_321, "failed": 12_345, "already_done": 7, "cancelled": 8, "unread": 9},
        "latency": {"count": 1_000, "p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 7_199.0},
        "stalls": [{"item": 7, "key": long, "lasted": 5.0}], "head_stalled": 7.0,
        "throughput": {"bin": 1_350.0, "items": vec![123_456_789; 64]},
        "timeline": {"bin": 1_350.0, "busy_ns": rows, "others": others}, "stages": stages, "bottleneck_stage": 1,
        "spans": spans, "spans_left_out": 123_456_789,
        "incidents": [{"at": 86_400.0, "kind": "failed", "producer": 2, "item": 7, "text": "x"},
            {"at": 43_200.0, "kind": "retried", "producer": 2, "item": 7, "text": "x"}],
        "retries": {"attempts": 3, "items": 1, "failed": 1,
            "list": [{"item": 7, "key": long, "failed_attempts": 3, "outcome": "failed", "error": long}]},
        "fallbacks": [format!("\"cuda:7|cpu\" came to cpu, since {long}")],
        "provenance": {"started": "2026-11-24T07:16:58Z", "host": "a-host-with-a-long-name.example.org",
            "system": "linux x86_64", "cores": 128, "gangline": "0.1.0", "command": ["denoise", long],
            "retry": retry,
            "devices": {"cuda:0+cuda:1": "NVIDIA H100 80GB HBM3"}, "settings": {"max_padded_size": "1048576"}},
    });
    RunReport::from_json(&report.to_string()).unwrap()
}
