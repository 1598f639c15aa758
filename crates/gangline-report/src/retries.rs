//! The retried items of a run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::formats::{LONGEST_KEPT, clipped, shortened};
use crate::failure::Failure;

/// Counts of retries, and the items that were retried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RetryReport {
    /// How many failed attempts were followed by another.
    pub attempts: u64,
    /// How many items were retried.
    pub items: u64,
    /// How many of these items are known to have succeeded.
    pub succeeded: u64,
    /// How many of these items failed.
    pub failed: u64,
    /// The items, in input order: the first 1,000 reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<Retried>,
    /// How many items are not in `list`.
    pub left_out: u64,
}

/// An item that was retried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Retried {
    /// The item's index in the input. Of a part, the index of its parent.
    pub item: u64,
    /// The index of a [part](https://docs.rs/gangline/latest/gangline/struct.Pool.html#method.expand) in its item; then
    /// that of its own part, and so on. Empty if the item is no part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
    /// Its key, if the builder has a [key](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.key); at
    /// most 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many attempts failed.
    pub failed_attempts: u32,
    /// How the item ended.
    pub outcome: RetryOutcome,
    /// The error of the last failed attempt; at most 200 characters.
    pub error: String,
}

/// How a retried item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryOutcome {
    /// The run is in progress, or ended before the item did.
    #[default]
    Unknown,
    /// The item succeeded.
    Succeeded,
    /// The item failed.
    Failed,
}

impl RetryReport {
    /// Notes of a run without cancelled items that the parts of items that did not fail succeeded. Where parts are
    /// withdrawn, the account of their own stage does not tell.
    pub(super) fn settle_parts(&mut self, failures: &[Failure]) {
        let parts = failures.iter().filter(|failure| !failure.parts.is_empty());
        let failed: BTreeSet<u64> = parts.filter_map(|failure| failure.item).collect();
        let is_open = |part: &&mut Retried| {
            part.outcome == RetryOutcome::Unknown
                && !part.parts.is_empty()
                && !failed.contains(&part.item)
        };
        for part in self.list.iter_mut().filter(is_open) {
            part.outcome = RetryOutcome::Succeeded;
            self.succeeded += 1;
        }
    }
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

/// The items that have been consumed, apart from failed ones.
#[derive(Debug, Clone, Copy)]
pub(super) enum ConsumedItems {
    All,
    /// All items with a lower index. Of parts it is not known.
    Before(u64),
}

pub(super) const MOST: usize = 1_000;

/// An item's index and, of a part, its own.
type ItemName = (u64, Vec<u64>);

/// The retries seen so far.
#[derive(Debug, Default)]
pub(super) struct Retries {
    kept: BTreeMap<ItemName, Retried>,
    attempts: u64,
    items: u64,
    failed: u64,
}

impl Retries {
    /// Records a failed attempt that another one follows.
    pub(super) fn retried(&mut self, failure: &Failure) {
        self.attempts += 1;
        // Each item has exactly one first attempt, so they are counted without a set of items.
        self.items += u64::from(failure.attempts <= 1);
        let Some(name) = name(failure) else { return };
        // Two producers may report attempts at one item in the wrong order.
        let is_late = |kept: &Retried| kept.failed_attempts > failure.attempts;
        if self.kept.get(&name).is_some_and(is_late) {
            return;
        }
        if self.kept.len() < MOST || self.kept.contains_key(&name) {
            self.kept.insert(name, retried(failure));
        }
    }

    /// The key of a retried item that is kept.
    pub(super) fn key(&self, item: u64) -> Option<&str> {
        self.kept.get(&(item, vec![]))?.key.as_deref()
    }

    /// Records a final failure.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let kept = name(failure).and_then(|name| self.kept.get_mut(&name));
        self.failed += u64::from(failure.attempts > 1 || kept.is_some());
        if let Some(kept) = kept {
            *kept = Retried { outcome: RetryOutcome::Failed, ..retried(failure) };
        }
    }

    pub(super) fn report(&self, consumed: ConsumedItems) -> RetryReport {
        let list: Vec<_> = self.kept.values().map(|kept| judged(kept, consumed)).collect();
        let known =
            list.iter().filter(|kept| kept.outcome == RetryOutcome::Succeeded).count() as u64;
        let (items, failed) = (self.items, self.failed);
        let succeeded = match consumed {
            ConsumedItems::All => items.saturating_sub(failed),
            ConsumedItems::Before(_) => known,
        };
        let left_out = items.saturating_sub(list.len() as u64);
        RetryReport { attempts: self.attempts, items, succeeded, failed, list, left_out }
    }
}

fn name(failure: &Failure) -> Option<ItemName> {
    Some((failure.item?, failure.parts.clone()))
}

fn retried(failure: &Failure) -> Retried {
    Retried {
        item: failure.item.unwrap_or_default(),
        parts: failure.parts.clone(),
        key: failure.key.as_ref().map(|key| shortened(key, LONGEST_KEPT).into_owned()),
        failed_attempts: failure.attempts,
        outcome: RetryOutcome::Unknown,
        error: clipped(failure.essence(), LONGEST_KEPT),
    }
}

fn judged(kept: &Retried, consumed: ConsumedItems) -> Retried {
    let is_consumed = match consumed {
        ConsumedItems::All => true,
        ConsumedItems::Before(item) => kept.parts.is_empty() && kept.item < item,
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
    fn in_a_complete_run_every_item_that_did_not_fail_succeeded() {
        let mut retries = Retries::default();
        [(7, 1), (3, 1), (3, 2)]
            .into_iter()
            .for_each(|(item, attempt)| retries.retried(&failure(item, attempt)));
        retries.failed(&failure(3, 3));
        let report = retries.report(ConsumedItems::All);
        assert_eq!((report.attempts, report.items), (3, 2));
        assert_eq!((report.succeeded, report.failed), (1, 1));
        let expected = [(3, 3, RetryOutcome::Failed), (7, 1, RetryOutcome::Succeeded)];
        assert_eq!(outcomes(&report), expected);
        assert_eq!(report.list[0].error, "3", "the error of the last attempt");
    }

    #[test]
    fn an_attempt_that_is_reported_late_replaces_no_later_one() {
        let mut retries = Retries::default();
        [2, 1].into_iter().for_each(|attempt| retries.retried(&failure(3, attempt)));
        let report = retries.report(ConsumedItems::All);
        assert_eq!((report.attempts, report.items), (2, 1));
        assert_eq!(outcomes(&report), [(3, 2, RetryOutcome::Succeeded)]);
    }

    #[test]
    fn of_an_incomplete_run_only_consumed_items_are_known() {
        let mut retries = Retries::default();
        [3, 7].into_iter().for_each(|item| retries.retried(&failure(item, 1)));
        let report = retries.report(ConsumedItems::Before(5));
        assert_eq!((report.succeeded, report.failed), (1, 0));
        let expected = [(3, 1, RetryOutcome::Succeeded), (7, 1, RetryOutcome::Unknown)];
        assert_eq!(outcomes(&report), expected);
    }

    #[test]
    fn items_beyond_the_bound_are_counted() {
        let mut retries = Retries::default();
        let items = MOST as u64 + 5;
        (0..items).for_each(|item| retries.retried(&failure(item, 1)));
        retries.failed(&failure(items - 1, 2));
        let report = retries.report(ConsumedItems::All);
        assert_eq!((report.list.len(), report.left_out), (MOST, 5));
        assert_eq!((report.items, report.succeeded, report.failed), (items, items - 1, 1));
    }
}
