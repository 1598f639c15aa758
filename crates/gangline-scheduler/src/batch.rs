//! How producers form batches; no threads or clocks here.

mod auto;
mod ceiling;
mod limits;
mod timings;

use std::fmt;
use std::time::Duration;

use crate::HumanDuration;

pub(crate) use self::auto::{Bounds, FirstGrowth};
pub use self::auto::{ChosenSize, DeviceBatches, SizeBound};
pub use self::ceiling::Ceiling;
pub use self::limits::Size;
pub(crate) use self::limits::{Limits, Load};
pub use self::timings::BatchTime;

/// The largest number of items in a batch of automatic size.
const MOST_CHOSEN: usize = 4_096;
/// Such a batch is assumed to have this number of items where that has to be known before it is chosen.
const ASSUMED: usize = 64;

/// When a free producer takes a batch, and of how many items.
///
/// | rule | what a free producer takes |
/// |---|---|
/// | `Batch::auto()` | the items available now, at most the number that is best for the device, which the run learns |
/// | `Batch::auto().latency(time)` | the same, at most as many as it finishes in half of `time` |
/// | `Batch::of(32)` | exactly 32 items, waiting for them; fewer only if no more can come |
/// | `Batch::up_to(32)` | the items available now, at most 32 |
/// | any, `.within(time)` | as many as without it, or those available once the first has waited for `time` |
///
/// No more items can come when the input has ended or the run drains. The same holds while the window has no
/// room for another batch. Then the items that wait count as full. A batch is never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    most: usize,
    sizing: Sizing,
    patience: Patience,
}

/// What decides the largest number of items in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sizing {
    Given,
    /// The times of the batches so far.
    Rate,
    /// The same, so that a batch takes no longer than this.
    Within(Duration),
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.sizing, self.patience) {
            (Sizing::Given, Patience::Endless) => write!(f, "of {}", self.most)?,
            (Sizing::Given, Patience::None) => write!(f, "up to {}", self.most)?,
            (Sizing::Given, Patience::For(_)) => write!(f, "{}", self.most)?,
            (Sizing::Rate, _) => f.write_str("auto")?,
            (Sizing::Within(time), _) => write!(f, "auto, latency {:#}", HumanDuration(time * 2))?,
        }
        if self.is_chosen() && self.most < MOST_CHOSEN {
            write!(f, ", at most {}", self.most)?;
        }
        match self.patience {
            Patience::For(time) => write!(f, " within {:#}", HumanDuration(time)),
            Patience::None | Patience::Endless => Ok(()),
        }
    }
}

/// How long an incomplete batch waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    For(Duration),
    Endless,
}

/// How items are grouped into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// In the order of the input.
    None,
    /// Items of like sizes go together.
    Like,
}

/// How the producers of a runner form batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// When a batch is taken.
    pub rule: Batch,
    pub(crate) limits: Limits,
    pub(crate) grouping: Grouping,
}

/// What a free producer does about the items that wait; there is at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchDecision {
    /// It takes the items of the batch.
    Take,
    /// It waits until something changes.
    Wait,
    /// It waits until something changes, at most for this time.
    WaitFor(Duration),
}

/// Whether a batch has room for more items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    Full,
    Partial,
}

/// Whether more items can come before one of the waiting items is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    MayCome,
    Never,
}

impl Batch {
    /// The items available when a producer is free, at most as many as are best for its device.
    ///
    /// A batch takes a fixed time, and a time for each of its items. The run measures both on each device, with sizes
    /// that double from 1, and chooses the size at which the fixed time is 5 % of a batch: larger ones would gain
    /// little. It never chooses a size that was slower for each item than a smaller one, or that the device had no
    /// memory for. It keeps on measuring, so it follows changes. The next run of a pool begins with what the last one
    /// has learned. The report shows the sizes.
    ///
    /// The size is at most 4,096, or less with [`at_most`](Batch::at_most). With a
    /// [window](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window) it is at most half of the
    /// items that the window has for each producer; without one, the window grows with the size. If the cost or the
    /// padded size of a batch is bounded, that is chosen in place of the number of items, below the bound. At the end
    /// of the input, the last items are divided among the producers.
    ///
    /// ```
    /// # mod gangline {
    /// #     pub use gangline_scheduler::batch::Batch;
    /// # }
    /// use std::time::Duration;
    ///
    /// use gangline::Batch;
    ///
    /// // `builder.batch(rule)` gives one of these to a runner.
    /// let rule = Batch::auto();
    /// let small = Batch::auto().at_most(64).within(Duration::from_millis(5));
    /// let prompt = Batch::auto().latency(Duration::from_millis(20));
    /// assert_eq!(small.to_string(), "auto, at most 64 within 5 ms");
    /// # assert_eq!([rule, prompt].map(|rule| rule.to_string()), ["auto", "auto, latency 20 ms"]);
    /// ```
    pub fn auto() -> Self {
        Batch { most: MOST_CHOSEN, sizing: Sizing::Rate, patience: Patience::None }
    }

    /// Limits the number of items. [`auto`](Batch::auto) then chooses at most this many.
    pub fn at_most(self, items: usize) -> Self {
        Batch { most: self.most.min(items), ..self }
    }

    /// Chooses the size as [`auto`](Batch::auto) does, but at most what a device finishes in half of `time`: an item
    /// waits for the batch before its own. If items have waited for longer, batches become larger, so that items do not
    /// pile up.
    pub fn latency(self, time: Duration) -> Self {
        // One that waits for its like without limit would be overtaken for ever.
        let patience = match self.patience {
            Patience::Endless => Patience::None,
            patience => patience,
        };
        Batch { sizing: Sizing::Within(time / 2), patience, ..self }
    }

    /// Exactly `items` items in a batch; fewer only if no more can come. It waits for them without limit, so
    /// a source that may pause should use [`within`](Batch::within).
    ///
    /// 0 is refused when the runner is built.
    pub fn of(items: usize) -> Self {
        Batch { most: items, sizing: Sizing::Given, patience: Patience::Endless }
    }

    /// The items available when a producer is free, at most `items`. If a
    /// [window](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window) is given, at most each
    /// producer's share of it.
    ///
    /// 0 is refused when the runner is built.
    pub fn up_to(items: usize) -> Self {
        Batch { most: items, sizing: Sizing::Given, patience: Patience::None }
    }

    /// Limits the wait of an incomplete batch to `time`, counted from its first item.
    pub fn within(self, time: Duration) -> Self {
        Batch { patience: Patience::For(time), ..self }
    }

    /// The maximum number of items in a batch.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether the number of items is chosen while the run goes on.
    pub fn is_chosen(&self) -> bool {
        self.sizing != Sizing::Given
    }

    /// The latency below which the number of items is chosen, if one was given.
    pub fn chosen_latency(&self) -> Option<Duration> {
        match self.sizing {
            Sizing::Within(time) => Some(time * 2),
            Sizing::Given | Sizing::Rate => None,
        }
    }

    /// The number of items that a batch is assumed to have, where a number is needed before it is chosen.
    pub fn assumed(&self) -> usize {
        if self.is_chosen() { self.most.min(ASSUMED) } else { self.most }
    }

    /// How long an incomplete batch waits for more; `None` without limit.
    pub fn wait(&self) -> Option<Duration> {
        match self.patience {
            Patience::None => Some(Duration::ZERO),
            Patience::For(time) => Some(time),
            Patience::Endless => None,
        }
    }

    /// Whether an incomplete batch waits for a limited time.
    pub(crate) fn is_timed(&self) -> bool {
        matches!(self.patience, Patience::For(_))
    }

    /// Decides about the batch of the first item, which has waited for `waited`.
    pub(crate) fn decide(&self, fill: Fill, waited: Duration, more: More) -> BatchDecision {
        if fill == Fill::Full || more == More::Never {
            return BatchDecision::Take;
        }
        match self.patience {
            Patience::None => BatchDecision::Take,
            Patience::Endless => BatchDecision::Wait,
            Patience::For(time) => match time.checked_sub(waited) {
                None | Some(Duration::ZERO) => BatchDecision::Take,
                Some(left) => BatchDecision::WaitFor(left),
            },
        }
    }
}

impl Batching {
    /// Limits batches by the number of items alone, in the order of the input.
    pub fn new(rule: Batch) -> Self {
        Batching { rule, limits: Limits::items(rule.most()), grouping: Grouping::None }
    }

    /// Limits batches that do not wait to each producer's share of the window. Otherwise one producer would take nearly
    /// all of a narrow window, and the others what is left. A size that is chosen is limited to half of the share: the other half
    /// is for the next batch.
    pub fn limit_to_window(&mut self, window: usize, producers: usize) {
        let producers = producers.max(1);
        let most = match self.rule.wait() {
            _ if self.rule.is_chosen() => window / producers.saturating_mul(2),
            Some(Duration::ZERO) => window / producers,
            _ => return,
        };
        self.limits.items = self.limits.items.min(most.max(1) as u64);
    }

    /// The size that was chosen for a device, if sizes are chosen.
    pub fn chosen(&self, device: &DeviceBatches) -> Option<ChosenSize> {
        self.bounds(FirstGrowth::Slow).map(|bounds| device.size(bounds))
    }

    /// The limits of the size to choose; `None` if it is given.
    pub(crate) fn bounds(&self, start: FirstGrowth) -> Option<Bounds> {
        let within = match self.rule.sizing {
            Sizing::Given => return None,
            Sizing::Rate => None,
            Sizing::Within(time) => Some(time),
        };
        Some(Bounds { most: self.limits.most_extent(), within, start })
    }

    /// Limits the cost of a batch.
    pub fn limit_cost(&mut self, most: u64) {
        self.limits.cost = Some(most);
    }

    /// Limits the padded size of a batch, and groups items of like sizes.
    pub fn limit_padded(&mut self, most: u64) {
        self.limits.padded = Some(most);
        self.grouping = Grouping::Like;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fixed_batch_waits_until_it_is_full_or_nothing_more_can_come() {
        let decide = |fill, more| Batch::of(4).decide(fill, 1_000 * MS, more);
        assert_eq!(decide(Fill::Partial, More::MayCome), BatchDecision::Wait);
        assert_eq!(decide(Fill::Partial, More::Never), BatchDecision::Take);
        assert_eq!(decide(Fill::Full, More::MayCome), BatchDecision::Take);
    }

    #[test]
    fn what_is_there_is_taken_at_once() {
        let decision = Batch::up_to(4).decide(Fill::Partial, Duration::ZERO, More::MayCome);
        assert_eq!(decision, BatchDecision::Take);
    }

    #[test]
    fn the_first_item_waits_no_longer_than_was_asked() {
        for batch in [Batch::of(4), Batch::up_to(4)] {
            let decide = |waited| batch.within(5 * MS).decide(Fill::Partial, waited, More::MayCome);
            assert_eq!(decide(2 * MS), BatchDecision::WaitFor(3 * MS));
            assert_eq!(decide(5 * MS), BatchDecision::Take);
            assert_eq!(decide(9 * MS), BatchDecision::Take);
        }
    }

    #[test]
    fn a_rule_is_written_as_it_is_said() {
        let written = [Batch::of(4), Batch::up_to(8), Batch::of(2).within(5 * MS)];
        assert_eq!(written.map(|batch| batch.to_string()), ["of 4", "up to 8", "2 within 5 ms"]);
        assert_eq!(written.map(|batch| batch.is_timed()), [false, false, true]);
    }

    #[test]
    fn an_incomplete_batch_waits_without_limit_not_at_all_or_for_a_time() {
        let rules = [Batch::of(4), Batch::up_to(4), Batch::of(4).within(5 * MS)];
        let waits = rules.map(|batch| batch.wait());
        assert_eq!(waits, [None, Some(Duration::ZERO), Some(5 * MS)]);
    }

    #[test]
    fn batches_that_do_not_wait_leave_each_producer_its_share_of_the_window() {
        let most = |rule, window, producers| {
            let mut batching = Batching::new(rule);
            batching.limit_to_window(window, producers);
            batching.limits.items
        };
        assert_eq!(most(Batch::up_to(32), 33, 2), 16, "not 32 and 1 in turns");
        assert_eq!(
            most(Batch::of(32).within(Duration::ZERO), 33, 2),
            16,
            "it does not wait either"
        );
        assert_eq!(most(Batch::up_to(32), 64, 2), 32);
        assert_eq!(most(Batch::up_to(32), 3, 4), 1);
        assert_eq!(most(Batch::auto(), 64, 2), 16);
        assert_eq!(most(Batch::of(32), 33, 2), 32, "it waits until it is full");
        assert_eq!(most(Batch::up_to(32).within(5 * MS), 33, 2), 32);
    }

    #[test]
    fn limits_are_those_of_the_user() {
        let mut batching = Batching::new(Batch::of(4));
        assert_eq!(batching.grouping, Grouping::None);
        batching.limit_cost(7);
        batching.limit_padded(9);
        let Limits { items, cost, padded } = batching.limits;
        assert_eq!((items, cost, padded), (4, Some(7), Some(9)));
        assert_eq!(batching.grouping, Grouping::Like, "padding is least among like sizes");
    }
}
