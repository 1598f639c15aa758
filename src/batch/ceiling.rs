//! The largest batch that a device has memory for, as far as that is known.

/// How many batches in a row, as large as the ceiling allows, have to go well before it rises, at first.
const FIRST_PATIENCE: u32 = 32;
/// And at most: a batch that is too large costs about as much as one that is not.
const MOST_PATIENCE: u32 = 4_096;

/// What running out of memory has taught about one device.
///
/// Falls to half of the extent that did not go well, or to one above that half that did, and rises by an
/// eighth after a number of batches that went well at the ceiling. Each time that proves too much, it
/// takes twice as many. (Additive increase and multiplicative decrease, as in TCP's congestion
/// control, RFC 5681; the doubling is that of exponential backoff.)
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceiling {
    /// `None` until the device has run out of memory.
    extent: Option<u64>,
    /// The largest extent that went well since.
    proven: u64,
    /// How many batches in a row went well at the ceiling.
    streak: u32,
    patience: u32,
}

impl Ceiling {
    pub(crate) fn new() -> Self {
        Ceiling { extent: None, proven: 0, streak: 0, patience: FIRST_PATIENCE }
    }

    /// The largest extent to try.
    pub(crate) fn extent(&self) -> Option<u64> {
        self.extent
    }

    /// There was no memory for a batch of this extent.
    pub(crate) fn fell_short(&mut self, extent: u64) {
        // Of items that cost nothing it is not the extent that is too much. And one item is tried also if
        // it is above the ceiling: that it failed does not raise it.
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

    /// A batch of this extent went well.
    pub(crate) fn went_well(&mut self, extent: u64) {
        self.proven = self.proven.max(extent);
        let Some(ceiling) = self.extent else { return };
        // Items of many sizes seldom make a batch of exactly that extent.
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

    /// Works on batches as large as the ceiling allows, on a device with room for `room`. How many of them
    /// fell short.
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
