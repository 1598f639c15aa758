//! The durations of items.

use std::fmt;
use std::time::Duration;

/// How the durations of items are distributed. All have the same mean, apart from chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durations {
    Equal,
    Exponential,
    /// Pareto with the exponent 1.5: the variance is infinite.
    Pareto,
    /// One in a hundred takes fifty times as long as the others.
    Rare,
}

pub const ALL: [Durations; 4] =
    [Durations::Equal, Durations::Exponential, Durations::Pareto, Durations::Rare];

impl Durations {
    /// The durations of `count` items, the same each time.
    pub fn items(self, count: usize, mean: Duration) -> Vec<Duration> {
        let mut random = Random(42);
        (0..count).map(|_| mean.mul_f64(self.of_mean(random.next()))).collect()
    }

    /// The duration at this quantile, in units of the mean.
    fn of_mean(self, quantile: f64) -> f64 {
        match self {
            Durations::Equal => 1.0,
            Durations::Exponential => -quantile.ln(),
            Durations::Pareto => quantile.powf(-1.0 / 1.5) / 3.0,
            Durations::Rare if quantile < 0.01 => 50.0 / 1.49,
            Durations::Rare => 1.0 / 1.49,
        }
    }
}

impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durations::Equal => "equal",
            Durations::Exponential => "exponential",
            Durations::Pareto => "Pareto 1.5",
            Durations::Rare => "1 in 100 takes 50 times",
        })
    }
}

/// `SplitMix64`: a few lines, and the same numbers everywhere.
struct Random(u64);

impl Random {
    /// A number above 0 and at most 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}
