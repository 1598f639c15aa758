//! Which ranges of a memory are free.
//!
//! This is a value without the memory. Its law: no two ranges that are taken overlap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long free pages are kept that nothing needs.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(10);

/// The free ranges of a memory. Their starts and lengths are whole pages.
#[derive(Debug)]
pub(super) struct Ranges {
    page: u64,
    /// The largest number of bytes that are free and keep their pages.
    most_kept: u64,
    /// The bytes that are free and have their pages: to make pages takes longer than to fill them.
    kept: u64,
    /// Free ranges with their pages: lengths by starts.
    warm: BTreeMap<u64, u64>,
    /// Free ranges without pages.
    cold: BTreeMap<u64, u64>,
    /// The fewest bytes that were kept at a time in this period: nothing has needed that many.
    idle: u64,
    /// The end of the period. `None` while nothing is kept.
    period_end: Option<Instant>,
}

/// The start and the length of a range, in bytes.
pub(super) type Range = (u64, u64);

impl Ranges {
    /// The ranges of a memory of which nothing is taken.
    pub(super) fn new(size: u64, page: u64, most_kept: u64) -> Self {
        let cold = BTreeMap::from([(0, size / page * page)]);
        let (warm, kept, idle) = (BTreeMap::new(), 0, 0);
        Ranges { page, most_kept, kept, warm, cold, idle, period_end: None }
    }

    /// Takes a range of this length, from where the pages are there if it can. Returns its start.
    pub(super) fn take(&mut self, length: u64) -> Option<u64> {
        let length = self.whole_pages(length)?;
        if let Some(start) = take_first(&mut self.warm, length) {
            self.kept -= length;
            self.idle = self.idle.min(self.kept);
            return Some(start);
        }
        take_first(&mut self.cold, length)
    }

    /// Frees a range that was taken with this length. Returns the free ranges that are to lose their pages.
    pub(super) fn give(&mut self, start: u64, length: u64) -> Vec<Range> {
        let length = self.whole_pages(length).expect("a range of this length was taken");
        self.kept += length;
        let (given, _) = insert(&mut self.warm, (start, length));
        let mut emptied = vec![];
        while self.kept > self.most_kept {
            // Values are mostly as large as the last one was, so its range is the last to go.
            let other = self.warm.iter().rev().find(|(start, _)| **start != given);
            let other = other.or(self.warm.iter().next()).map(|(start, length)| (*start, *length));
            let (start, length) = other.expect("what is kept is free");
            self.warm.remove(&start);
            self.kept -= length;
            insert(&mut self.cold, (start, length));
            emptied.push((start, length));
        }
        self.idle = self.idle.min(self.kept);
        emptied
    }

    /// Ends the period if it is over. Returns the free ranges that are to lose their pages, as nothing has needed them in it.
    ///
    /// Ranges have no times of their own: neighbours become one, and one that is used again and again keeps its pages.
    pub(super) fn age(&mut self, now: Instant) -> Vec<Range> {
        let emptied = match self.period_end {
            Some(end) if end <= now => self.empty(self.idle),
            Some(_) => return vec![],
            None => vec![],
        };
        self.period_end = (self.kept > 0).then_some(now + KEPT_FOR);
        self.idle = self.kept;
        emptied
    }

    /// Returns all free ranges that have pages, which they are to lose.
    pub(super) fn empty_all(&mut self) -> Vec<Range> {
        self.idle = 0;
        self.empty(self.kept)
    }

    /// Takes the pages of `bytes` free bytes. The first range that is large enough is taken, so those at the end are
    /// taken least.
    fn empty(&mut self, mut bytes: u64) -> Vec<Range> {
        let mut emptied = vec![];
        while bytes > 0 {
            let (start, length) = self.warm.pop_last().expect("what is kept is free");
            let left = length.saturating_sub(bytes);
            if left > 0 {
                self.warm.insert(start, left);
            }
            let (start, length) = (start + left, length - left);
            bytes -= length;
            self.kept -= length;
            insert(&mut self.cold, (start, length));
            emptied.push((start, length));
        }
        emptied
    }

    /// When the period ends. `None` while nothing is kept.
    pub(super) fn period_end(&self) -> Option<Instant> {
        self.period_end.filter(|_| self.kept > 0)
    }

    /// The bytes that are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> u64 {
        self.warm.values().chain(self.cold.values()).sum()
    }

    fn whole_pages(&self, length: u64) -> Option<u64> {
        length.max(1).checked_next_multiple_of(self.page)
    }
}

/// Takes the front of the first free range that is large enough.
fn take_first(free: &mut BTreeMap<u64, u64>, length: u64) -> Option<u64> {
    let (&start, &there) = free.iter().find(|(_, there)| **there >= length)?;
    free.remove(&start);
    if there > length {
        free.insert(start + length, there - length);
    }
    Some(start)
}

/// Adds a free range, which becomes one with its neighbours. Returns that one.
fn insert(free: &mut BTreeMap<u64, u64>, (mut start, mut length): Range) -> Range {
    if let Some(after) = free.remove(&(start + length)) {
        length += after;
    }
    if let Some((&before, &there)) = free.range(..start).next_back()
        && before + there == start
    {
        (start, length) = (before, there + length);
    }
    free.insert(start, length);
    (start, length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 10;

    #[test]
    fn a_range_that_was_given_back_is_taken_again() {
        let mut ranges = Ranges::new(1_000, PAGE, 100);
        assert_eq!(
            (ranges.take(25), ranges.take(10), ranges.take(1)),
            (Some(0), Some(30), Some(40))
        );
        assert_eq!(ranges.give(0, 25), []);
        assert_eq!(ranges.take(40), Some(50), "the free one is too short");
        assert_eq!((ranges.take(9), ranges.take(20)), (Some(0), Some(10)));
    }

    #[test]
    fn a_memory_that_is_taken_or_too_small_has_no_range() {
        let mut ranges = Ranges::new(95, PAGE, 100);
        assert_eq!((ranges.take(91), ranges.take(u64::MAX)), (None, None));
        assert_eq!((ranges.take(90), ranges.take(1)), (Some(0), None));
        ranges.give(0, 90);
        assert_eq!(ranges.take(90), Some(0));
    }

    #[test]
    fn beyond_the_bound_other_ranges_than_the_last_lose_their_pages() {
        let mut ranges = Ranges::new(1_000, PAGE, 50);
        let starts = [30, 30, 30].map(|length| ranges.take(length).unwrap());
        assert_eq!(starts, [0, 30, 60]);
        assert_eq!(ranges.give(0, 30), []);
        assert_eq!(ranges.give(60, 30), [(0, 30)]);
        assert_eq!(ranges.take(30), Some(60), "its pages are there");
        ranges.give(60, 30);
        assert_eq!(ranges.give(30, 30), [(30, 60)], "neighbours are one range");
    }

    #[test]
    fn pages_that_nothing_needs_for_a_period_are_lost_and_others_stay() {
        let mut ranges = Ranges::new(1_000, PAGE, 500);
        let start = Instant::now();
        assert_eq!((ranges.age(start), ranges.period_end()), (vec![], None), "nothing is kept");
        let starts = [30, 30, 30].map(|length| ranges.take(length).unwrap());
        starts.into_iter().for_each(|start| assert_eq!(ranges.give(start, 30), []));
        assert_eq!(ranges.age(start), []);
        let [first, second, third] = [1, 2, 3].map(|periods| start + periods * KEPT_FOR);
        assert_eq!(ranges.period_end(), Some(first));
        assert_eq!(ranges.take(40), Some(0), "one is in use for a while");
        assert_eq!(ranges.give(0, 40), []);
        assert_eq!(ranges.age(first - Duration::from_millis(1)), []);
        assert_eq!(ranges.age(first), [(40, 50)], "what was never in use");
        assert_eq!(ranges.period_end(), Some(second));
        assert_eq!(ranges.age(second), [(0, 40)]);
        assert_eq!((ranges.period_end(), ranges.age(third)), (None, vec![]));
        assert_eq!(ranges.take(1_000), Some(0), "all are free, and are one range");
    }

    proptest! {
        #[test]
        fn ranges_do_not_overlap_and_none_is_lost(
            steps in proptest::collection::vec((any::<bool>(), 1_u64..70, any::<prop::sample::Index>()), 1..80),
        ) {
            let mut ranges = Ranges::new(600, PAGE, 100);
            let mut taken = BTreeMap::<u64, u64>::new();
            let mut now = Instant::now();
            for (is_take, length, which) in steps {
                now += KEPT_FOR / 3;
                ranges.age(now);
                if is_take {
                    if let Some(start) = ranges.take(length) {
                        let end = start + length.next_multiple_of(PAGE);
                        prop_assert!(end <= 600);
                        for (&other, &there) in &taken {
                            let other_end = other + there.next_multiple_of(PAGE);
                            prop_assert!(end <= other || other_end <= start);
                        }
                        taken.insert(start, length);
                    }
                } else if !taken.is_empty() {
                    let start = *which.get(&taken.keys().copied().collect::<Vec<_>>());
                    ranges.give(start, taken.remove(&start).unwrap());
                }
                let warm = ranges.warm.values().sum::<u64>();
                prop_assert_eq!(ranges.kept, warm);
                prop_assert!(warm <= 100 && ranges.idle <= warm);
            }
            for (start, length) in taken {
                ranges.give(start, length);
            }
            prop_assert_eq!(ranges.free(), 600);
        }
    }
}
