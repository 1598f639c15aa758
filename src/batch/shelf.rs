//! Items that wait for a batch, where it matters which: they have sizes, or wait for a limited time.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::{Batch, Decision, Fill, Limits, Load, More, Size};

/// How many times as large as the smallest item of a batch the largest may be, where like sizes go together.
///
/// Simulated with sizes that are spread log-normally (mean of the logarithm 4, deviation 0.8) on two
/// devices and in windows of 3 and 16 batches for each: 1.4, 2 and 3 were within 10 % of each other at
/// every overhead of a batch, 2 the best or next to it; no limit was up to a third slower, fixed classes
/// of sizes 15 %, order of input two to four times.
const LIKE: u64 = 2;

/// Items that wait, in the order of the input. Their places count from 0 without gaps, which their indices need
/// not.
#[derive(Debug)]
pub(crate) struct Shelf<I> {
    /// The first is there, unless nothing is; of the others some may have been taken.
    slots: VecDeque<Option<Shelved<I>>>,
    /// The place of the first slot.
    first: u64,
    /// How many slots hold an item.
    len: usize,
    /// The sizes to which they are padded, with their places. `None` where batches are made in the order
    /// of the input.
    sizes: Option<BTreeSet<(u64, u64)>>,
    /// By how many later items the first may be overtaken: an endless input would else keep back one of a
    /// rare size for ever, where its window has room for others all the time.
    patience: u64,
}

/// What is known of an item when it is given out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note {
    pub(crate) size: Size,
    /// `None` where it does not matter.
    pub(crate) since: Option<Instant>,
}

/// An item that waits.
#[derive(Debug)]
pub(crate) struct Shelved<I> {
    pub(crate) seq: u64,
    pub(crate) input: I,
    pub(crate) note: Note,
}

/// What a free producer takes from a shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    Take(Selection),
    Wait,
    WaitFor(Duration),
}

/// Items of a shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// So many from the first on.
    First(usize),
    /// By size and place, both ends included.
    Like { smallest: (u64, u64), largest: (u64, u64) },
}

/// In which order items make batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// That of the input.
    None,
    /// Those of like sizes go together.
    Like,
}

impl<I> Shelf<I> {
    /// An empty shelf. `patience`: by how many later items one may be overtaken.
    pub(crate) fn new(grouping: Grouping, patience: usize) -> Self {
        Shelf {
            slots: VecDeque::new(),
            first: 0,
            len: 0,
            sizes: (grouping == Grouping::Like).then(BTreeSet::new),
            patience: patience as u64,
        }
    }

    /// How many items wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts the next item here.
    pub(crate) fn put(&mut self, seq: u64, input: I, note: Note) {
        if let Some(sizes) = &mut self.sizes {
            sizes.insert((note.size.padded, self.first + self.slots.len() as u64));
        }
        self.slots.push_back(Some(Shelved { seq, input, note }));
        self.len += 1;
    }

    /// What a free producer takes. Of several batches that wait, the one with the first item goes first
    /// when nothing more can come, and as soon as it may go; another only if it is full.
    pub(crate) fn pick(&self, batch: Batch, limits: Limits, now: Instant, more: More) -> Pick {
        let Some(first) = self.slots.front() else { return Pick::Wait };
        let first = first.as_ref().expect("the first slot holds an item");
        let since = first.note.since.unwrap_or(now);
        let more = if self.slots.len() as u64 > self.patience { More::Never } else { more };
        let (selection, fill) = self.around_first(limits);
        match batch.decide(fill, now.saturating_duration_since(since), more) {
            Decision::Take => Pick::Take(selection),
            wait => match (self.full(limits), wait) {
                (Some(selection), _) => Pick::Take(selection),
                (None, Decision::WaitFor(time)) => Pick::WaitFor(time),
                (None, _) => Pick::Wait,
            },
        }
    }

    /// The batch that the first item is in.
    fn around_first(&self, limits: Limits) -> (Selection, Fill) {
        match &self.sizes {
            None => self.prefix(limits),
            Some(sizes) => around((self.at(self.first).padded, self.first), sizes, self, limits),
        }
    }

    fn prefix(&self, limits: Limits) -> (Selection, Fill) {
        let sizes = self.slots.iter().flatten().map(|item| item.note.size);
        let (count, load) = limits.prefix(sizes);
        let is_full = count < self.len || limits.are_reached_by(load);
        (Selection::First(count), if is_full { Fill::Full } else { Fill::Partial })
    }

    /// A full batch of others, if there is one: that of the smallest items.
    fn full(&self, limits: Limits) -> Option<Selection> {
        let sizes = self.sizes.as_ref()?;
        let mut smallest = sizes.iter().copied();
        let mut first = smallest.next()?;
        let mut load = Load::default();
        let mut last = first;
        for &largest in sizes {
            load = load.with(self.at(largest.1));
            // As in the order of the input: one more like these is here, and costs too much.
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
        let slot = self.slots[(place - self.first) as usize].as_ref();
        slot.expect("an item whose size is here is here").note.size
    }

    /// Takes items out, in the order of the input.
    pub(crate) fn take(&mut self, selection: Selection) -> Vec<Shelved<I>> {
        let mut places: Vec<u64> = match selection {
            Selection::First(count) => {
                let here = (self.first..).zip(&self.slots).filter(|(_, slot)| slot.is_some());
                here.map(|(place, _)| place).take(count).collect()
            }
            Selection::Like { smallest, largest } => {
                let sizes = self.sizes.as_ref().expect("only like sizes are picked by size");
                sizes.range(smallest..=largest).map(|&(_, place)| place).collect()
            }
        };
        places.sort_unstable();
        let taken = places.into_iter().map(|place| self.remove(place)).collect();
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        taken
    }

    fn remove(&mut self, place: u64) -> Shelved<I> {
        let slot = self.slots[(place - self.first) as usize].take();
        let shelved = slot.expect("what is selected is here");
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(&(shelved.note.size.padded, place));
        }
        self.len -= 1;
        shelved
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = I> {
        self.first += self.slots.len() as u64;
        self.len = 0;
        if let Some(sizes) = &mut self.sizes {
            sizes.clear();
        }
        std::mem::take(&mut self.slots).into_iter().flatten().map(|shelved| shelved.input)
    }
}

fn are_alike(smallest: u64, largest: u64) -> bool {
    largest <= smallest.saturating_mul(LIKE)
}

/// The items around `center` that make a batch with it, the nearest first: those of like sizes, while they
/// are within the limits. Full if not even the least would fit, or if the next of like size costs too much.
fn around<I>(
    center: (u64, u64),
    sizes: &BTreeSet<(u64, u64)>,
    shelf: &Shelf<I>,
    limits: Limits,
) -> (Selection, Fill) {
    let (mut smallest, mut largest) = (center, center);
    let mut load = Load::of([shelf.at(center.1)]);
    let mut smaller = sizes.range(..center).rev().copied().peekable();
    let above_center = (Bound::Excluded(center), Bound::Unbounded);
    let mut larger = sizes.range(above_center).copied().peekable();
    loop {
        let allowed = |&(size, seq): &(u64, u64)| {
            are_alike(smallest.0.min(size), largest.0.max(size))
                && limits.allow(load.with(shelf.at(seq)))
        };
        let below = smaller.peek().copied().filter(allowed);
        let above = larger.peek().copied().filter(allowed);
        // What is padded to what: a smaller one to the largest, all the others to a larger one.
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
        load = load.with(shelf.at(next.1));
    }
    let costs_too_much = |&(size, seq): &(u64, u64)| {
        are_alike(smallest.0.min(size), largest.0.max(size))
            && limits.refuse_for_cost(load.with(shelf.at(seq)))
    };
    let is_full = limits.are_reached_by(load)
        || [smaller.peek(), larger.peek()].into_iter().flatten().any(costs_too_much);
    let fill = if is_full { Fill::Full } else { Fill::Partial };
    (Selection::Like { smallest, largest }, fill)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { items: 4, cost: None, padded: None };

    fn shelf(grouping: Grouping, sizes: &[u64]) -> Shelf<u64> {
        let mut shelf = Shelf::new(grouping, 100);
        for (&size, seq) in sizes.iter().zip(0..) {
            shelf.put(seq, size, Note { size: Size { cost: size, padded: size }, since: None });
        }
        shelf
    }

    /// The indices that a producer takes, if it does not wait.
    fn taken(shelf: &mut Shelf<u64>, batch: Batch, limits: Limits, more: More) -> Vec<u64> {
        match shelf.pick(batch, limits, Instant::now(), more) {
            Pick::Take(selection) => {
                shelf.take(selection).into_iter().map(|shelved| shelved.seq).collect()
            }
            Pick::Wait | Pick::WaitFor(_) => vec![],
        }
    }

    #[test]
    fn in_the_order_of_the_input_a_batch_ends_where_the_next_does_not_fit() {
        let mut shelf = shelf(Grouping::None, &[3, 4, 3, 1, 1]);
        let limits = Limits { cost: Some(10), ..LIMITS };
        let mut take = |more| taken(&mut shelf, Batch::of(4), limits, more);
        assert_eq!(take(More::MayCome), [0, 1, 2], "as much as may be");
        assert!(take(More::MayCome).is_empty());
        assert_eq!(take(More::Never), [3, 4]);
        assert!(take(More::Never).is_empty());
    }

    #[test]
    fn like_sizes_go_together() {
        let mut shelf = shelf(Grouping::Like, &[10, 100, 11, 90, 12, 110, 13, 95]);
        let mut take = || taken(&mut shelf, Batch::up_to(4), LIMITS, More::MayCome);
        assert_eq!(take(), [0, 2, 4, 6]);
        assert_eq!(take(), [1, 3, 5, 7]);
    }

    #[test]
    fn the_nearest_sizes_fill_up_what_is_allowed() {
        let mut shelf = shelf(Grouping::Like, &[16, 9, 17, 30, 15]);
        let limits = Limits { padded: Some(51), ..LIMITS };
        assert_eq!(taken(&mut shelf, Batch::up_to(9), limits, More::MayCome), [0, 2, 4]);
    }

    #[test]
    fn a_full_batch_overtakes_one_that_waits() {
        let mut shelf = shelf(Grouping::Like, &[1_000, 10, 10, 10, 10, 10]);
        let mut take = |more| taken(&mut shelf, Batch::of(4), LIMITS, more);
        assert_eq!(take(More::MayCome), [1, 2, 3, 4]);
        assert!(take(More::MayCome).is_empty());
        assert_eq!(take(More::Never), [0], "the one with the first item before the others");
        assert_eq!(take(More::Never), [5]);
    }

    #[test]
    fn a_batch_is_full_where_the_next_of_like_size_costs_too_much() {
        let limits = Limits { cost: Some(10), ..LIMITS };
        let mut alike = Shelf::new(Grouping::Like, 100);
        for (seq, padded) in [90, 7, 7, 7, 7].into_iter().enumerate() {
            let size = Size { cost: 3, padded };
            alike.put(seq as u64, seq as u64, Note { size, since: None });
        }
        let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
        assert_eq!(take(), [1, 2, 3], "that of others than the first");
        assert!(take().is_empty());
        let size = Size { cost: 8, padded: 100 };
        alike.put(5, 5, Note { size, since: None });
        let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
        assert_eq!(take(), [0], "that of the first");
        assert!(take().is_empty());
    }

    #[test]
    fn an_endless_input_does_not_keep_back_a_rare_size() {
        let mut shelf = Shelf::new(Grouping::Like, 10);
        let size = |padded| Note { size: Size { cost: 1, padded }, since: None };
        shelf.put(0, 0, size(1_000));
        let mut batches = Vec::new();
        for input in 1..=12 {
            shelf.put(input, input, size(10));
            batches.push(taken(&mut shelf, Batch::of(4), LIMITS, More::MayCome));
        }
        batches.retain(|batch| !batch.is_empty());
        assert_eq!(batches, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![0], vec![9, 10, 11, 12]]);
    }

    #[test]
    fn the_time_limit_is_that_of_the_first() {
        const MS: Duration = Duration::from_millis(1);
        let start = Instant::now();
        let mut shelf = Shelf::new(Grouping::None, 10);
        for ms in [0, 3] {
            shelf.put(u64::from(ms), ms, Note { size: Size::ONE, since: Some(start + ms * MS) });
        }
        let batch = Batch::of(4).within(5 * MS);
        let pick = |shelf: &Shelf<_>, ms| shelf.pick(batch, LIMITS, start + ms * MS, More::MayCome);
        assert_eq!(pick(&shelf, 4), Pick::WaitFor(MS));
        assert_eq!(pick(&shelf, 5), Pick::Take(Selection::First(2)));
        shelf.take(Selection::First(1));
        assert_eq!(pick(&shelf, 5), Pick::WaitFor(3 * MS));
    }

    proptest! {
        /// `steps`: how many items come, and whether a producer looks afterwards.
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
            let mut shelf = Shelf::new(grouping, 20);
            let mut input = sizes.iter();
            let mut all = Vec::new();
            let mut check = |shelf: &mut Shelf<u64>, more| {
                let Pick::Take(selection) = shelf.pick(batch, limits, Instant::now(), more) else {
                    return Ok(false);
                };
                let taken = shelf.take(selection);
                prop_assert!(!taken.is_empty());
                prop_assert!(taken.is_sorted_by(|a, b| a.seq < b.seq));
                let load = Load::of(taken.iter().map(|shelved| shelved.note.size));
                prop_assert!(limits.allow(load));
                all.extend(taken.into_iter().map(|shelved| (shelved.seq, shelved.input)));
                Ok(true)
            };
            let (mut put, mut seq) = (Vec::new(), 0);
            for (come, looks) in steps {
                for &size in input.by_ref().take(come) {
                    // Some indices have no item.
                    seq += if size % 7 == 0 { 1_000 } else { 1 };
                    put.push((seq, size));
                    shelf.put(seq, size, Note { size: Size { cost: size, padded: size }, since: None });
                }
                if looks {
                    check(&mut shelf, More::MayCome)?;
                }
            }
            while check(&mut shelf, More::Never)? {}
            prop_assert_eq!(shelf.len(), 0);
            all.sort_unstable();
            prop_assert_eq!(all, put);
        }
    }
}
