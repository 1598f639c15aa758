//! What one producer is working on, as item events report it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::producer_report::ProducerReport;

/// An attempt at an item. Times are in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct LaneWork {
    /// The item's index.
    pub item: u64,
    /// Its key, if there are keys.
    pub key: Option<Arc<str>>,
    /// The attempt; the first is 1.
    pub attempt: u32,
    /// The beginning of the attempt, from that of the run.
    pub start: u64,
    /// The size of the item's batch, set once the item has ended.
    pub together: u64,
    /// Whether it was the first of its batch to end.
    pub is_first: bool,
    /// The time since `start` that was no work.
    pub aside: u64,
}

impl LaneWork {
    /// The time of work up to `at`, in nanoseconds.
    pub fn took(&self, at: u64) -> u64 {
        at.saturating_sub(self.start).saturating_sub(self.aside)
    }
}

/// What events have reported of one producer.
#[derive(Debug, Default)]
pub(super) struct ReportLane {
    /// Its row, without its times.
    pub(super) row: ProducerReport,
    /// Whether it has had a state in this run.
    pub(super) has_been_ready: bool,
    /// The time of the last replacement, and whether what was in hand had been measured; until that has ended.
    replaced: Option<(u64, bool)>,
    /// The time at which the run gave up on the items in hand, until that has been measured.
    pub(super) cut_off_at: Option<u64>,
    pub(super) in_hand: ItemsInHand,
}

/// One producer's current batch. Its items begin first and end later.
#[derive(Debug, Default)]
pub struct ItemsInHand {
    items: VecDeque<LaneWork>,
    /// Whether the items are in hooks of a cluster's worker, so that each may begin and end by itself.
    is_of_worker: bool,
    batch: u64,
    is_ending: bool,
    /// The time up to which they are counted as busy.
    busy_until: u64,
}

/// Items that begin further apart than 1 ms are not of one batch.
const SAME_BATCH: u64 = 1_000_000;

/// The bound of the search. In a batch larger than this, single items are not interesting.
const MOST_IN_HAND: usize = 65_536;

impl ReportLane {
    pub(super) fn new(place: &str) -> Self {
        let row = ProducerReport { place: place.to_owned(), ..ProducerReport::default() };
        ReportLane { row, ..ReportLane::default() }
    }

    /// Records that a worker of a cluster has the seat.
    pub(super) fn set_worker(&mut self, place: &str) {
        place.clone_into(&mut self.row.place);
        self.in_hand.is_of_worker = true;
    }

    /// Ends an item. Returns `None` if the item's beginning was lost.
    pub(super) fn end(&mut self, item: u64) -> Option<LaneWork> {
        self.row.items += 1;
        self.in_hand.end(item)
    }

    /// Takes the items that were cut off, and the time of it: at most once.
    pub(super) fn cut_off(&mut self) -> Option<(Vec<LaneWork>, u64)> {
        let at = self.cut_off_at.take()?;
        Some((self.in_hand.begun_by(at), at))
    }

    /// Begins the time of another producer in this place.
    pub(super) fn replace(&mut self, at: u64) {
        let is_measured = self.row.abandoned && self.cut_off_at.take().is_none();
        (self.row.abandoned, self.row.quarantined) = (false, None);
        self.row.replacements += 1;
        self.replaced = Some((at, is_measured));
    }

    /// Takes what was in hand when another producer began, the time of it, and whether that is measured.
    pub(super) fn end_replaced(&mut self, until: u64) -> Option<(Vec<LaneWork>, u64, bool)> {
        let (at, is_measured) = self.replaced.take_if(|(at, _)| *at <= until)?;
        Some((self.in_hand.take_all(), at, is_measured))
    }
}

impl ItemsInHand {
    /// Those of a cluster's worker.
    pub fn of_worker() -> Self {
        ItemsInHand { is_of_worker: true, ..ItemsInHand::default() }
    }

    /// Adds an item, to the batch that begins with it or before.
    pub fn begin(&mut self, mut work: LaneWork) {
        if self.is_of_worker {
            return self.begin_alone(work);
        }
        let is_old = |first: &LaneWork| work.start.saturating_sub(first.start) > SAME_BATCH;
        // The ends of these items were lost, and their times are unknown.
        if self.is_ending || self.items.front().is_some_and(is_old) {
            self.items.clear();
        }
        if self.items.is_empty() {
            (self.batch, self.is_ending) = (0, false);
        }
        self.batch += 1;
        work.start = self.items.front().map_or(work.start, |first| first.start);
        if self.items.len() < MOST_IN_HAND {
            self.items.push_back(work);
        }
    }

    fn begin_alone(&mut self, work: LaneWork) {
        self.batch = 1;
        // The ends of the earliest were lost.
        if self.items.len() == MOST_IN_HAND {
            self.items.pop_front();
        }
        self.items.push_back(work);
    }

    /// Takes an item that has ended. Returns `None` if its beginning was lost.
    pub fn end(&mut self, item: u64) -> Option<LaneWork> {
        let work = self.take(item)?;
        let is_first = !std::mem::replace(&mut self.is_ending, !self.is_of_worker);
        Some(LaneWork { together: self.batch, is_first, ..work })
    }

    /// The number of items that have not ended.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// Forgets the items: their producer is lost.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// When the first of the items began.
    pub(super) fn busy_from(&self) -> Option<u64> {
        self.items.front().map(|first| first.start)
    }

    /// The start of the time up to `until` that is not yet counted as busy, if it was busy from `from` on.
    pub(super) fn busy_since(&mut self, from: u64, until: u64) -> u64 {
        let since = from.max(self.busy_until);
        self.busy_until = self.busy_until.max(until);
        since
    }

    /// Counts a time up to `until` as no work of the items in hand.
    pub fn set_aside(&mut self, until: u64, took: u64) {
        self.busy_until = self.busy_until.max(until);
        self.items.iter_mut().for_each(|work| work.aside += took);
    }

    /// The items, and the start of the time not yet counted as busy.
    pub(super) fn open(&self) -> Option<(&VecDeque<LaneWork>, u64)> {
        let first = self.items.front().filter(|_| !self.is_ending)?;
        Some((&self.items, first.start.max(self.busy_until)))
    }

    /// Copies of those that had begun at `at`, unless their ends were lost.
    fn begun_by(&self, at: u64) -> Vec<LaneWork> {
        let items = self.open().into_iter().flat_map(|(items, _)| items);
        let begun = items.filter(|work| work.start <= at);
        begun.map(|work| LaneWork { together: self.batch, ..work.clone() }).collect()
    }

    /// Takes all, apart from those whose ends were lost.
    fn take_all(&mut self) -> Vec<LaneWork> {
        let (together, is_ending) = (self.batch, std::mem::take(&mut self.is_ending));
        let items = self.items.drain(..).filter(|_| !is_ending);
        items.map(|work| LaneWork { together, ..work }).collect()
    }

    pub(super) fn key(&self, item: u64) -> Option<&Arc<str>> {
        self.items.iter().find(|work| work.item == item)?.key.as_ref()
    }

    /// Takes an item: batches end about in the order in which they begin.
    fn take(&mut self, item: u64) -> Option<LaneWork> {
        if self.items.front()?.item == item {
            return self.items.pop_front();
        }
        let place = self.items.iter().position(|work| work.item == item)?;
        self.items.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(item: u64, start: u64) -> LaneWork {
        LaneWork { item, start, attempt: 1, ..LaneWork::default() }
    }

    fn numbers(in_hand: &ItemsInHand) -> Vec<u64> {
        in_hand.items.iter().map(|work| work.item).collect()
    }

    #[test]
    fn items_of_a_batch_know_its_size() {
        let mut in_hand = ItemsInHand::default();
        [3, 4, 5].into_iter().for_each(|item| in_hand.begin(work(item, 100)));
        let ended = [4, 3, 5].map(|item| in_hand.end(item).unwrap().together);
        assert_eq!(ended, [3, 3, 3]);
        in_hand.begin(work(6, 200));
        assert_eq!(in_hand.end(6).unwrap().together, 1);
    }

    #[test]
    fn a_new_batch_replaces_items_whose_ends_were_lost() {
        let mut in_hand = ItemsInHand::default();
        [0, 1].into_iter().for_each(|item| in_hand.begin(work(item, 0)));
        assert!(in_hand.end(0).is_some());
        in_hand.begin(work(2, 10));
        assert_eq!(numbers(&in_hand), [2]);
        in_hand.begin(work(3, 10 + SAME_BATCH));
        assert_eq!(numbers(&in_hand), [2, 3]);
        assert_eq!(in_hand.items[1].start, 10, "a batch begins as one");
        in_hand.begin(work(4, 11 + SAME_BATCH));
        assert_eq!(numbers(&in_hand), [4], "the ends of the earlier items were lost");
        assert!(in_hand.end(9).is_none(), "its beginning was lost");
    }

    #[test]
    fn busy_time_is_counted_once() {
        let mut in_hand = ItemsInHand::default();
        assert_eq!(in_hand.busy_since(100, 200), 100);
        assert_eq!(in_hand.busy_since(100, 200), 200);
        assert_eq!(in_hand.busy_since(150, 250), 200);
        assert_eq!(in_hand.busy_since(300, 400), 300);
    }

    #[test]
    fn an_item_is_open_from_its_beginning() {
        let mut in_hand = ItemsInHand::default();
        assert!(in_hand.open().is_none());
        [0, 1].into_iter().for_each(|item| in_hand.begin(work(item, 70)));
        let (works, since) = in_hand.open().unwrap();
        assert_eq!((works.len(), since), (2, 70));
    }

    #[test]
    fn beginnings_without_ends_are_bounded() {
        let mut in_hand = ItemsInHand::default();
        (0..MOST_IN_HAND as u64 + 10).for_each(|item| in_hand.begin(work(item, 0)));
        assert_eq!(in_hand.items.len(), MOST_IN_HAND);
    }
}
