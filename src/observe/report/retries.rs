//! What was tried again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::text::clipped;
use crate::observe::failure::Failure;

/// What was tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RetryReport {
    /// How many attempts failed that were to be followed by another.
    pub attempts: u64,
    /// How many items had such attempts.
    pub items: u64,
    /// How many of these items are known to have succeeded after all.
    pub succeeded: u64,
    /// How many of these items failed in the end.
    pub failed: u64,
    /// The items, in the order of the input: the first 1,000 that were told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<Retried>,
    /// How many items are not in `list`.
    pub left_out: u64,
}

/// An item that was tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Retried {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if [keys](crate::Builder::key) were asked for; the first 200 characters of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many attempts at it failed.
    pub failed_attempts: u32,
    /// What became of it.
    pub outcome: RetryOutcome,
    /// What the last attempt that failed did so with; the first 200 characters of it.
    pub error: String,
}

/// What became of an item that was tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryOutcome {
    /// The run is in progress, or ended before it was known.
    #[default]
    Unknown,
    /// It succeeded after all.
    Succeeded,
    /// It failed in the end.
    Failed,
}

impl RetryOutcome {
    pub(super) fn text(self) -> &'static str {
        match self {
            RetryOutcome::Unknown => "not known",
            RetryOutcome::Succeeded => "succeeded",
            RetryOutcome::Failed => "failed",
        }
    }
}

/// Which items have been consumed, of those that did not fail.
#[derive(Debug, Clone, Copy)]
pub(super) enum Consumed {
    All,
    /// Those with a lower index.
    Before(u64),
}

const MOST: usize = 1_000;
const LONGEST: usize = 200;

/// What has been tried again so far.
#[derive(Debug, Default)]
pub(super) struct Retries {
    kept: BTreeMap<u64, Retried>,
    attempts: u64,
    items: u64,
    failed: u64,
}

impl Retries {
    /// An attempt failed, and there will be another.
    pub(super) fn retried(&mut self, failure: &Failure) {
        self.attempts += 1;
        // Each item has one first attempt: they are counted without being remembered.
        self.items += u64::from(failure.attempts <= 1);
        let Some(item) = failure.item else { return };
        if self.kept.len() < MOST || self.kept.contains_key(&item) {
            self.kept.insert(item, retried(item, failure));
        }
    }

    /// An item failed, and its error stands.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let kept = failure.item.and_then(|item| self.kept.get_mut(&item));
        self.failed += u64::from(failure.attempts > 1 || kept.is_some());
        if let Some(kept) = kept {
            *kept = Retried { outcome: RetryOutcome::Failed, ..retried(kept.item, failure) };
        }
    }

    pub(super) fn report(&self, consumed: Consumed) -> RetryReport {
        let list: Vec<_> = self.kept.values().map(|kept| judged(kept, consumed)).collect();
        let known =
            list.iter().filter(|kept| kept.outcome == RetryOutcome::Succeeded).count() as u64;
        let (items, failed) = (self.items, self.failed);
        let succeeded = match consumed {
            Consumed::All => items.saturating_sub(failed),
            Consumed::Before(_) => known,
        };
        let left_out = items.saturating_sub(list.len() as u64);
        RetryReport { attempts: self.attempts, items, succeeded, failed, list, left_out }
    }
}

fn retried(item: u64, failure: &Failure) -> Retried {
    let said = failure.causes.last().unwrap_or(&failure.error);
    Retried {
        item,
        key: failure.key.as_ref().map(|key| clipped(key, LONGEST)),
        failed_attempts: failure.attempts,
        outcome: RetryOutcome::Unknown,
        error: clipped(said, LONGEST),
    }
}

fn judged(kept: &Retried, consumed: Consumed) -> Retried {
    let is_consumed = match consumed {
        Consumed::All => true,
        Consumed::Before(item) => kept.item < item,
    };
    let outcome = match kept.outcome {
        RetryOutcome::Unknown if is_consumed => RetryOutcome::Succeeded,
        outcome => outcome,
    };
    Retried { outcome, ..kept.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(item: u64, attempts: u32) -> Failure {
        Failure { item: Some(item), attempts, error: format!("{attempts}"), ..Failure::default() }
    }

    fn outcomes(report: &RetryReport) -> Vec<(u64, u32, RetryOutcome)> {
        report.list.iter().map(|item| (item.item, item.failed_attempts, item.outcome)).collect()
    }

    #[test]
    fn what_did_not_fail_in_a_whole_run_has_succeeded() {
        let mut retries = Retries::default();
        [(7, 1), (3, 1), (3, 2)]
            .into_iter()
            .for_each(|(item, attempt)| retries.retried(&failure(item, attempt)));
        retries.failed(&failure(3, 3));
        let report = retries.report(Consumed::All);
        assert_eq!((report.attempts, report.items), (3, 2));
        assert_eq!((report.succeeded, report.failed), (1, 1));
        let expected = [(3, 3, RetryOutcome::Failed), (7, 1, RetryOutcome::Succeeded)];
        assert_eq!(outcomes(&report), expected);
        assert_eq!(report.list[0].error, "3", "what the last attempt failed with");
    }

    #[test]
    fn of_a_run_that_ended_early_only_what_was_consumed_is_known() {
        let mut retries = Retries::default();
        [3, 7].into_iter().for_each(|item| retries.retried(&failure(item, 1)));
        let report = retries.report(Consumed::Before(5));
        assert_eq!((report.succeeded, report.failed), (1, 0));
        let expected = [(3, 1, RetryOutcome::Succeeded), (7, 1, RetryOutcome::Unknown)];
        assert_eq!(outcomes(&report), expected);
    }

    #[test]
    fn items_that_are_not_remembered_are_counted() {
        let mut retries = Retries::default();
        let items = MOST as u64 + 5;
        (0..items).for_each(|item| retries.retried(&failure(item, 1)));
        retries.failed(&failure(items - 1, 2));
        let report = retries.report(Consumed::All);
        assert_eq!((report.list.len(), report.left_out), (MOST, 5));
        assert_eq!((report.items, report.succeeded, report.failed), (items, items - 1, 1));
    }
}
