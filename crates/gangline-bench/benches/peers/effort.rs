//! The extent of the measurements.

use std::time::Duration;

use crate::work::Work;

#[derive(Clone, Copy, PartialEq)]
pub enum Effort {
    /// Milliseconds, to check that everything runs: the default of `cargo test --benches`.
    Smoke,
    /// Under a minute, for work on the engine.
    Quick,
    /// Minutes, for figures to publish.
    Full,
}

impl Effort {
    pub fn rounds(self) -> usize {
        self.pick(1, 5, 9)
    }

    /// Items per measurement, for this amount of work.
    pub fn items(self, work: Duration) -> u64 {
        let span = Duration::from_millis(self.pick(0, 60, 300)).as_nanos();
        // Peers' typical times for an item without work, so that those rows take no longer than others.
        let overhead = 150;
        (span / (work.as_nanos() + overhead)).max(100) as u64
    }

    /// Calibrates the work, unless times are not significant.
    pub fn work(self, time: Duration) -> Work {
        match self {
            Self::Smoke => Work::of_steps(1),
            Self::Quick | Self::Full => Work::calibrated(time),
        }
    }

    /// The number of items of a section that sets its own.
    pub fn part_of(self, items: u64) -> u64 {
        (items / self.pick(1_000, 5, 1)).max(10)
    }

    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}
