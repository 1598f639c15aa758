//! The words of failures: what failed, for which item, and where.

use std::collections::HashMap;
use std::fmt::Write;

use crate::conclusion::Limit;
use crate::failure::Failure;
use crate::formats::{Many, bounded};
use crate::run_report::RunReport;
use crate::vocabulary::Vocabulary;

/// Gives the texts of failures in a report the words of a vocabulary.
pub(crate) fn name_failures(report: &mut RunReport, vocabulary: Vocabulary) {
    // The same text may say why the run ended, or a producer.
    let mut texts = HashMap::new();
    let failures = report.failures.iter_mut().chain(&mut report.failures_undelivered);
    for failure in failures.chain(&mut report.ended_by).chain(&mut report.splits.first) {
        let Some(error) = said(failure, vocabulary) else { continue };
        let before = failure.with_causes();
        failure.error = error;
        texts.insert(before, failure.with_causes());
    }
    if let Some(first) = &report.splits.first {
        report.splits.error = Some(bounded(first.with_causes()));
    }
    if let (Some(Limit::Splits { error, .. }), Some(said)) =
        (&mut report.findings.limit, &report.splits.error)
    {
        error.clone_from(said);
    }
    let ended = report.producers.iter_mut().map(|producer| &mut producer.quarantined);
    for text in ended.chain([&mut report.error]).flatten() {
        if let Some(said) = texts.get(text) {
            text.clone_from(said);
        }
    }
}

/// The text of a failure of a hook: `the command failed for job 7 ("a.mrc") on cuda:0 (slot 1, attempt 2)`.
fn said(failure: &Failure, vocabulary: Vocabulary) -> Option<String> {
    let words = vocabulary.words();
    let hook = vocabulary.part(failure.hook.as_deref()?);
    let mut text = format!("{hook} {}", failure.happened.as_ref()?);
    let mut add = |more: String| text.push_str(&more);
    match (&failure.batch, failure.item) {
        (Some(batch), _) => {
            let items = Many(batch.items, words.item);
            add(format!(" for {items} from {} to {}", batch.first, batch.last));
        }
        (None, Some(item)) => {
            add(format!(" for {} {item}", words.item));
            // Quoted as Rust does: a key may have line breaks and control characters in it.
            failure.key.iter().for_each(|key| add(format!(" ({key:?})")));
            failure.parts.iter().for_each(|part| add(format!(", part {part}")));
        }
        (None, None) => {}
    }
    failure.device.iter().for_each(|device| add(format!(" on {device}")));
    failure.host.iter().for_each(|host| add(format!(" of {host}")));
    let attempt = match failure.item.is_some() || failure.batch.is_some() {
        true => format!(", attempt {}", failure.attempts),
        false => String::new(),
    };
    if let Some(producer) = failure.producer {
        let _ = write!(text, " ({} {producer}{attempt})", words.producer);
    }
    Some(text)
}
