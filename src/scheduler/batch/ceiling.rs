//! The largest batch that fits into a device's memory, as far as it is known.

/// The initial number of successful batches at the ceiling before it rises.
const FIRST_PATIENCE: u32 = 32;
/// The maximum of that number. A batch that is too large costs about as much as one that succeeds.
const MOST_PATIENCE: u32 = 4_096;

/// The batch limit learned from the out-of-memory failures of one device.
///
/// A failure lowers it to half of the failed extent, or to a larger extent below it that has succeeded. After
/// a number of successful batches at the ceiling, it rises by an eighth. If that proves too much, the number
/// doubles.
///
/// This is additive increase and multiplicative decrease, as in TCP's congestion control (RFC 5681), with
/// exponential backoff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceiling {
    /// `None` until the device has run out of memory.
    extent: Option<u64>,
    /// The largest extent that has succeeded since.
    proven: u64,
    /// The number of consecutive successful batches at the ceiling.
    streak: u32,
    patience: u32,
}

impl Ceiling {
    pub(crate) fn new() -> Self {
        Ceiling { extent: None, proven: 0, streak: 0, patience: FIRST_PATIENCE }
    }

    pub(crate) fn extent(&self) -> Option<u64> {
        self.extent
    }

    /// Lowers the ceiling after a batch of this extent ran out of memory.
    pub(crate) fn fell_short(&mut self, extent: u64) {
        // An extent of 0 cannot be the cause. A single item is tried even above the ceiling; its failure must
        // not raise the ceiling.
        if extent == 0 || self.extent.is_some_and(|ceiling| extent > ceiling) {
            return;
        }
        let half = (extent / 2).max(1);
        self.extent = Some(if (half..extent).contains(&self.proven) {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
            self.proven
        } else {
            self.proven = 0;
            half
        });
        self.streak = 0;
    }

    /// Counts a successful batch of this extent.
    pub(crate) fn went_well(&mut self, extent: u64) {
        self.proven = self.proven.max(extent);
        let Some(ceiling) = self.extent else { return };
        // Items of many sizes seldom make a batch of exactly the ceiling.
        if extent < ceiling - ceiling / 8 {
            return;
        }
        self.streak += 1;
        if self.streak >= self.patience {
            self.streak = 0;
            self.extent = Some(ceiling.saturating_add((ceiling / 8).max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works on batches at the ceiling, on a device with room for `room`. Returns the number that ran out of
    /// memory.
    fn work(ceiling: &mut Ceiling, batches: usize, room: u64) -> usize {
        let mut fell_short = 0;
        for _ in 0..batches {
            let extent = ceiling.extent().unwrap_or(64).min(64);
            if extent > room {
                ceiling.fell_short(extent);
                fell_short += 1;
            } else {
                ceiling.went_well(extent);
            }
        }
        fell_short
    }

    #[test]
    fn it_falls_to_what_works() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.extent(), None);
        assert_eq!(work(&mut ceiling, 4, 10), 3, "64, 32 and 16 do not fit");
        assert_eq!(ceiling.extent(), Some(8));
    }

    #[test]
    fn one_item_is_always_tried() {
        let mut ceiling = Ceiling::new();
        ceiling.fell_short(1);
        assert_eq!(ceiling.extent(), Some(1));
    }

    #[test]
    fn an_item_above_the_ceiling_does_not_raise_it() {
        let mut ceiling = Ceiling::new();
        ceiling.fell_short(20);
        ceiling.fell_short(100);
        assert_eq!(ceiling.extent(), Some(10));
    }

    #[test]
    fn items_that_cost_nothing_teach_nothing() {
        let mut ceiling = Ceiling::new();
        ceiling.fell_short(0);
        assert_eq!(ceiling.extent(), None);
    }

    #[test]
    fn it_rises_slowly_and_seldom_too_far() {
        let mut ceiling = Ceiling::new();
        let short = work(&mut ceiling, 10_000, 10);
        assert!((9..=10).contains(&ceiling.extent().unwrap()), "{ceiling:?}");
        assert!(short < 12, "{short} of 10,000 batches fell short");
    }

    #[test]
    fn what_went_well_before_is_forgotten_when_it_no_longer_does() {
        let mut ceiling = Ceiling::new();
        work(&mut ceiling, 100, 40);
        assert!(ceiling.extent() >= Some(32));
        assert!(work(&mut ceiling, 10, 5) < 8);
        assert!(ceiling.extent() <= Some(5));
    }

    #[test]
    fn memory_that_comes_back_is_used_again() {
        let mut ceiling = Ceiling::new();
        work(&mut ceiling, 100, 4);
        work(&mut ceiling, 10_000, 64);
        assert!(ceiling.extent() >= Some(64), "{ceiling:?}");
    }

    #[test]
    fn small_batches_prove_nothing() {
        let mut ceiling = Ceiling::new();
        ceiling.fell_short(32);
        (0..1_000).for_each(|_| ceiling.went_well(3));
        assert_eq!(ceiling.extent(), Some(16));
    }
}
