use super::*;
use crate::samples::{HOSTILE, PlayedRun, eventful, failure};
use crate::text_style::{Colors, TextStyle};

/// A run of this many milliseconds, in which this item fails.
fn run(lasted: u64, fails: u64) -> RunReport {
    let mut run = PlayedRun::on(vec!["cpu".to_owned()], Some("Denoising"));
    for item in 0..10 {
        run.start(item * 1_000, 0, item, 1);
        run.finish(item * 1_000 + lasted, 0, item);
    }
    run.fail(10_000, failure(fails, 0, 1, "no such file"));
    run.consume(10_000, 9);
    run.end(lasted * 1_000)
}

#[test]
fn a_faster_run_is_faster() {
    let (mut before, mut after) = (run(200, 3), run(100, 4));
    before.provenance.settings.insert("window".to_owned(), "8".to_owned());
    after.provenance.settings.insert("window".to_owned(), "64".to_owned());
    let text = before.compare(&after).to_string();
    for says in [
        "Denoising, before and after\n",
        "The run took 100 ms instead of 200 ms: it is 2.00 times as fast.\n",
        "  lasted           200 ms  100 ms   -50 %\n",
        "  ok per second      45.0    90.0  +100 %\n",
        "  ok                    9       9    same\n",
        "  window  8       64\n",
        "failed only after: 1\n  key 4: no such file\n",
        "failed only before: 1\n  key 3: no such file\n",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let text = after.compare(&before).to_string();
    assert!(text.contains("it is 2.00 times as slow"), "{text}");
}

#[test]
fn better_is_green_and_worse_is_red() {
    let (before, after) = (run(200, 3), run(100, 3));
    let style = TextStyle::plain().colors(Colors::On);
    let faster = before.compare(&after).styled(style).to_string();
    let lasted = |text: &str| text.lines().find(|line| line.contains("lasted")).unwrap().to_owned();
    assert!(lasted(&faster).starts_with("\u{1b}[32m"), "{faster}");
    let slower = after.compare(&before).styled(style).to_string();
    assert!(lasted(&slower).starts_with("\u{1b}[31m"), "{slower}");
}

#[test]
fn equal_reports_differ_in_nothing() {
    let report = run(100, 3);
    let text = report.compare(&report).to_string();
    assert!(text.contains("about the same time"), "{text}");
    assert!(!text.contains("failed only") && !text.contains("differ"), "{text}");
}

#[test]
fn any_two_reports_can_be_compared() {
    let reports = [RunReport::default(), eventful(2), run(1, 0)];
    for before in &reports {
        for after in &reports {
            let comparison = before.compare(after);
            let page = comparison.to_html();
            assert!(!page.contains("NaN") && !page.contains(">inf"), "{page}");
            assert!(!page.contains(HOSTILE) && page.contains("</html>"));
            let text = comparison.to_string();
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
