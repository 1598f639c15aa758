//! How many calls a child has at a time.

use std::collections::VecDeque;
use std::time::Duration;

/// About the time of a message to a child and back. While an item takes less, the child mostly waits for the next.
const ROUND_TRIP: Duration = Duration::from_micros(50);

/// A batch is sent ahead while the last ones took less than this on average, so no item waits longer than that behind another
/// batch.
const QUICK_BATCH: Duration = Duration::from_millis(20);

/// How many of the last batches count.
const LAST_BATCHES: usize = 8;

/// The number of calls that a child has at most, which adapts to how long they take.
#[derive(Debug, Clone)]
pub(super) enum Ahead {
    /// Calls of one item.
    Items { most: usize, now: usize },
    /// Calls of a batch, with the times of the last ones. None is sent ahead before there are `least` of them.
    Batches { most: usize, last: VecDeque<Duration>, least: usize },
}

impl Ahead {
    /// `most`: the number of items that is not exceeded.
    pub(super) fn of_items(most: usize) -> Self {
        Ahead::Items { most, now: 1 }
    }

    /// At most two batches: one in the hook, and one that is prepared meanwhile.
    pub(super) fn of_batches(most: usize) -> Self {
        Ahead::Batches { most: most.min(2), last: VecDeque::with_capacity(LAST_BATCHES), least: 1 }
    }

    /// The number of calls that the child may have now, with the one in its hook.
    pub(super) fn number(&self) -> usize {
        match self {
            Ahead::Items { now, .. } => *now,
            Ahead::Batches { last, least, .. } if last.len() < *least => 1,
            Ahead::Batches { most, last, .. } => {
                let mean = last.iter().sum::<Duration>().as_secs_f64() / last.len() as f64;
                if mean < QUICK_BATCH.as_secs_f64() { *most } else { 1 }
            }
        }
    }

    /// Notes how long the child was busy with a call.
    pub(super) fn note(&mut self, took: Duration) {
        match self {
            Ahead::Items { most, now } => {
                if took < ROUND_TRIP {
                    *now = (2 * *now).min(*most);
                } else if took > 2 * ROUND_TRIP {
                    *now = (*now / 2).max(1);
                }
            }
            Ahead::Batches { last, .. } => {
                if last.len() == LAST_BATCHES {
                    last.pop_front();
                }
                last.push_back(took);
            }
        }
    }

    /// Sends no batch ahead until a number of them had their turn alone: the process has died, or there was no memory for a
    /// batch. The batch behind the one in the hook may be to blame, if its inputs cannot be decoded, or the one before, whose
    /// outputs were not sent.
    pub(super) fn hold_back(&mut self) {
        if let Ahead::Batches { last, least, .. } = self {
            last.clear();
            *least = LAST_BATCHES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_items_are_sent_ahead_and_long_ones_are_not() {
        let mut ahead = Ahead::of_items(5);
        assert_eq!(ahead.number(), 1);
        (0..2).for_each(|_| ahead.note(Duration::from_micros(2)));
        assert_eq!(ahead.number(), 4);
        (0..9).for_each(|_| ahead.note(Duration::from_micros(2)));
        assert_eq!(ahead.number(), 5, "as many as are allowed");
        ahead.note(Duration::from_micros(70));
        assert_eq!(ahead.number(), 5);
        (0..9).for_each(|_| ahead.note(Duration::from_millis(1)));
        assert_eq!(ahead.number(), 1);
    }

    #[test]
    fn one_quick_batch_is_sent_ahead_and_a_slow_one_stops_that() {
        let mut ahead = Ahead::of_batches(64);
        assert_eq!(ahead.number(), 1, "nothing is known");
        (0..8).for_each(|_| ahead.note(Duration::from_millis(2)));
        assert_eq!(ahead.number(), 2);
        ahead.note(Duration::from_millis(100));
        assert_eq!(ahead.number(), 2, "14 ms on average");
        ahead.note(Duration::from_millis(100));
        assert_eq!(ahead.number(), 1);
        (0..7).for_each(|_| ahead.note(Duration::from_millis(2)));
        assert_eq!(ahead.number(), 2, "one of them counts no more");
        ahead.hold_back();
        (0..7).for_each(|_| ahead.note(Duration::from_millis(2)));
        assert_eq!(ahead.number(), 1, "one of them may have been to blame");
        ahead.note(Duration::from_millis(2));
        assert_eq!(ahead.number(), 2);
        let mut only = Ahead::of_batches(1);
        only.note(Duration::ZERO);
        assert_eq!(only.number(), 1, "the user wants none ahead");
    }
}
