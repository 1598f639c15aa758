//! A report of any bytes: for the fuzzer, and for tests that make bytes up.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::RunReport;
use super::samples::short_run;
use super::what_if::Settings;

/// Reads any bytes as a report, and as changes of one. Checks that what is read can be shown in each form.
///
/// # Panics
///
/// If it cannot.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    check(&String::from_utf8_lossy(bytes));
    let mut report = REPORT.clone();
    for change in bytes.chunks_exact(3) {
        let [at, more, value] = [change[0], change[1], change[2]].map(usize::from);
        change_leaf(&mut report, &mut (at << 8 | more), &VALUES[value % VALUES.len()]);
    }
    check(&report.to_string());
}

static REPORT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&short_run().to_json()).expect("a report is JSON"));

/// What a number, a text or a list may be instead.
static VALUES: LazyLock<[Value; 12]> = LazyLock::new(|| {
    [
        json!(0),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(u32::MAX),
        json!(1e308),
        json!(0.5),
        Value::Null,
        json!(true),
        json!("<\u{1b}>"),
        json!([]),
        json!({}),
    ]
});

/// Replaces the leaf of that number, or counts the leaves down. Returns whether it has replaced one.
fn change_leaf(value: &mut Value, number: &mut usize, instead: &Value) -> bool {
    match value {
        Value::Array(parts) if !parts.is_empty() => {
            parts.iter_mut().any(|part| change_leaf(part, number, instead))
        }
        Value::Object(parts) if !parts.is_empty() => {
            parts.values_mut().any(|part| change_leaf(part, number, instead))
        }
        leaf if *number == 0 => {
            *leaf = instead.clone();
            true
        }
        _ => {
            *number -= 1;
            false
        }
    }
}

fn check(text: &str) {
    let report = match RunReport::from_json(text) {
        Ok(report) => report,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "it says why");
            return;
        }
    };
    let again = RunReport::from_json(&report.to_json());
    assert_eq!(
        again.ok().as_ref(),
        Some(&report),
        "a report is the same once written and read again"
    );
    let texts = [
        report.to_string(),
        report.compare(&report).to_string(),
        report.what_if(&Settings::new().producers(2)).to_string(),
    ];
    for text in texts {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let pages = [report.to_html(), report.compare(&report).to_html()];
    assert!(pages.iter().all(|page| !page.contains("<\u{1b}>")), "texts are escaped");
    let trace = serde_json::from_str::<Value>(&report.to_trace());
    assert!(trace.is_ok(), "a trace is JSON");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_run_has_a_report() {
        check(&REPORT.to_string());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_report_or_none(bytes in vec(any::<u8>(), 0..12)) {
            read_any_bytes(&bytes);
        }
    }
}
