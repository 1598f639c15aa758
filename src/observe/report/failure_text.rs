//! What reports say of a failure.

use super::run_report::RunReport;
use super::text::{clipped, part};
use crate::observe::failure::Failure;

/// Texts are clipped to this many characters: about two lines.
pub(super) const LONGEST: usize = 160;

/// The failure, and its causes unless an earlier text contains them.
pub(super) fn line(report: &RunReport, failure: &Failure) -> String {
    let mut line = match failure.item {
        Some(index) => part(report.words(), index, failure.key.as_deref(), &failure.parts),
        None => "the run".to_owned(),
    };
    line.push_str(&format!(" in {}: {}", site(report, failure), reason(failure)));
    line
}

/// Returns the causes of a failure, from the outermost. The text of the failure itself is left out, since the line has
/// the item and the place. A cause that the text before ends with is left out too.
fn reason(failure: &Failure) -> String {
    let (mut reason, mut last) = (String::new(), "");
    for text in &failure.causes {
        if last.ends_with(text.as_str()) {
            continue;
        }
        let gap = if reason.is_empty() { "" } else { ": " };
        reason.push_str(&format!("{gap}{}", clipped(text, LONGEST)));
        last = text;
    }
    if reason.is_empty() { clipped(&failure.error, LONGEST) } else { reason }
}

/// Names the hook, stage, device and attempts of a failure.
pub(super) fn site(report: &RunReport, failure: &Failure) -> String {
    let hook = failure.hook.as_deref().unwrap_or("input");
    let mut site = report.vocabulary.part(hook).to_owned();
    if let Some(stage) = &failure.stage {
        site.push_str(&format!(" of {stage}"));
    }
    if let Some(device) = &failure.device {
        site.push_str(&format!(" on {device}"));
    }
    if failure.attempts > 1 {
        site.push_str(&format!(", {} attempts", failure.attempts));
    }
    site
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_given_once() {
        let reason = |causes: &[&str]| {
            let causes = causes.iter().map(|&text| text.to_owned()).collect();
            reason(&Failure { causes, error: "it failed".to_owned(), ..Failure::default() })
        };
        assert_eq!(reason(&[]), "it failed");
        assert_eq!(reason(&["bad"]), "bad");
        assert_eq!(reason(&["reading x", "no such file"]), "reading x: no such file");
        assert_eq!(reason(&["open x: no such file", "no such file"]), "open x: no such file");
        let nested = ["a: b: c", "b: c", "c", "d"];
        assert_eq!(reason(&nested), "a: b: c: d");
    }
}
