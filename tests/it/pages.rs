//! The page of a report in a browser, at the widths of phones, a tablet, a desk and a wide screen, and on paper.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use gangline::RunReport;

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

/// Reports elements that cut off what they contain or are outside the page, texts that overlap, what paper hides, and
/// marks of a chart that do not stand out.
const MEASURE: &str = r"
const found = [];
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument;
  const isPaper = frame.dataset.what === 'paper';
  if (!isPaper) for (const details of page.querySelectorAll('details')) details.open = true;
  const say = (what, element) =>
    found.push(`${frame.dataset.what}: ${what}: ${element.outerHTML.slice(0, 120)}`);
  for (const element of page.querySelectorAll('*')) {
    const style = frame.contentWindow.getComputedStyle(element);
    const hides = style.overflowX !== 'visible' || element === page.documentElement;
    if (hides && !element.closest('svg') && style.clipPath === 'none' && element.clientWidth > 0
        && element.scrollWidth > element.clientWidth + 1) say('cut off', element);
    const box = element.getBoundingClientRect();
    if (box.right > page.documentElement.clientWidth + 1) say('outside the page', element);
    if (box.width > 0 && box.left < -1) say('left of the page', element);
    if (isPaper && element.matches('details > :not(summary)') && !element.checkVisibility({contentVisibilityAuto: true}))
      say('hidden on paper', element);
  }
  // Lines of text, of which none lies over another.
  const lines = [];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (element.closest('svg, thead') || !element.checkVisibility({visibilityProperty: true})) continue;
    const range = page.createRange();
    range.selectNodeContents(walker.currentNode);
    for (const box of range.getClientRects())
      if (box.width > 1) lines.push({box, element});
  }
  lines.sort((a, b) => a.box.top - b.box.top);
  lines.forEach((one, at) => {
    for (const other of lines.slice(at + 1)) {
      const [a, b] = [one.box, other.box];
      if (b.top > a.bottom) break;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 0.35 * Math.min(a.height, b.height)) say(`over ${other.element.outerHTML.slice(0, 80)}`, one.element);
    }
  });
  // A bar may have any shade, so a mark stands out from what is drawn below it.
  const light = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const mark of page.querySelectorAll('.mark, .straggler')) {
    const halo = mark.previousElementSibling;
    const [ink, ground] = [mark, halo].map((it) => frame.contentWindow.getComputedStyle(it));
    const pair = [ink.stroke, ground.stroke].map(light).sort((a, b) => a - b);
    const isSeen = (pair[1] + 0.05) / (pair[0] + 0.05) >= 3;
    const isAround = mark.getAttribute('d') === halo.getAttribute('d')
      && parseFloat(ground.strokeWidth) >= parseFloat(ink.strokeWidth) + 2;
    if (!isSeen || !isAround) say('does not stand out', mark);
  }
  if (!page.querySelector('.mark') || !page.querySelector('.straggler')) say('has no marks', page.body);
  found.push(`${frame.dataset.what}: measured ${page.querySelectorAll('*').length > 100 && lines.length > 100}`);
}
document.body.innerHTML = '<pre id=found></pre>';
document.getElementById('found').textContent = found.join('\n') + '\nend of findings\n';
";

#[test]
fn nothing_is_cut_off_in_a_browser() {
    let Some(browser) = browser() else {
        skipped();
        return;
    };
    let page = crowded().to_html();
    let mut frames = String::new();
    for (what, width) in FRAMES {
        let page = match what {
            "paper" => printed(&page),
            "a desk in the dark" => in_the_dark(&page),
            _ => page.clone(),
        };
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<iframe data-what=\"{what}\" style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{page}\"></iframe>\n"
        );
        frames.write_str(&frame).unwrap();
    }
    let text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body>\n{frames}<script>onload = () => {{ {MEASURE} }}</script></body>"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("frames.html");
    fs::write(&file, text).unwrap();
    let output = Command::new("timeout")
        .args(["60", &browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--hide-scrollbars", "--window-size=2000,1000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(&file)
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split("<pre id=\"found\">").nth(1).unwrap_or_else(|| panic!("{output:?}"));
    let found: Vec<&str> = found.lines().take_while(|line| *line != "end of findings").collect();
    let measured = found.iter().filter(|line| line.ends_with("measured true")).count();
    assert_eq!(measured, FRAMES.len(), "{found:#?}");
    assert_eq!(found.len(), FRAMES.len(), "{found:#?}");
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
    let long = "/data/sessions/2026-11-24/a-directory-with-a-long-name/".repeat(3);
    let mut producers = Vec::new();
    let mut rows = Vec::new();
    for producer in 0..24 {
        producers.push(serde_json::json!({
            "stage": if producer < 12 { "decode" } else { &long },
            "place": format!("cuda:{producer}+cuda:{}", producer + 1), "items": 123_456_789,
            "failed": 12_345, "busy": 0.987, "working": 86_399.0, "waiting": 3_599.0, "init": 35.6,
            "states_lost": 3, "rebuilds": 3, "rebuilding": 106.8,
            "latency": {"count": 1_000, "p50": if producer == 3 { 3.0 } else { 1.0 }, "p90": 119.0,
                "p99": 3_599.0, "max": 7_199.0},
            "quarantined": (producer == 5).then_some(&long), "abandoned": producer == 6,
        }));
        rows.push(vec![900_000_000_u64; 64]);
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
            "spans": &spans,
        }})
    };
    let stages = [stage("decode"), stage(&long)];
    let report = serde_json::json!({
        "description": format!("Denoising {long}"), "ending": "failed", "error": long,
        "conclusion": format!("The producers limited the run: see {long}."),
        "lasted": 86_400.0, "producers": producers, "failures": failures, "slowest": slowest,
        "account": {"ok": 987_654_321, "failed": 12_345, "already_done": 7, "cancelled": 8, "unread": 9},
        "latency": {"count": 1_000, "p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 7_199.0},
        "stalls": [{"item": 7, "key": long, "lasted": 5.0}], "head_stalled": 7.0,
        "throughput": {"bin": 1_350.0, "items": vec![123_456_789; 64]},
        "timeline": {"bin": 1_350.0, "busy_ns": rows}, "stages": stages, "bottleneck_stage": 1,
        "spans": spans, "spans_left_out": 123_456_789,
        "incidents": [{"at": 86_400.0, "kind": "failed", "producer": 2, "item": 7, "text": "x"}],
        "retries": {"attempts": 3, "items": 1, "failed": 1,
            "list": [{"item": 7, "key": long, "failed_attempts": 3, "outcome": "failed", "error": long}]},
        "fallbacks": [format!("\"cuda:7|cpu\" came to cpu, since {long}")],
        "provenance": {"started": "2026-11-24T07:16:58Z", "host": "a-host-with-a-long-name.example.org",
            "system": "linux x86_64", "cores": 128, "gangline": "0.1.0", "command": ["denoise", long],
            "retry": ["denoise", "--resume-failed", long.replace('/', "-")],
            "devices": {"cuda:0+cuda:1": "NVIDIA H100 80GB HBM3"}, "settings": {"max_padded_size": "1048576"}},
    });
    RunReport::from_json(&report.to_string()).unwrap()
}
