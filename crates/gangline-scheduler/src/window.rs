//! The number of items that may be in flight; no threads or clocks here.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::Scheduler;
use crate::batch::{Batching, Grouping};

/// The default window never grows beyond this many items: 8,192 items of 8 MiB would be 64 GiB.
const MOST: usize = 8_192;
/// The work per producer that the default window grows to, in time. It hides the latency of a wake-up.
const AHEAD: Duration = Duration::from_millis(2);
/// The window shrinks to this many times the size that it would grow to. Otherwise alternating fast and slow
/// items would make it shrink and grow in turns.
const SLACK: usize = 4;
/// The time for which a window must be full before its size is judged.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// The factor of growth. With 2, a run of 10,000 fast items took a fifth longer.
const GROWTH: usize = 4;
/// The default number of batches per producer: one being worked on, one next, and one with its results in transit.
const PER_PRODUCER: usize = 3;
/// The default number of batches per producer if items of like sizes go together: with more items to choose from,
/// less is padded. Simulated on two devices with batches of 32: 16 took a fifth less time than 3.
const PER_PRODUCER_FOR_CHOICE: usize = 16;

/// The items, or batches, per producer that the default window grows to behind a slow head of the line. Other producers
/// then stay busy behind a head that takes 64 times as long as their items.
const BEHIND_HEAD: usize = 64;
/// The items, or batches, per producer that it grows to before it asks for the memory of the results.
const BEHIND_HEAD_UNSEEN: usize = 16;
/// The multiple of its first size that it grows to before it asks, if sizes of batches are automatic.
const UNSEEN: usize = 16;

/// The size of a run's window, and whether it may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    size: usize,
    /// The initial size, and the limit of growth. Both equal `size` for a window that the user gave.
    least: usize,
    most: usize,
    /// The number of items that the producers work on at once; 0 for a window that the user gave.
    at_work: usize,
    /// The number of batches per producer that it has room for at first.
    per_producer: usize,
    /// The number of consumed items, and the time, when the window was last judged or not full.
    looked: Option<(u64, Instant)>,
    /// The number of permits to keep as they come back, since the window is too large.
    surplus: usize,
}

/// What a run lacked while its consumer had nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Producers ran out of items for lack of permits.
    pub ran_dry: bool,
    /// The feeder had no permit.
    pub was_full: bool,
}

impl Window {
    /// Grows the window if the run lacked permits, and returns the number of items added. `held_back` results wait for an
    /// earlier one. `pace` gives the number of items consumed since the last call, and the time; `has_memory` says whether
    /// more results may be held back.
    ///
    /// With nothing held back for order, the window grows up to the pace of the items, and else
    /// less. So a slow consumer does not make it grow. A prediction asks this function too.
    pub fn settle(
        &mut self,
        shortage: Shortage,
        held_back: usize,
        pace: impl FnOnce() -> (u64, Duration),
        has_memory: impl FnOnce() -> bool,
    ) -> usize {
        match held_back {
            0 if shortage.ran_dry && self.may_grow() => {
                let (items, elapsed) = pace();
                self.grow(items, elapsed)
            }
            0 => 0,
            held_back if shortage.was_full => self.grow_behind_head(held_back, has_memory),
            _ => 0,
        }
    }

    /// The window of a run: of `size` items, or one that grows by itself.
    pub fn new(size: Option<usize>, producers: usize, batching: Option<Batching>) -> Self {
        match (size, batching) {
            (Some(size), _) => Window::fixed(size),
            (None, None) => Window::growing(producers, 1),
            (None, Some(Batching { rule, grouping, .. })) => {
                let most = if rule.is_chosen() { 1 } else { rule.most() };
                match grouping {
                    Grouping::None => Window::growing(producers, most),
                    Grouping::Like => Window::growing_for_choice(producers, most),
                }
            }
        }
    }

    /// Exactly `size` items.
    pub fn fixed(size: usize) -> Self {
        Window {
            size,
            least: size,
            most: size,
            at_work: 0,
            per_producer: 0,
            looked: None,
            surplus: 0,
        }
    }

    /// A window for `producers` that take up to `batch` items at once. It grows while items are fast.
    pub(crate) fn growing(producers: usize, batch: usize) -> Self {
        let at_work = batch.saturating_mul(producers);
        Window { at_work, per_producer: PER_PRODUCER, ..Window::fixed(0) }.at_first()
    }

    /// A [growing](Window::growing) window with more batches to choose items of like sizes from.
    pub(crate) fn growing_for_choice(producers: usize, batch: usize) -> Self {
        let per_producer = PER_PRODUCER_FOR_CHOICE;
        Window { per_producer, ..Self::growing(producers, batch) }.at_first()
    }

    /// The window at its first size.
    fn at_first(self) -> Self {
        let size = self.at_work.saturating_mul(self.per_producer).min(MOST);
        let size = size.max(self.at_work.saturating_mul(PER_PRODUCER));
        Window { size, least: size, most: size.max(MOST), ..self }
    }

    /// Follows automatic sizes of batches: a producer now takes up to `batch` items. Returns the number of items by which
    /// the window grows. `has_memory` is asked once the window has more than 16 times its first size.
    pub fn follow(
        &mut self,
        batch: usize,
        producers: usize,
        has_memory: impl FnOnce() -> bool,
    ) -> usize {
        let at_work = batch.saturating_mul(producers);
        if self.at_work == 0 || at_work == self.at_work {
            return 0;
        }
        let next = Window { at_work, ..*self }.at_first();
        let more = next.size.saturating_sub(self.size);
        // Asked once for each size: the answer is read from files.
        self.at_work = at_work;
        if more > 0 && next.size > self.least.saturating_mul(UNSEEN) && !has_memory() {
            return 0;
        }
        (self.size, self.most) = (self.size + more, next.most);
        if more > 0 {
            (self.looked, self.surplus) = (None, 0);
        }
        more
    }

    /// The number of items that may be in flight.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of consumed items after which their permits are returned, at the latest.
    pub fn quarter(&self) -> usize {
        (self.size / 4).max(1)
    }

    /// The number of results at which a waiting consumer is woken, while results come quickly.
    pub fn half(&self) -> usize {
        self.size / 2
    }

    /// Whether the window is below the limit of its growth.
    pub fn may_grow(&self) -> bool {
        self.size < self.most
    }

    /// Grows the window, and returns the number of items added. Called when producers ran out of permits while the
    /// consumer waited.
    ///
    /// It grows fourfold, up to the items that the run finishes in 2 ms, at the pace of `items` in
    /// `elapsed`. Producers that ran out of items make this pace an underestimate, which later growth
    /// corrects.
    pub(crate) fn grow(&mut self, items: u64, elapsed: Duration) -> usize {
        let most = ahead(items, elapsed).min(self.most);
        let target = self.size.saturating_mul(GROWTH).min(most).max(self.size);
        let more = target - self.size;
        (self.size, self.looked, self.surplus) = (target, None, 0);
        more
    }

    /// The number of items to which the window grows behind a slow item at most; 0 for a window that the user gave.
    pub fn most_behind_head(&self) -> usize {
        self.at_work.saturating_mul(BEHIND_HEAD)
    }

    /// Whether the window may grow, if it is full, while `held_back` results wait for the head.
    pub fn is_short_behind_head(&self, held_back: usize) -> bool {
        self.size.saturating_sub(held_back) <= self.at_work && self.size < self.most_behind_head()
    }

    /// Grows a full window behind a slow item, and returns the number of items added. `held_back` is the number of
    /// results that wait for the item; `has_memory` says whether more of them may be kept.
    ///
    /// It grows fourfold once the producers have no items beside those in their hooks. If it grew earlier, the order of
    /// results alone would make it grow.
    pub(crate) fn grow_behind_head(
        &mut self,
        held_back: usize,
        has_memory: impl FnOnce() -> bool,
    ) -> usize {
        if !self.is_short_behind_head(held_back) {
            return 0;
        }
        let unseen = self.at_work.saturating_mul(BEHIND_HEAD_UNSEEN);
        let most = self.most_behind_head();
        let most = if self.size < unseen {
            unseen
        } else if has_memory() {
            most
        } else {
            return 0;
        };
        let more = self.size.saturating_mul(GROWTH).min(most) - self.size;
        (self.size, self.looked, self.surplus) = (self.size + more, None, 0);
        more
    }

    /// Checks whether the window, after growing for fast items, is larger than slow items need. `is_full`:
    /// only the producers hold up the run.
    pub fn look(&mut self, consumed: u64, is_full: bool, now: Instant) {
        let (before, since) = *self.looked.get_or_insert((consumed, now));
        if !is_full {
            self.looked = Some((consumed, now));
        } else if now - since >= LOOKS_EVERY {
            self.looked = Some((consumed, now));
            let enough = ahead(consumed - before, now - since).saturating_mul(SLACK);
            let least = self.least.max(self.at_work.saturating_mul(PER_PRODUCER));
            self.surplus = self.size.saturating_sub(enough.max(least));
        }
    }

    /// Returns how many of the returned permits to keep; the window shrinks by them.
    pub fn keep(&mut self, permits: usize) -> usize {
        let kept = self.surplus.min(permits);
        (self.size, self.surplus) = (self.size - kept, self.surplus - kept);
        kept
    }
}

/// The number of items in the largest batch that a producer may soon take.
pub fn largest_batch(scheduler: &Scheduler) -> usize {
    usize::try_from(scheduler.workload.batches.most_items()).unwrap_or(usize::MAX)
}

/// The number of items that the run finishes in [`AHEAD`].
fn ahead(items: u64, elapsed: Duration) -> usize {
    let pace = items as f64 / elapsed.as_secs_f64().max(1e-9);
    (pace * AHEAD.as_secs_f64()) as usize
}
