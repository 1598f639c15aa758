//! How many items a producer takes at once: decisions without threads or clocks.

use std::time::Duration;

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
/// use gangline::{Batch, OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// let batch = Batch::up_to(32).within(Duration::from_millis(5));
/// let mut runner = OrderedRunner::builder(squares).devices(2).batch(batch).build()?;
/// assert_eq!(runner.run(0..5)?, [0, 1, 4, 9, 16]);
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

/// What a free producer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It takes so many items: at least one, and no more than are here.
    Take(usize),
    /// It waits until something changes.
    Wait,
    /// It waits until something changes, but no longer than that.
    WaitFor(Duration),
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

    /// Whether it matters for how long items have waited.
    pub(crate) fn is_timed(&self) -> bool {
        matches!(self.patience, Patience::For(_))
    }

    /// `here` items wait, the first of them for `waited`.
    pub(crate) fn decide(&self, here: usize, waited: Duration, more: More) -> Decision {
        if here == 0 {
            return Decision::Wait;
        }
        if here >= self.most || more == More::Never {
            return Decision::Take(here.min(self.most));
        }
        match self.patience {
            Patience::None => Decision::Take(here),
            Patience::Endless => Decision::Wait,
            Patience::For(time) => match time.checked_sub(waited) {
                None | Some(Duration::ZERO) => Decision::Take(here),
                Some(left) => Decision::WaitFor(left),
            },
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fixed_batch_waits_until_it_is_full_or_nothing_more_can_come() {
        let decide = |here, more| Batch::of(4).decide(here, 1_000 * MS, more);
        assert_eq!(decide(3, More::MayCome), Decision::Wait);
        assert_eq!(decide(3, More::Never), Decision::Take(3));
        assert_eq!(decide(9, More::MayCome), Decision::Take(4));
    }

    #[test]
    fn what_is_there_is_taken_at_once() {
        let decide = |here| Batch::up_to(4).decide(here, Duration::ZERO, More::MayCome);
        assert_eq!(
            [0, 1, 4, 5].map(decide),
            [Decision::Wait, Decision::Take(1), Decision::Take(4), Decision::Take(4)]
        );
    }

    #[test]
    fn the_first_item_waits_no_longer_than_was_asked() {
        for batch in [Batch::of(4), Batch::up_to(4)] {
            let decide = |waited| batch.within(5 * MS).decide(2, waited, More::MayCome);
            assert_eq!(decide(2 * MS), Decision::WaitFor(3 * MS));
            assert_eq!(decide(5 * MS), Decision::Take(2));
            assert_eq!(decide(9 * MS), Decision::Take(2));
        }
    }

    proptest! {
        #[test]
        fn no_batch_is_empty_or_too_large(
            most in 1usize..50,
            here in 0usize..100,
            waited in 0u32..10,
            limit in proptest::option::of(0u32..10),
            fixed in any::<bool>(),
            ended in any::<bool>(),
        ) {
            let batch = if fixed { Batch::of(most) } else { Batch::up_to(most) };
            let batch = limit.map_or(batch, |limit| batch.within(limit * MS));
            let more = if ended { More::Never } else { More::MayCome };
            match batch.decide(here, waited * MS, more) {
                Decision::Take(n) => prop_assert!((1..=most.min(here)).contains(&n)),
                Decision::Wait => prop_assert!(here == 0 || (more == More::MayCome && here < most)),
                Decision::WaitFor(time) => {
                    prop_assert!(here < most && more == More::MayCome && time > Duration::ZERO);
                }
            }
        }
    }
}
