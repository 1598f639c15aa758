//! How long batches take on one device: decayed sums, and the line through them.

use std::time::Duration;

/// The number of batches that sums remember. Older ones fade.
const REMEMBERED: f64 = 32.0;
/// How many times the expected time a batch counts at most, so that one pause does not decide the size.
const CLIPPED: f64 = 3.0;
/// What is left of all sums after each batch. After 1,000 batches without a size, its sum has faded.
const DECAY: f64 = 1.0 - 1.0 / 256.0;
/// Sums of less than this many batches have faded.
const FADED: f64 = 0.05;

/// The sums of batches of about the same size.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSums {
    /// The number of batches.
    pub(super) count: f64,
    extent: f64,
    nanos: f64,
}

/// The sums of all batches of a device, for each power of two.
#[derive(Debug, Clone, Default)]
pub(super) struct Timings {
    sums: Vec<BatchSums>,
}

/// The time of a batch on one device: a fixed time, and a time for each item, or for each unit of the cost or the
/// padded size if that is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchTime {
    /// The time that each batch takes, whatever its size.
    pub fixed: Duration,
    /// The time that one more item adds.
    pub each: Duration,
}

impl BatchSums {
    /// Adds a batch, and returns by what share of the expected time it took more or less.
    pub(super) fn add(&mut self, extent: u64, nanos: f64) -> Option<f64> {
        let extent = extent as f64;
        let expected = self.rate().map(|rate| extent / rate);
        // The first batch of a size may include a compilation.
        if self.count == 1.0 && expected.is_some_and(|expected| nanos < expected / 2.0) {
            *self = BatchSums::default();
        }
        if self.count >= REMEMBERED {
            self.fade((REMEMBERED - 1.0) / self.count);
        }
        let most = expected.map_or(f64::INFINITY, |expected| expected * CLIPPED);
        self.count += 1.0;
        self.extent += extent;
        self.nanos += nanos.min(most);
        expected.map(|expected| nanos.min(most) / expected - 1.0)
    }

    fn fade(&mut self, left: f64) {
        (self.count, self.extent, self.nanos) =
            (self.count * left, self.extent * left, self.nanos * left);
    }

    fn merge(&mut self, other: BatchSums) {
        self.count += other.count;
        self.extent += other.extent;
        self.nanos += other.nanos;
    }

    /// The extent that is done in a nanosecond.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.nanos > 0.0).then(|| self.extent / self.nanos)
    }
}

impl Timings {
    /// Adds a batch.
    pub(super) fn add(&mut self, extent: u64, nanos: f64) {
        self.sums.iter_mut().for_each(|sums| sums.fade(DECAY));
        _ = self.of_mut(extent).add(extent, nanos);
    }

    /// Adds the batches of a size that was accepted.
    pub(super) fn merge(&mut self, size: u64, sums: BatchSums) {
        self.of_mut(size).merge(sums);
    }

    /// The sums of batches of about this size.
    pub(super) fn of(&self, extent: u64) -> BatchSums {
        self.sums.get(octave(extent)).copied().unwrap_or_default()
    }

    fn of_mut(&mut self, extent: u64) -> &mut BatchSums {
        let octave = octave(extent);
        if self.sums.len() <= octave {
            self.sums.resize(octave + 1, BatchSums::default());
        }
        &mut self.sums[octave]
    }

    /// The line through the mean times of all sizes. `None` until there are two sizes.
    ///
    /// Errors count in proportion to the time: the noise of a large batch would otherwise hide the fixed time.
    pub(super) fn line(&self) -> Option<TimeLine> {
        let known = self.sums.iter().filter(|sums| sums.count > FADED && sums.nanos > 0.0);
        let (mut sizes, mut w, mut x, mut y, mut xx, mut xy) = (0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for sums in known {
            let (extent, nanos) = (sums.extent / sums.count, sums.nanos / sums.count);
            let weight = sums.count / (nanos * nanos);
            sizes += 1;
            w += weight;
            x += weight * extent;
            y += weight * nanos;
            xx += weight * extent * extent;
            xy += weight * extent * nanos;
        }
        let spread = w * xx - x * x;
        if sizes < 2 || spread <= 0.0 {
            return None;
        }
        let each = (w * xy - x * y) / spread;
        let fixed = (y - each * x) / w;
        Some(match (fixed < 0.0, each < 0.0) {
            (true, _) => TimeLine { fixed: 0.0, each: xy / xx },
            (_, true) => TimeLine { fixed: y / w, each: 0.0 },
            _ => TimeLine { fixed, each },
        })
    }
}

/// The time of a batch in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeLine {
    pub(super) fixed: f64,
    pub(super) each: f64,
}

impl TimeLine {
    /// The time of a batch of this extent.
    pub(super) fn nanos(&self, extent: u64) -> f64 {
        self.fixed + self.each * extent as f64
    }

    /// The share of the fixed time in a batch of this extent.
    pub(super) fn fixed_share(&self, extent: u64) -> f64 {
        self.fixed / self.nanos(extent)
    }

    /// The smallest extent with no more than this share of the fixed time.
    pub(super) fn least_with(&self, share: f64) -> u64 {
        (self.fixed * (1.0 - share) / share / self.each).ceil() as u64
    }

    /// The largest extent that takes no longer than this.
    pub(super) fn most_within(&self, nanos: f64) -> u64 {
        ((nanos - self.fixed) / self.each) as u64
    }

    pub(super) fn time(&self) -> BatchTime {
        let time = |nanos: f64| Duration::from_nanos(nanos.round() as u64);
        BatchTime { fixed: time(self.fixed), each: time(self.each) }
    }
}

fn octave(extent: u64) -> usize {
    extent.max(1).ilog2() as usize
}
