//! The page of a report in a browser, at the widths of a phone, a tablet, a desk and a wide screen, and on
//! paper.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use gangline::RunReport;

/// The widths of the frames in pixels; the last is that of A4 paper with its margins.
const WIDTHS: [u32; 5] = [360, 768, 1280, 1920, 717];

/// Reports elements that cut off what they contain, or are outside the page or their chart.
const MEASURE: &str = r"
const found = [];
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument;
  for (const details of page.querySelectorAll('details')) details.open = true;
  const say = (what, element) =>
    found.push(`${frame.dataset.what}: ${what}: ${element.outerHTML.slice(0, 120)}`);
  for (const element of page.querySelectorAll('*')) {
    const style = frame.contentWindow.getComputedStyle(element);
    const hides = style.overflowX !== 'visible' || element === page.documentElement;
    if (hides && !element.closest('svg') && style.clipPath === 'none' && element.clientWidth > 0
        && element.scrollWidth > element.clientWidth + 1) say('cut off', element);
    const box = element.getBoundingClientRect();
    if (box.right > page.documentElement.clientWidth + 1) say('outside the page', element);
    const chart = element.closest('svg');
    if (chart && element.tagName === 'text' && box.width > 0) {
      const area = chart.getBoundingClientRect();
      if (box.left < area.left - 1 || box.right > area.right + 1 || box.bottom > area.bottom + 1)
        say('outside its chart', element);
    }
  }
  found.push(`${frame.dataset.what}: measured ${page.querySelectorAll('*').length > 100}`);
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
    for (index, width) in WIDTHS.into_iter().enumerate() {
        let is_paper = index == WIDTHS.len() - 1;
        let what = if is_paper { "paper".to_owned() } else { format!("{width} pixels") };
        let page = if is_paper { printed(&page) } else { page.clone() };
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
    assert_eq!(measured, WIDTHS.len(), "{found:#?}");
    assert_eq!(found.len(), WIDTHS.len(), "{found:#?}");
}

/// The page as a printer has it.
fn printed(page: &str) -> String {
    assert!(page.contains("@media print"), "the page has a style for paper");
    page.replace("@media screen and", "@media speech and").replace("@media print", "@media all")
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

/// A report with long texts, without spaces too, large numbers and every section.
fn crowded() -> RunReport {
    let long = "/data/sessions/2026-11-24/a-directory-with-a-long-name/".repeat(3);
    let mut producers = Vec::new();
    let mut rows = Vec::new();
    for producer in 0..24 {
        producers.push(serde_json::json!({
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
            serde_json::json!({"item": item, "key": long, "producer": 1, "attempt": 1, "together": 64, "took": 9.0})
        })
        .collect();
    let report = serde_json::json!({
        "description": format!("Denoising {long}"), "ending": "failed", "error": long,
        "conclusion": format!("The producers limited the run: see {long}."),
        "lasted": 86_400.0, "producers": producers, "failures": failures, "slowest": slowest,
        "account": {"ok": 987_654_321, "failed": 12_345, "already_done": 7, "cancelled": 8, "unread": 9},
        "latency": {"count": 1_000, "p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 7_199.0},
        "stalls": [{"item": 7, "key": long, "lasted": 5.0}], "head_stalled": 7.0,
        "throughput": {"bin": 1_350.0, "items": vec![123_456_789; 64]},
        "timeline": {"bin": 1_350.0, "busy_ns": rows},
        "incidents": [{"at": 86_400.0, "kind": "failed", "producer": 2, "item": 7, "text": "x"}],
        "retries": {"attempts": 3, "items": 1, "failed": 1,
            "list": [{"item": 7, "key": long, "failed_attempts": 3, "outcome": "failed", "error": long}]},
        "fallbacks": [format!("\"cuda:7|cpu\" came to cpu, since {long}")],
        "provenance": {"started": "2026-11-24T07:16:58Z", "host": "a-host-with-a-long-name.example.org",
            "system": "linux x86_64", "cores": 128, "gangline": "0.1.0", "command": ["denoise", long],
            "devices": {"cuda:0+cuda:1": "NVIDIA H100 80GB HBM3"}, "settings": {"max_padded_size": "1048576"}},
    });
    RunReport::from_json(&report.to_string()).unwrap()
}
