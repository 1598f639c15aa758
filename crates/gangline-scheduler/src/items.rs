//! Records of the items that have failed, or that several producers work on.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::health::Blame;
use super::lease::{ProducerId, Sized};
use super::priority::Priority;
use super::retry_queue::Claims;
use crate::batch::Size;

/// The outcome of an item in a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The hook returned a result.
    Succeeded,
    /// The hook returned an error, or panicked.
    Failed,
}

/// What an outcome means for its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the item's outcome. After a failure the backend calls
    /// [`decide`](super::Scheduler::decide).
    Counts,
    /// It failed, but another copy is at work: that copy's outcome decides.
    Deferred,
    /// No longer wanted: the item is settled, expired or given up.
    Stale,
}

/// The attempts at one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttemptHistory {
    /// The number of the next attempt.
    pub(super) attempt: u32,
    /// The last of the producers in `tried` is the one that failed the item last.
    pub(super) claims: Claims,
    pub(super) blame: Blame,
    pub(super) largest: LargestDevice,
}

/// Whether an item has gone to the device with the most memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LargestDevice {
    NotTried,
    Tried,
}

impl AttemptHistory {
    pub(super) fn new(priority: Priority) -> Self {
        let claims = Claims { tried: vec![], keeper: None, priority };
        AttemptHistory { attempt: 1, claims, blame: Blame::Open, largest: LargestDevice::NotTried }
    }

    /// Records that the producer has failed it.
    pub(super) fn note(&mut self, producer: ProducerId) {
        self.claims.tried.retain(|&other| other != producer);
        self.claims.tried.push(producer);
    }

    /// Starts another attempt after the one that `producer` failed.
    pub(super) fn advance(&mut self, producer: ProducerId) {
        self.attempt = self.attempt.saturating_add(1);
        if self.blame == Blame::Item {
            self.claims.tried.clear();
        }
        self.note(producer);
    }
}

/// The record of an item that failed, or that several producers work on.
#[derive(Debug)]
pub(super) struct ItemRecord {
    pub(super) history: AttemptHistory,
    pub(super) size: Size,
    /// The number of leases and parts that cover it.
    pub(super) carriers: u32,
    pub(super) state: ItemState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemState {
    Open,
    /// One of its copies has failed, and another is at work.
    Deferred,
    /// It has failed, and the backend has not yet called [`decide`](super::Scheduler::decide).
    Undecided,
    /// One of its copies succeeded, or it was withdrawn.
    Settled,
}

/// The effect of an ended lease on one of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settlement {
    pub(super) standing: Standing,
    /// Other leases cover it; their results no longer count.
    pub(super) has_losers: bool,
    /// It had failed before, or another producer works on it.
    pub(super) was_special: bool,
}

/// Whether an item must be leased again after a lease stopped covering it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Another copy is at work, or it is settled.
    Covered,
    /// It has to be leased again.
    Alone,
}

/// The records of a run. An item without one is on its first attempt and covered once.
#[derive(Debug, Default)]
pub struct Items {
    records: IndexMap<ItemRecord>,
}

impl Items {
    pub(super) fn get(&self, index: u64) -> Option<&ItemRecord> {
        // Mostly the map is empty, so hashing is avoided.
        if self.records.is_empty() { None } else { self.records.get(&index) }
    }

    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut ItemRecord> {
        if self.records.is_empty() { None } else { self.records.get_mut(&index) }
    }

    pub(super) fn remove(&mut self, index: u64) -> Option<ItemRecord> {
        if self.records.is_empty() { None } else { self.records.remove(&index) }
    }

    /// Whether no result of the item counts any more.
    pub fn is_settled(&self, index: u64) -> bool {
        self.get(index).is_some_and(|record| record.state == ItemState::Settled)
    }

    /// Whether the item has failed and still needs an outcome: it is tried again, or not yet decided about.
    pub fn is_unsettled(&self, index: u64) -> bool {
        self.get(index).is_some_and(|record| record.state != ItemState::Settled)
    }

    /// Whether the item has failed and is not yet decided about.
    pub fn is_undecided(&self, index: u64) -> bool {
        self.get(index).is_some_and(|record| record.state == ItemState::Undecided)
    }

    /// Whether another producer works on one of these items, or has settled it.
    pub(super) fn are_shared(&self, items: &[Sized]) -> bool {
        let records = items.iter().filter_map(|item| self.get(item.index));
        records.into_iter().any(|it| it.carriers > 1 || it.state != ItemState::Open)
    }

    /// The number of leases and parts that cover an item; at least one.
    pub fn carriers(&self, index: u64) -> usize {
        self.get(index).map_or(1, |record| record.carriers.max(1) as usize)
    }

    /// Returns the record of an item, creating one if the item was never tried before.
    pub(super) fn open(&mut self, item: Sized, carriers: u32) -> &mut ItemRecord {
        let Sized { index, size, priority } = item;
        self.records.entry(index).or_insert_with(|| ItemRecord {
            history: AttemptHistory::new(priority),
            size,
            carriers,
            state: ItemState::Open,
        })
    }

    /// Records the outcome of a lease that covers the item.
    pub(super) fn settle(
        &mut self,
        item: Sized,
        outcome: Outcome,
        producer: ProducerId,
    ) -> Settlement {
        let index = item.index;
        let Some(record) = self.get_mut(index) else {
            if outcome == Outcome::Failed {
                let record = self.open(item, 0);
                record.history.note(producer);
                record.state = ItemState::Undecided;
            }
            let standing = Standing::Counts;
            return Settlement { standing, has_losers: false, was_special: false };
        };
        record.carriers -= 1;
        let is_last = record.carriers == 0;
        let standing = match (record.state, outcome) {
            (ItemState::Settled, _) => Standing::Stale,
            (_, Outcome::Succeeded) => {
                record.state = ItemState::Settled;
                Standing::Counts
            }
            (_, Outcome::Failed) => {
                record.history.note(producer);
                if is_last {
                    record.state = ItemState::Undecided;
                    Standing::Counts
                } else {
                    record.state = ItemState::Deferred;
                    Standing::Deferred
                }
            }
        };
        let is_settled = record.state == ItemState::Settled;
        if is_last && is_settled {
            self.records.remove(&index);
        }
        // Those of an item that was settled before have been revoked.
        let has_losers = !is_last && is_settled && standing == Standing::Counts;
        Settlement { standing, has_losers, was_special: true }
    }

    /// Notes that a lease no longer covers the item, without an outcome.
    pub(super) fn uncover(&mut self, index: u64) -> Dropped {
        let Some(record) = self.get_mut(index) else { return Dropped::Alone };
        record.carriers -= 1;
        match (record.carriers, record.state) {
            (0, ItemState::Settled) => {
                self.records.remove(&index);
                Dropped::Covered
            }
            (0, _) => {
                record.state = ItemState::Open;
                Dropped::Alone
            }
            _ => Dropped::Covered,
        }
    }

    /// Gives up all items from this index on. Records that no lease covers are removed.
    pub(super) fn give_up_from(&mut self, bound: u64) {
        let is_kept = |index: u64, record: &ItemRecord| {
            index < bound || record.carriers > 0 || record.state == ItemState::Undecided
        };
        self.records.retain(|&index, record| is_kept(index, record));
    }
}

/// A map by the indices of items.
pub type IndexMap<V> = HashMap<u64, V, BuildHasherDefault<IndexHasher>>;

/// Spreads indices over the buckets. Input cannot make them collide, since indices are assigned here.
#[derive(Debug, Default)]
pub struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only indices are hashed")
    }

    fn write_u64(&mut self, index: u64) {
        // Fibonacci hashing. The well-mixed upper half goes into both halves, since the table uses both ends.
        let mixed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(items: &mut Items, outcome: Outcome, producer: ProducerId) -> Standing {
        items.settle(Sized::plain(7), outcome, producer).standing
    }

    /// An item that producers 0 and 1 work on.
    fn covered_twice() -> Items {
        let mut items = Items::default();
        items.open(Sized::plain(7), 2);
        items
    }

    #[test]
    fn the_first_success_counts_and_the_other_copy_is_stale() {
        for late in [Outcome::Succeeded, Outcome::Failed] {
            let mut items = covered_twice();
            assert_eq!(settle(&mut items, Outcome::Succeeded, 0), Standing::Counts);
            assert!(items.is_settled(7));
            assert_eq!(settle(&mut items, late, 1), Standing::Stale);
            assert!(items.get(7).is_none(), "nothing is kept of it");
        }
    }

    /// Its leases were revoked then. Revoked once more, the other copy's batch would lose an item that is wanted.
    #[test]
    fn copies_of_an_item_that_was_withdrawn_are_revoked_once() {
        for outcome in [Outcome::Succeeded, Outcome::Failed] {
            let mut items = covered_twice();
            items.open(Sized::plain(7), 2).state = ItemState::Settled;
            let settlement = items.settle(Sized::plain(7), outcome, 0);
            assert_eq!(settlement.standing, Standing::Stale);
            assert!(!settlement.has_losers, "they are known already");
        }
    }

    #[test]
    fn an_error_waits_for_the_other_copy() {
        for (other, is_settled) in [(Outcome::Succeeded, true), (Outcome::Failed, false)] {
            let mut items = covered_twice();
            assert_eq!(settle(&mut items, Outcome::Failed, 0), Standing::Deferred);
            assert_eq!(settle(&mut items, other, 1), Standing::Counts);
            assert_eq!(items.get(7).is_none(), is_settled);
        }
    }

    #[test]
    fn an_item_whose_other_copy_vanishes_is_alone() {
        let mut items = covered_twice();
        assert_eq!(settle(&mut items, Outcome::Failed, 0), Standing::Deferred);
        assert_eq!(items.uncover(7), Dropped::Alone);
        assert_eq!(items.get(7).unwrap().history.claims.tried, [0]);
        assert_eq!(items.uncover(8), Dropped::Alone, "it has no record");
        let mut items = covered_twice();
        assert_eq!(items.uncover(7), Dropped::Covered);
    }

    #[test]
    fn an_item_that_is_to_blame_may_come_back_to_those_that_failed_it_before_the_last() {
        let mut history = AttemptHistory::new(Priority::Normal);
        for producer in [0, 1, 0] {
            history.advance(producer);
        }
        assert_eq!((history.attempt, &history.claims.tried[..]), (4, &[1, 0][..]));
        history.blame = Blame::Item;
        history.advance(1);
        assert_eq!(history.claims.tried, [1]);
    }

    #[test]
    fn only_items_that_are_open_or_covered_are_kept_behind_the_end() {
        let mut items = Items::default();
        let states = [
            ItemState::Open,
            ItemState::Undecided,
            ItemState::Open,
            ItemState::Undecided,
            ItemState::Open,
        ];
        for ((index, state), carriers) in (0..).zip(states).zip([0, 0, 0, 0, 1]) {
            items.open(Sized::plain(index), carriers).state = state;
        }
        items.give_up_from(2);
        let kept = (0..5).filter(|index| items.get(*index).is_some());
        assert_eq!(
            kept.collect::<Vec<u64>>(),
            [0, 1, 3, 4],
            "a decision is due, or a lease covers it"
        );
        assert!(items.remove(0).is_some() && items.remove(0).is_none());
    }

    #[test]
    fn indices_are_spread_over_both_ends_of_a_hash() {
        let hash = |index: u64| {
            let mut hasher = IndexHasher::default();
            hasher.write_u64(index);
            hasher.finish()
        };
        let different = |part: fn(u64) -> u64| {
            (0..1_000).map(hash).map(part).collect::<std::collections::HashSet<_>>().len()
        };
        assert!(different(|hash| hash & 0x3ff) > 500, "the lower bits choose the bucket");
        assert!(different(|hash| hash >> 57) > 100, "the upper ones are compared first");
    }
}
