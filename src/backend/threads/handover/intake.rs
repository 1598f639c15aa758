//! Where the feeder leaves items, and producers take them from.

use std::collections::VecDeque;

use crate::backend::threads::outbox::Outbox;
use crate::backend::threads::shares::Shares;
use crate::concurrency::queue::{Receiver, Sender};

/// A producer takes at most so many items at once, however fast they are: that many make the cost of
/// taking small, and an inbox with room for them never has to grow.
pub(super) const LARGEST_TAKE: usize = 64;
/// Items larger than this, in bytes, are taken one by one: an inbox has room for 64 of them, and
/// touches it all in time.
pub(super) const LARGEST_IN_INBOX: usize = 1_024;
#[derive(Debug)]
pub(super) struct Intake<I> {
    pub(super) items: Receiver<I>,
    /// The index of the next item that is taken, unless that is a gap.
    pub(super) next: u64,
    pub(super) gaps: Gaps,
    pub(super) shares: Shares,
}

/// Indices whose items failed before they were given out.
#[derive(Debug)]
pub(super) struct Gaps {
    pub(super) arriving: Receiver<Gap>,
    /// How many have arrived.
    pub(super) seen: u64,
    /// Those from `next` on.
    pub(super) ahead: VecDeque<Gap>,
}

/// Indices that follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) count: u64,
}

/// The feeder's own ends.
#[derive(Debug)]
pub(super) struct FeederEnds<I, T> {
    /// To the producers.
    pub(super) inlet: Sender<I>,
    /// To the collector.
    pub(super) aside: Outbox<T>,
    pub(super) weights: Option<Sender<u64>>,
    pub(super) gaps: Sender<Gap>,
}

impl<I> Intake<I> {
    /// How many of the next `most` items, one at least, have indices that follow each other, from `next` on,
    /// which is moved past gaps. `made`: how many of those there are by now.
    #[inline]
    pub(super) fn row(&mut self, most: usize, made: u64) -> usize {
        if made == self.gaps.seen && self.gaps.ahead.is_empty() {
            return most;
        }
        self.row_among_gaps(most)
    }

    #[cold]
    pub(super) fn row_among_gaps(&mut self, most: usize) -> usize {
        let Gaps { arriving, seen, ahead } = &mut self.gaps;
        ahead.extend(std::iter::from_fn(|| arriving.pop()).inspect(|_| *seen += 1));
        while let Some(gap) = ahead.front().filter(|gap| gap.first == self.next) {
            self.next += gap.count;
            ahead.pop_front();
        }
        ahead.front().map_or(most, |gap| most.min((gap.first - self.next) as usize))
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.items.len() == 0
    }
}

/// How many items a producer takes at once, at most.
pub(super) fn largest_take<I>() -> usize {
    if size_of::<I>() > LARGEST_IN_INBOX { 1 } else { LARGEST_TAKE }
}
