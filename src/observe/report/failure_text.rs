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

/// The causes of a failure, from the outermost. Its own text names the item and the place, which are said already. A text
/// that ends with its cause stands for both.
fn reason(failure: &Failure) -> String {
    let mut texts = failure.causes.iter().map(String::as_str).peekable();
    let mut reason = String::new();
    while let Some(text) = texts.next() {
        if texts.peek().is_some_and(|cause| text.ends_with(cause)) {
            continue;
        }
        let gap = if reason.is_empty() { "" } else { ": " };
        reason.push_str(&format!("{gap}{}", clipped(text, LONGEST)));
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
