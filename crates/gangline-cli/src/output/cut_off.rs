//! Removes from reports the attempts that the library began but no job made, because the run ended.

use std::collections::BTreeMap;

use gangline::RunReport;
use gangline::report::{Incident, IncidentKind};

/// The jobs that waited for an attempt when the run ended, by number, with the number of their attempts.
pub(crate) type CutOff = BTreeMap<u64, u32>;

/// Removes the attempts that were cut off from a report. Each is the last of its job.
pub(crate) fn remove_cut_off(report: &mut RunReport, cut_off: &CutOff) {
    for failure in &mut report.failures {
        let Some(made) = failure.item.and_then(|job| cut_off.get(&job)) else { continue };
        failure.attempts = *made;
        let slot = failure.producer.and_then(|slot| report.producers.get_mut(slot));
        slot.into_iter().for_each(|slot| slot.failed = slot.failed.saturating_sub(1));
    }
    let is_made = |job: u64, attempt: u32| cut_off.get(&job).is_none_or(|made| attempt <= *made);
    report.slowest.retain(|slow| is_made(slow.item, slow.attempt));
    report.spans.retain(|span| is_made(span.item, span.attempt));
    for job in cut_off.keys() {
        let is_last = |incident: &Incident| {
            incident.kind == IncidentKind::Retried && incident.item == Some(*job)
        };
        let last = report.incidents.iter().rposition(is_last);
        last.into_iter().for_each(|last| _ = report.incidents.remove(last));
    }
    let retries = &mut report.retries;
    let retried = cut_off.values().filter(|made| **made > 0).count() as u64;
    retries.attempts = retries.attempts.saturating_sub(retried);
    let once = cut_off.values().filter(|made| **made == 1).count() as u64;
    retries.items = retries.items.saturating_sub(once);
    retries.failed = retries.failed.saturating_sub(once);
    retries.list.retain_mut(|retried| {
        let made = cut_off.get(&retried.item);
        made.into_iter().for_each(|made| retried.failed_attempts = *made);
        made.is_none_or(|made| *made > 1)
    });
}
