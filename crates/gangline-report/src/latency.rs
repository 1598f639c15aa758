//! Latencies: how long producers worked on items.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::seconds;

/// Percentiles of the time from the beginning of an attempt to its end.
///
/// An item of a batch counts with the time of the whole batch, and each attempt counts by itself. Percentiles
/// are accurate to one per cent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Latencies {
    /// How many attempts were measured.
    pub count: u64,
    /// The median.
    #[serde(with = "seconds")]
    pub p50: Duration,
    /// The 90th percentile.
    #[serde(with = "seconds")]
    pub p90: Duration,
    /// The 99th percentile.
    #[serde(with = "seconds")]
    pub p99: Duration,
    /// The maximum.
    #[serde(with = "seconds")]
    pub max: Duration,
}

/// A histogram of latencies, in at most about 40 KB.
#[derive(Debug)]
pub(super) struct Distribution {
    histogram: Histogram<u64>,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new(2).expect("two significant digits are a valid precision");
        Distribution { histogram, max: 0 }
    }
}

impl Distribution {
    pub(super) fn record(&mut self, nanos: u64) {
        self.histogram.record(nanos).expect("a histogram that grows takes any value");
        self.max = self.max.max(nanos);
    }

    pub(super) fn add(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("a histogram that grows takes any other");
        self.max = self.max.max(other.max);
    }

    /// Returns `None` if nothing was measured.
    pub(super) fn latencies(&self) -> Option<Latencies> {
        let count = self.histogram.len();
        // The histogram reports the upper end of a step, which may exceed the exact maximum.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max);
        let at = |quantile| Duration::from_nanos(at(quantile));
        let max = Duration::from_nanos(self.max);
        (count > 0).then(|| Latencies { count, p50: at(0.5), p90: at(0.9), p99: at(0.99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_accurate_to_one_per_cent() {
        let mut distribution = Distribution::default();
        assert_eq!(distribution.latencies(), None);
        (1..=1_000).for_each(|ms| distribution.record(ms * 1_000_000));
        let latencies = distribution.latencies().unwrap();
        for (measured, exact) in [
            (latencies.p50, 0.5),
            (latencies.p90, 0.9),
            (latencies.p99, 0.99),
            (latencies.max, 1.0),
        ] {
            assert!((measured.as_secs_f64() - exact).abs() <= 0.01 * exact, "{measured:?}");
        }
        assert_eq!((latencies.count, latencies.max), (1_000, Duration::from_secs(1)));
    }

    #[test]
    fn distributions_add_up() {
        let [mut sum, mut other, mut all] = std::array::from_fn(|_| Distribution::default());
        for nanos in 0..1_000 {
            let part = if nanos % 3 == 0 { &mut sum } else { &mut other };
            part.record(nanos * nanos * nanos);
            all.record(nanos * nanos * nanos);
        }
        sum.add(&other);
        assert_eq!(sum.latencies(), all.latencies());
    }

    #[test]
    fn any_time_can_be_recorded() {
        let mut distribution = Distribution::default();
        [0, u64::MAX >> 4].into_iter().for_each(|nanos| distribution.record(nanos));
        let latencies = distribution.latencies().unwrap();
        assert_eq!(
            (latencies.p50, latencies.max),
            (Duration::ZERO, Duration::from_nanos(u64::MAX >> 4))
        );
    }
}
