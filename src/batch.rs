//! How many items a producer takes at once: decisions without threads or clocks.

mod ceiling;
mod limits;

use std::time::Duration;

pub(crate) use self::ceiling::Ceiling;
pub(crate) use self::limits::{Limits, Load, Size};

/// How batches are formed for [`Runner::producer_work_batch`](crate::Runner::producer_work_batch).
///
/// | rule | a free producer takes |
/// |---|---|
/// | `Batch::of(32)` | 32 items, and waits for them; fewer only where no more can come |
/// | `Batch::up_to(32)` | what is there, at most 32, at once |
/// | either, `.within(time)` | 32 items, or what is there when the first of them has waited that long |
///
/// No more can come when the input has ended, when it was told to end, and while the window has no room
/// for another batch: then whatever waits counts as full. There is never an empty batch.
///
/// ```
/// use std::time::Duration;
/// use gangline::{Batch, OrderedRunner};
///
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
/// # fn main() -> gangline::Result<()> {
/// // `Lengths` is a type that implements `producer_work_batch`.
/// let batch = Batch::up_to(32).within(Duration::from_millis(5));
/// let mut runner = OrderedRunner::builder(Lengths).devices(2).batch(batch).build()?;
/// assert_eq!(runner.run(["mush", "gee", "haw"].map(String::from))?, [4, 3, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    most: usize,
    patience: Patience,
}

/// How long an incomplete batch waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    For(Duration),
    Endless,
}

/// In which order items make batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// That of the input.
    None,
    /// Those of like sizes go together.
    Like,
}

/// How the producers of a runner form batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batching {
    pub(crate) rule: Batch,
    pub(crate) limits: Limits,
    pub(crate) grouping: Grouping,
}

/// What a free producer does about the items that wait, of which there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It takes those that make the batch.
    Take,
    /// It waits until something changes.
    Wait,
    /// It waits until something changes, but no longer than that.
    WaitFor(Duration),
}

/// Whether there is room for more in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    Full,
    Partial,
}

/// Whether more items can come before one of those that wait is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    MayCome,
    Never,
}

impl Batch {
    /// Exactly `items` in a batch, and fewer only in one that nothing more can come to. It waits for its
    /// input as long as that takes; a source that may pause goes with [`within`](Batch::within).
    ///
    /// 0 is refused when the runner is built.
    pub fn of(items: usize) -> Self {
        Batch { most: items, patience: Patience::Endless }
    }

    /// What is there when a producer is free, and at most `items`.
    ///
    /// 0 is refused when the runner is built.
    pub fn up_to(items: usize) -> Self {
        Batch { most: items, patience: Patience::None }
    }

    /// An incomplete batch waits for more until its first item has been given out for so long.
    pub fn within(self, time: Duration) -> Self {
        Batch { patience: Patience::For(time), ..self }
    }

    /// How many items are in a batch at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// What becomes of a batch that is as full as that, and whose first item has waited for `waited`.
    pub(crate) fn decide(&self, fill: Fill, waited: Duration, more: More) -> Decision {
        if fill == Fill::Full || more == More::Never {
            return Decision::Take;
        }
        match self.patience {
            Patience::None => Decision::Take,
            Patience::Endless => Decision::Wait,
            Patience::For(time) => match time.checked_sub(waited) {
                None | Some(Duration::ZERO) => Decision::Take,
                Some(left) => Decision::WaitFor(left),
            },
        }
    }
}

impl Batching {
    /// By the number of items alone, in the order of the input.
    pub(crate) fn new(rule: Batch) -> Self {
        Batching { rule, limits: Limits::items(rule.most()), grouping: Grouping::None }
    }

    /// No batch costs more.
    pub(crate) fn limit_cost(&mut self, most: u64) {
        self.limits.cost = Some(most);
    }

    /// No batch is larger when its items are padded to the largest. So like sizes go together.
    pub(crate) fn limit_padded(&mut self, most: u64) {
        self.limits.padded = Some(most);
        self.grouping = Grouping::Like;
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fixed_batch_waits_until_it_is_full_or_nothing_more_can_come() {
        let decide = |fill, more| Batch::of(4).decide(fill, 1_000 * MS, more);
        assert_eq!(decide(Fill::Partial, More::MayCome), Decision::Wait);
        assert_eq!(decide(Fill::Partial, More::Never), Decision::Take);
        assert_eq!(decide(Fill::Full, More::MayCome), Decision::Take);
    }

    #[test]
    fn what_is_there_is_taken_at_once() {
        let decision = Batch::up_to(4).decide(Fill::Partial, Duration::ZERO, More::MayCome);
        assert_eq!(decision, Decision::Take);
    }

    #[test]
    fn the_first_item_waits_no_longer_than_was_asked() {
        for batch in [Batch::of(4), Batch::up_to(4)] {
            let decide = |waited| batch.within(5 * MS).decide(Fill::Partial, waited, More::MayCome);
            assert_eq!(decide(2 * MS), Decision::WaitFor(3 * MS));
            assert_eq!(decide(5 * MS), Decision::Take);
            assert_eq!(decide(9 * MS), Decision::Take);
        }
    }
}
