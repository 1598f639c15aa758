//! The queue between the feeder and the producers.

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::collections::VecDeque;

use crate::concurrency::queue::{Receiver, Sender};
use crate::run::outbox::Outbox;

/// The maximum number of items that a producer takes at once. 64 make the cost of taking negligible, and an
/// inbox of that capacity never has to grow.
pub(super) const LARGEST_TAKE: usize = 64;
/// Larger items, in bytes, are taken one by one. An inbox has 64 slots and in time touches them all, so it
/// would take more than 64 KiB of cache.
pub(super) const LARGEST_IN_INBOX: usize = 1_024;
#[derive(Debug)]
pub(super) struct Intake<I> {
    pub(super) items: Receiver<I>,
    /// The index of the next item, unless that index is a gap.
    pub(super) next: u64,
    pub(super) gaps: Gaps,
    pub(super) shares: Shares,
}

/// Indices of items that failed before they were given out.
#[derive(Debug)]
pub(super) struct Gaps {
    pub(super) arriving: Receiver<Gap>,
    /// The number of gaps that have arrived.
    pub(super) seen: u64,
    /// The gaps at or after `next`.
    pub(super) ahead: VecDeque<Gap>,
}

/// Consecutive indices.
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
    pub(super) gaps: Sender<Gap>,
}

impl<I> Intake<I> {
    /// How many of the next `most` items have consecutive indices from `next` on; at least one. `next` is
    /// first moved past gaps. `made` is the number of gaps that the feeder has left so far.
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

/// The maximum number of items that a producer takes at once.
pub(super) fn largest_take<I>() -> usize {
    if size_of::<I>() > LARGEST_IN_INBOX { 1 } else { LARGEST_TAKE }
}

/// Divides the items in the intake into equal shares, one per producer. Once all are taken, it divides what
/// has arrived since.
///
/// Rejected: a share of the remaining items at each take. Shares would shrink geometrically: two producers
/// took 64 items in seven pieces, each under the lock, where two pieces do. A share is a size and is not
/// reserved for a producer: a fast one takes several.
#[derive(Debug)]
pub(crate) struct Shares {
    producers: usize,
    /// The maximum size of a share.
    most: usize,
    /// The number of items in shares not yet taken.
    left: usize,
    /// The size of a share.
    share: usize,
}

impl Shares {
    /// For `producers` producers, each of which takes at most `most` items at once.
    pub(crate) fn new(producers: usize, most: usize) -> Self {
        Shares { producers, most, left: 0, share: 0 }
    }

    /// The number of items that the next producer may take, with `here` items available.
    #[inline]
    pub(crate) fn offer(&mut self, here: usize) -> usize {
        if self.left == 0 {
            self.share = (here / self.producers).clamp(1, self.most);
            // Without the remainder: in a wide window it would be large, and the last producer would get all
            // of it.
            self.left = here.min(self.share * self.producers);
        }
        self.share.min(self.left).min(here)
    }

    /// Takes this number of the [offered](Shares::offer) items.
    #[inline]
    pub(crate) fn take(&mut self, items: usize) {
        self.left -= items;
    }
}
