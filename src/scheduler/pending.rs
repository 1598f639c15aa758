//! Items that wait for their first lease, and which of them make a batch.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use super::config::Meta;
use super::lease::Sized;
use super::time::RunTime;
use crate::scheduler::batch::{Batch, Decision, Fill, Grouping, Limits, Load, More, Size};

/// The maximum ratio of the largest to the smallest item of a batch, if items of like sizes go together.
///
/// Simulated with log-normal sizes (mean of the logarithm 4, deviation 0.8) on two devices, with windows of 3
/// and 16 batches per device. 1.4, 2 and 3 differed by less than 10 % at every overhead of a batch; 2 was the
/// best or next to it. Without a limit, runs took up to a third longer; with fixed size classes 15 %; in
/// input order, two to four times as long.
const LIKE: u64 = 2;

/// Items that wait, in the order of the input.
#[derive(Debug)]
pub(super) struct PendingItems {
    /// The first slot holds an item, unless there is none; items of others may have been taken.
    slots: VecDeque<Slot>,
    /// The place of the first slot. Places count from 0 without gaps; indices may have gaps.
    first: u64,
    /// The number of slots that hold an item.
    len: usize,
    /// The padded sizes with their places. `None` if batches follow the order of the input.
    sizes: Option<BTreeSet<(u64, u64)>>,
    /// The maximum number of later items that may overtake one. Otherwise an endless input could hold back an
    /// item of a rare size for ever.
    patience: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    index: u64,
    meta: Meta,
    is_taken: bool,
}

/// What a free producer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Take(Selection),
    Wait,
    WaitUntil(RunTime),
}

/// The items of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    /// This number of items, from the first on.
    First(usize),
    /// A range of sizes and places, both ends included.
    Like { smallest: (u64, u64), largest: (u64, u64) },
}

impl PendingItems {
    /// `patience`: the maximum number of later items that may overtake one.
    pub(super) fn new(grouping: Grouping, patience: usize) -> Self {
        PendingItems {
            slots: VecDeque::new(),
            first: 0,
            len: 0,
            sizes: (grouping == Grouping::Like).then(BTreeSet::new),
            patience: patience as u64,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the next item.
    pub(super) fn push(&mut self, index: u64, meta: Meta) {
        debug_assert!(self.slots.back().is_none_or(|last| last.index < index), "in order");
        if let Some(sizes) = &mut self.sizes {
            sizes.insert((meta.size.padded, self.first + self.slots.len() as u64));
        }
        self.slots.push_back(Slot { index, meta, is_taken: false });
        self.len += 1;
    }

    /// Decides what a free producer does. The batch of the first item goes first if it may go, or if no more
    /// items can come. Any other batch goes only if it is full.
    pub(super) fn pick(&self, rule: Batch, limits: Limits, now: RunTime, more: More) -> Pick {
        let Some(first) = self.slots.front() else { return Pick::Wait };
        let more = if self.slots.len() as u64 > self.patience { More::Never } else { more };
        let (selection, fill) = self.around_first(limits);
        match rule.decide(fill, now.since(first.meta.since), more) {
            Decision::Take => Pick::Take(selection),
            wait => match (self.full(limits), wait) {
                (Some(selection), _) => Pick::Take(selection),
                (None, Decision::WaitFor(time)) => Pick::WaitUntil(now.after(time)),
                (None, _) => Pick::Wait,
            },
        }
    }

    /// The batch that contains the first item.
    fn around_first(&self, limits: Limits) -> (Selection, Fill) {
        match &self.sizes {
            None => self.prefix(limits),
            Some(sizes) => around((self.at(self.first).padded, self.first), sizes, self, limits),
        }
    }

    fn prefix(&self, limits: Limits) -> (Selection, Fill) {
        let sizes = self.slots.iter().filter(|slot| !slot.is_taken).map(|slot| slot.meta.size);
        let (count, load) = limits.prefix(sizes);
        let is_full = count < self.len || limits.are_reached_by(load);
        (Selection::First(count), if is_full { Fill::Full } else { Fill::Partial })
    }

    /// The full batch of the smallest other items, if there is one.
    fn full(&self, limits: Limits) -> Option<Selection> {
        let sizes = self.sizes.as_ref()?;
        let mut smallest = sizes.iter().copied();
        let mut first = smallest.next()?;
        let mut load = Load::default();
        let mut last = first;
        for &largest in sizes {
            load = load.with(self.at(largest.1));
            // As in input order: another item of like size is here, and would cost too much.
            if are_alike(first.0, largest.0) && first != largest && limits.refuse_for_cost(load) {
                return Some(Selection::Like { smallest: first, largest: last });
            }
            while first != largest && !(are_alike(first.0, largest.0) && limits.allow(load)) {
                load = load.without(self.at(first.1));
                first = smallest.next().expect("it comes to the largest at the latest");
            }
            if limits.are_reached_by(load) {
                return Some(Selection::Like { smallest: first, largest });
            }
            last = largest;
        }
        None
    }

    fn at(&self, place: u64) -> Size {
        self.slots[(place - self.first) as usize].meta.size
    }

    /// Takes the selected items, in the order of the input.
    pub(super) fn take(&mut self, selection: Selection) -> Vec<Sized> {
        let mut taken = Vec::new();
        match selection {
            Selection::First(count) => {
                taken.reserve(count);
                let mut place = self.first;
                while taken.len() < count {
                    taken.extend(self.remove(place));
                    place += 1;
                }
            }
            Selection::Like { smallest, largest } => {
                let sizes = self.sizes.as_ref().expect("only like sizes are picked by size");
                let mut places: Vec<u64> =
                    sizes.range(smallest..=largest).map(|&(_, place)| place).collect();
                places.sort_unstable();
                taken.extend(places.into_iter().filter_map(|place| self.remove(place)));
            }
        }
        self.close_gap();
        taken
    }

    /// Takes the item with this index, if it is here.
    pub(super) fn withdraw(&mut self, index: u64) -> Option<Sized> {
        let offset = self.slots.binary_search_by_key(&index, |slot| slot.index).ok()?;
        let item = self.remove(self.first + offset as u64);
        self.close_gap();
        item
    }

    /// Drops the items from this index on.
    pub(super) fn give_up_from(&mut self, bound: u64) {
        while self.slots.back().is_some_and(|last| last.index >= bound) {
            self.remove(self.first + self.slots.len() as u64 - 1);
            self.slots.pop_back();
        }
        self.close_gap();
    }

    fn remove(&mut self, place: u64) -> Option<Sized> {
        let slot = &mut self.slots[(place - self.first) as usize];
        if std::mem::replace(&mut slot.is_taken, true) {
            return None;
        }
        let Slot { index, meta: Meta { size, .. }, .. } = *slot;
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(&(size.padded, place));
        }
        self.len -= 1;
        Some(Sized { index, size })
    }

    /// Restores the invariant that the first slot holds an item.
    fn close_gap(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.is_taken) {
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

fn are_alike(smallest: u64, largest: u64) -> bool {
    largest <= smallest.saturating_mul(LIKE)
}

/// The batch around `center`: the nearest items of like size first, while they are within the limits. It is
/// full if not even the smallest item would fit, or if the next item of like size costs too much.
fn around(
    center: (u64, u64),
    sizes: &BTreeSet<(u64, u64)>,
    pending: &PendingItems,
    limits: Limits,
) -> (Selection, Fill) {
    let (mut smallest, mut largest) = (center, center);
    let mut load = Load::of([pending.at(center.1)]);
    let mut smaller = sizes.range(..center).rev().copied().peekable();
    let above_center = (Bound::Excluded(center), Bound::Unbounded);
    let mut larger = sizes.range(above_center).copied().peekable();
    loop {
        let allowed = |&(size, seq): &(u64, u64)| {
            are_alike(smallest.0.min(size), largest.0.max(size))
                && limits.allow(load.with(pending.at(seq)))
        };
        let below = smaller.peek().copied().filter(allowed);
        let above = larger.peek().copied().filter(allowed);
        // Compares the padding: of a smaller item to the current largest, or of all others to a larger item.
        let is_below_nearer = |below: (u64, u64), above: (u64, u64)| {
            largest.0 - below.0 <= (above.0 - largest.0).saturating_mul(load.items)
        };
        let next = match (below, above) {
            (Some(below), Some(above)) if !is_below_nearer(below, above) => larger.next(),
            (Some(_), _) => smaller.next(),
            (None, Some(_)) => larger.next(),
            (None, None) => break,
        };
        let next = next.expect("it was looked at");
        (smallest, largest) = (smallest.min(next), largest.max(next));
        load = load.with(pending.at(next.1));
    }
    let costs_too_much = |&(size, seq): &(u64, u64)| {
        are_alike(smallest.0.min(size), largest.0.max(size))
            && limits.refuse_for_cost(load.with(pending.at(seq)))
    };
    let is_full = limits.are_reached_by(load)
        || [smaller.peek(), larger.peek()].into_iter().flatten().any(costs_too_much);
    let fill = if is_full { Fill::Full } else { Fill::Partial };
    (Selection::Like { smallest, largest }, fill)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn meta(cost: u64, padded: u64) -> Meta {
        Meta { size: Size { cost, padded }, since: RunTime::START }
    }

    const LIMITS: Limits = Limits { items: 4, cost: None, padded: None };

    fn pending(grouping: Grouping, sizes: &[u64]) -> PendingItems {
        let mut pending = PendingItems::new(grouping, 100);
        for (&size, seq) in sizes.iter().zip(0..) {
            pending.push(seq, meta(size, size));
        }
        pending
    }

    /// The indices of the items that a producer takes, if it does not wait.
    fn taken(pending: &mut PendingItems, batch: Batch, limits: Limits, more: More) -> Vec<u64> {
        match pending.pick(batch, limits, RunTime::START, more) {
            Pick::Take(selection) => {
                pending.take(selection).into_iter().map(|item| item.index).collect()
            }
            Pick::Wait | Pick::WaitUntil(_) => vec![],
        }
    }

    #[test]
    fn in_the_order_of_the_input_a_batch_ends_where_the_next_does_not_fit() {
        let mut pending = pending(Grouping::None, &[3, 4, 3, 1, 1]);
        let limits = Limits { cost: Some(10), ..LIMITS };
        let mut take = |more| taken(&mut pending, Batch::of(4), limits, more);
        assert_eq!(take(More::MayCome), [0, 1, 2], "as much as may be");
        assert!(take(More::MayCome).is_empty());
        assert_eq!(take(More::Never), [3, 4]);
        assert!(take(More::Never).is_empty());
    }

    #[test]
    fn like_sizes_go_together() {
        let mut pending = pending(Grouping::Like, &[10, 100, 11, 90, 12, 110, 13, 95]);
        let mut take = || taken(&mut pending, Batch::up_to(4), LIMITS, More::MayCome);
        assert_eq!(take(), [0, 2, 4, 6]);
        assert_eq!(take(), [1, 3, 5, 7]);
    }

    #[test]
    fn the_nearest_sizes_fill_up_what_is_allowed() {
        let mut pending = pending(Grouping::Like, &[16, 9, 17, 30, 15]);
        let limits = Limits { padded: Some(51), ..LIMITS };
        assert_eq!(taken(&mut pending, Batch::up_to(9), limits, More::MayCome), [0, 2, 4]);
    }

    #[test]
    fn a_full_batch_overtakes_one_that_waits() {
        let mut pending = pending(Grouping::Like, &[1_000, 10, 10, 10, 10, 10]);
        let mut take = |more| taken(&mut pending, Batch::of(4), LIMITS, more);
        assert_eq!(take(More::MayCome), [1, 2, 3, 4]);
        assert!(take(More::MayCome).is_empty());
        assert_eq!(take(More::Never), [0], "the one with the first item before the others");
        assert_eq!(take(More::Never), [5]);
    }

    #[test]
    fn a_batch_is_full_where_the_next_of_like_size_costs_too_much() {
        let limits = Limits { cost: Some(10), ..LIMITS };
        let mut alike = PendingItems::new(Grouping::Like, 100);
        for (seq, padded) in [90, 7, 7, 7, 7].into_iter().enumerate() {
            alike.push(seq as u64, meta(3, padded));
        }
        let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
        assert_eq!(take(), [1, 2, 3], "that of others than the first");
        assert!(take().is_empty());
        alike.push(5, meta(8, 100));
        let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
        assert_eq!(take(), [0], "that of the first");
        assert!(take().is_empty());
    }

    #[test]
    fn an_endless_input_does_not_keep_back_a_rare_size() {
        let mut pending = PendingItems::new(Grouping::Like, 10);
        pending.push(0, meta(1, 1_000));
        let mut batches = Vec::new();
        for input in 1..=12 {
            pending.push(input, meta(1, 10));
            batches.push(taken(&mut pending, Batch::of(4), LIMITS, More::MayCome));
        }
        batches.retain(|batch| !batch.is_empty());
        assert_eq!(batches, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![0], vec![9, 10, 11, 12]]);
    }

    #[test]
    fn the_time_limit_is_that_of_the_first() {
        let at = |ms| RunTime::at(Duration::from_millis(ms));
        let mut pending = PendingItems::new(Grouping::None, 10);
        for ms in [0, 3] {
            pending.push(ms, Meta { size: Size::ONE, since: at(ms) });
        }
        let batch = Batch::of(4).within(Duration::from_millis(5));
        let pick = |pending: &PendingItems, ms| pending.pick(batch, LIMITS, at(ms), More::MayCome);
        assert_eq!(pick(&pending, 4), Pick::WaitUntil(at(5)));
        assert_eq!(pick(&pending, 5), Pick::Take(Selection::First(2)));
        pending.take(Selection::First(1));
        assert_eq!(pick(&pending, 5), Pick::WaitUntil(at(8)));
    }

    #[test]
    fn what_is_withdrawn_or_given_up_is_in_no_batch() {
        for grouping in [Grouping::None, Grouping::Like] {
            let mut pending = pending(grouping, &[1; 8]);
            assert_eq!(pending.withdraw(0).unwrap().index, 0);
            assert!(pending.withdraw(0).is_none() && pending.withdraw(9).is_none());
            assert!(pending.withdraw(3).is_some());
            pending.give_up_from(6);
            assert_eq!(pending.len(), 4);
            let limits = Limits { items: 9, ..LIMITS };
            assert_eq!(taken(&mut pending, Batch::of(9), limits, More::Never), [1, 2, 4, 5]);
            assert!(pending.is_empty() && pending.slots.is_empty());
        }
    }

    proptest! {
        /// `steps`: the number of items that arrive, and whether a producer looks afterwards.
        #[test]
        fn every_item_is_taken_once_and_within_the_limits(
            sizes in proptest::collection::vec(1u64..200, 0..100),
            like in any::<bool>(),
            waits in any::<bool>(),
            (items, cost, padded) in (1u64..8, 200u64..600, 200u64..600),
            steps in proptest::collection::vec((0usize..6, any::<bool>()), 0..60),
        ) {
            let grouping = if like { Grouping::Like } else { Grouping::None };
            let limits = Limits { items, cost: Some(cost), padded: Some(padded) };
            let batch = if waits { Batch::of(items as usize) } else { Batch::up_to(items as usize) };
            let mut pending = PendingItems::new(grouping, 20);
            let mut input = sizes.iter();
            let mut all = Vec::new();
            let mut check = |pending: &mut PendingItems, more| {
                let Pick::Take(selection) = pending.pick(batch, limits, RunTime::START, more) else {
                    return Ok(false);
                };
                let taken = pending.take(selection);
                prop_assert!(!taken.is_empty());
                prop_assert!(taken.is_sorted_by(|a, b| a.index < b.index));
                let load = Load::of(taken.iter().map(|item| item.size));
                prop_assert!(limits.allow(load));
                all.extend(taken.into_iter().map(|item| (item.index, item.size.cost)));
                Ok(true)
            };
            let (mut put, mut seq) = (Vec::new(), 0);
            for (come, looks) in steps {
                for &size in input.by_ref().take(come) {
                    // Some indices have no item.
                    seq += if size % 7 == 0 { 1_000 } else { 1 };
                    put.push((seq, size));
                    pending.push(seq, meta(size, size));
                }
                if looks {
                    check(&mut pending, More::MayCome)?;
                }
            }
            while check(&mut pending, More::Never)? {}
            prop_assert_eq!(pending.len(), 0);
            all.sort_unstable();
            prop_assert_eq!(all, put);
        }
    }
}
