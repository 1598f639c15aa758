//! The batches of a run that were split.

use serde::{Deserialize, Serialize};

use super::formats::{Count, LONGEST_TEXT, Many, bounded, clipped};
use super::vocabulary::Words;
use crate::failure::Failure;

/// Counts of the batches of which items came again in smaller batches, after
/// [`producer_work_batch`](https://docs.rs/gangline/latest/gangline/trait.Runner.html#method.producer_work_batch) had
/// failed for them or not tried them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SplitReport {
    /// How many batches of at least two items were given to a hook. Their parts do not count.
    pub batches: u64,
    /// How many of these batches were split.
    pub split: u64,
    /// How many calls of the hook the batches took, including those for their parts.
    pub calls: u64,
    /// How many further calls of the hook, in a run with batches, got a single item that was no part of a batch.
    #[serde(skip_serializing_if = "is_zero")]
    pub singles: u64,
    /// The error of the first batch that was split, in the order in which they failed; at most 8 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That error by its parts: its hook, items, place and causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Failure>,
}

/// What a call of the hook in a run with batches was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallInput {
    /// A batch of at least two items.
    Batch,
    /// A part of a batch that was split.
    Part,
    /// An item that was alone from the beginning, or is tried again.
    Single,
}

impl SplitReport {
    /// Records a call of the hook. `error` is the error of a batch that is split.
    #[doc(hidden)]
    pub fn note(&mut self, input: CallInput, error: Option<&Failure>) {
        if input == CallInput::Single {
            self.singles += 1;
            return;
        }
        let is_batch = input == CallInput::Batch;
        self.calls += 1;
        self.batches += u64::from(is_batch);
        self.split += u64::from(is_batch && error.is_some());
        if let (None, Some(error)) = (&self.error, error) {
            self.error = Some(bounded(error.with_causes()));
            self.first = Some(error.clone());
        }
    }

    /// Returns the counts of this and another run, or stage.
    pub(crate) fn and(mut self, other: &SplitReport) -> Self {
        self.batches = self.batches.saturating_add(other.batches);
        self.split = self.split.saturating_add(other.split);
        self.calls = self.calls.saturating_add(other.calls);
        self.singles = self.singles.saturating_add(other.singles);
        if self.error.is_none() {
            (self.error, self.first) = (other.error.clone(), other.first.clone());
        }
        self
    }

    /// Summarises the batches that were split.
    pub(super) fn summary(&self, words: &Words) -> Option<String> {
        let error = self.error.as_deref()?;
        let counts = counts(words, self.split, self.batches, self.calls);
        Some(format!("{counts}; the first error: {}", clipped(error, LONGEST_TEXT)))
    }
}

/// Says how many batches were split.
pub(super) fn counts(words: &Words, split: u64, batches: u64, calls: u64) -> String {
    format!(
        "{} of {} {} {} split after the {} had failed, which took {} instead of {}",
        Count(split),
        Count(batches),
        words.batches,
        if split == 1 { "was" } else { "were" },
        words.hook,
        Many(calls, words.batch_call),
        Count(batches),
    )
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_items_are_counted_apart() {
        let mut splits = SplitReport::default();
        splits.note(CallInput::Batch, Some(&Failure::default()));
        (0..2).for_each(|_| splits.note(CallInput::Part, None));
        (0..3).for_each(|_| splits.note(CallInput::Single, None));
        let SplitReport { batches, split, calls, singles, .. } = splits.clone().and(&splits);
        assert_eq!((batches, split, calls, singles), (2, 2, 6, 6));
    }
}
