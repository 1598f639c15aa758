//! Random numbers of a simulation, all from its seed.

use std::time::Duration;

/// SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A generator of its own, for one process.
    pub(super) fn split(&mut self) -> Self {
        Random(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`, which is at least 1.
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// True once in `of` times; never if it is 0.
    pub(super) fn one_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }

    /// A time of at most this.
    pub(super) fn time(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos + 1))
    }
}
