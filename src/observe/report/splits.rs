//! Sentences of a report about batches that were split.

use super::text::{Count, Many, clipped};
use crate::observe::split_report::SplitReport;

/// The error is clipped to this many characters.
const LONGEST: usize = 160;

/// Summarises the batches that were split.
pub(super) fn splits(splits: &SplitReport) -> Option<String> {
    let error = splits.error.as_deref()?;
    Some(format!("{}; the first error: {}", counts(splits), clipped(error, LONGEST)))
}

/// The verdict on a run that split most of its batches.
pub(super) fn clause(splits: &SplitReport) -> Option<String> {
    splits.is_usual().then(|| {
        format!(
            "split batches limited the run: {}, with the error {:?}; have `producer_work_batch` work on several \
             items, or return an `Err` for the bad ones alone, since larger batches would only be split more often",
            counts(splits),
            clipped(splits.error.as_deref().unwrap_or_default(), LONGEST),
        )
    })
}

fn counts(splits: &SplitReport) -> String {
    format!(
        "{} of {} batches {} split after the hook had failed, which took {} instead of {}",
        Count(splits.split),
        Count(splits.batches),
        if splits.split == 1 { "was" } else { "were" },
        Many(splits.calls, "call"),
        Count(splits.batches),
    )
}
