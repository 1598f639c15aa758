//! Items that wait for their first lease, and which of them make a batch.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::config::Meta;
use super::lease::Sized;
use super::time::RunTime;
use crate::batch::{Batch, BatchDecision, Fill, Grouping, Limits, Load, More, Size};

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
    slots: VecDeque<PendingSlot>,
    /// The place of the first slot. Places count from 0 without gaps; indices may have gaps.
    first: u64,
    /// The number of slots that hold an item.
    len: usize,
    /// The padded sizes with their places. `None` if batches follow the order of the input.
    sizes: Option<BTreeSet<(u64, u64)>>,
    /// The maximum number of later items that may overtake one. Otherwise an endless input could hold back an
    /// item of a rare size for ever.
    patience: u64,
    /// Items before this index do not wait for later ones.
    urgent: u64,
}

#[derive(Debug, Clone, Copy)]
struct PendingSlot {
    index: u64,
    meta: Meta,
    is_taken: bool,
}

/// What a free producer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick<S = Selection> {
    Take(S),
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
            urgent: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stops items below this index from waiting for later ones.
    pub(super) fn hurry(&mut self, below: u64) {
        self.urgent = self.urgent.max(below);
    }

    /// Whether the first item does not wait for later ones.
    fn is_urgent(&self) -> bool {
        self.slots.front().is_some_and(|slot| slot.index < self.urgent)
    }

    /// Appends the next item.
    pub(super) fn push(&mut self, index: u64, meta: Meta) {
        debug_assert!(self.slots.back().is_none_or(|last| last.index < index), "in order");
        if let Some(sizes) = &mut self.sizes {
            sizes.insert((meta.size.padded, self.first + self.slots.len() as u64));
        }
        self.slots.push_back(PendingSlot { index, meta, is_taken: false });
        self.len += 1;
    }

    /// Decides what a free producer does. The batch of the first item goes first if it may go, or if no more
    /// items can come. Any other batch goes only if it is full.
    pub(super) fn pick(&self, rule: Batch, limits: Limits, now: RunTime, more: More) -> Pick {
        let Some(first) = self.slots.front() else { return Pick::Wait };
        let more = if self.may_wait() { more } else { More::Never };
        let (selection, fill) = self.around_first(limits);
        match rule.decide(fill, now.since(first.meta.since), more) {
            BatchDecision::Take => Pick::Take(selection),
            wait => match (self.full(limits), wait) {
                (Some(selection), _) => Pick::Take(selection),
                (None, BatchDecision::WaitFor(time)) => Pick::WaitUntil(now.after(time)),
                (None, _) => Pick::Wait,
            },
        }
    }

    /// Whether the first item may wait for later ones.
    pub(super) fn may_wait(&self) -> bool {
        !self.is_urgent() && self.slots.len() as u64 <= self.patience
    }

    /// How long the first item has waited.
    pub(super) fn waited(&self, now: RunTime) -> Duration {
        self.slots.front().map_or(Duration::ZERO, |first| now.since(first.meta.since))
    }

    /// The batch that contains the first item.
    pub(super) fn around_first(&self, limits: Limits) -> (Selection, Fill) {
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
    pub(super) fn full(&self, limits: Limits) -> Option<Selection> {
        let sizes = self.sizes.as_ref()?;
        let mut smallest = sizes.iter().copied();
        let mut first = smallest.next()?;
        let mut load = Load::default();
        let mut last = first;
        for &largest in sizes {
            load = load.with(self.at(largest.1));
            // The batch is full, as in input order: another item of like size is here, and would cost too much.
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

    pub(super) fn at(&self, place: u64) -> Size {
        self.slots[(place - self.first) as usize].meta.size
    }

    /// The load of the items at these places.
    pub(super) fn load_of(&self, places: &[u64]) -> Load {
        Load::of(places.iter().map(|&place| self.at(place)))
    }

    /// The places of the items that wait, in the order of the input.
    fn waiting(&self) -> impl Iterator<Item = u64> {
        let places = (self.first..).zip(&self.slots);
        places.filter(|(_, slot)| !slot.is_taken).map(|(place, _)| place)
    }

    /// The places of the selected items.
    pub(super) fn places(&self, selection: Selection) -> Vec<u64> {
        match selection {
            Selection::First(count) => self.waiting().take(count).collect(),
            Selection::Like { smallest, largest } => {
                let sizes = self.sizes.as_ref().expect("only like sizes are picked by size");
                sizes.range(smallest..=largest).map(|&(_, place)| place).collect()
            }
        }
    }

    /// Returns the places of the items that fill up a batch of this load, in the order of the input. If items are
    /// grouped by size, only those of like size that add no padding count. The batch is full if the next item does not
    /// fit.
    pub(super) fn that_fit(&self, load: Load, limits: Limits) -> (Vec<u64>, Fill) {
        match &self.sizes {
            None => self.while_allowed(self.waiting(), load, limits),
            Some(sizes) => {
                let largest = load.largest();
                let alike = sizes.range((largest.div_ceil(LIKE), 0)..=(largest, u64::MAX));
                let mut places: Vec<u64> = alike.map(|&(_, place)| place).collect();
                places.sort_unstable();
                self.while_allowed(places.into_iter(), load, limits)
            }
        }
    }

    fn while_allowed(
        &self,
        places: impl Iterator<Item = u64>,
        mut load: Load,
        limits: Limits,
    ) -> (Vec<u64>, Fill) {
        let mut fitting = Vec::new();
        for place in places {
            let more = load.with(self.at(place));
            if !limits.allow(more) {
                return (fitting, Fill::Full);
            }
            load = more;
            fitting.push(place);
        }
        let is_full = limits.are_reached_by(load);
        (fitting, if is_full { Fill::Full } else { Fill::Partial })
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
            Selection::Like { .. } => return self.take_places(self.places(selection)),
        }
        self.close_gap();
        taken
    }

    /// Takes the items at these places, in the order of the input.
    pub(super) fn take_places(&mut self, mut places: Vec<u64>) -> Vec<Sized> {
        places.sort_unstable();
        let taken = places.into_iter().filter_map(|place| self.remove(place)).collect();
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
        let PendingSlot { index, meta: Meta { size, priority, .. }, .. } = *slot;
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(&(size.padded, place));
        }
        self.len -= 1;
        Some(Sized { index, size, priority })
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
