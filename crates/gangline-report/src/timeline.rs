//! A run over time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bins::Bins;
use super::time_kind::TimeKind;
use crate::seconds;

/// Time of each producer, in bins: its working time, and that of other kinds. What is left is a wait for input.
///
/// There are up to 512 bins, fewer for more than 256 producers. Bins widen as the run gets longer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Timeline {
    /// The width of a bin. The first begins with the run.
    #[serde(with = "seconds")]
    pub bin: Duration,
    /// For each producer and bin, the working time in nanoseconds.
    pub busy_ns: Vec<Vec<u64>>,
    /// The time of other kinds, as far as there was any. Waits from 1 ms are in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<KindTimeline>,
}

/// Time of one kind of each producer, in the bins of its [`Timeline`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KindTimeline {
    /// What the time went to.
    pub kind: TimeKind,
    /// For each producer and bin, the time in nanoseconds.
    pub ns: Vec<Vec<u64>>,
}

impl KindTimeline {
    pub(super) fn has_time(&self) -> bool {
        self.ns.iter().flatten().any(|bin| *bin > 0)
    }
}

/// Items done over time: the items that a producer succeeded at.
///
/// Items are counted every 50 ms and spread evenly over that time; a bin is at least 67 ms wide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Throughput {
    /// The width of a bin. The first begins with the run.
    #[serde(with = "seconds")]
    pub bin: Duration,
    /// Items done in each bin. At most 512 bins.
    pub items: Vec<u64>,
}

/// Counts items as they are done. What is told at once is spread over the time since it was last told.
#[derive(Debug)]
pub(super) struct DoneCounts {
    bins: Bins,
    /// The time up to which items are counted, in nanoseconds.
    until: u64,
}

impl DoneCounts {
    pub(super) fn new(most_bins: usize) -> Self {
        DoneCounts { bins: Bins::of_counts(1, most_bins), until: 0 }
    }

    pub(super) fn add(&mut self, at: u64, items: u64) {
        self.bins.spread(0, self.until.min(at), at, items);
        self.until = at;
    }

    /// Notes that all items that were done before `at` are counted.
    pub(super) fn count_until(&mut self, at: u64) {
        self.until = at;
    }

    /// The counts of a run that has lasted until `end`.
    pub(super) fn throughput(&self, end: u64) -> Throughput {
        let (bin, mut rows) = self.bins.clone().until(end);
        Throughput { bin, items: rows.remove(0) }
    }
}

impl Timeline {
    /// Returns the shares of the time in these bins, from 0 to 1, in at most `columns` columns. Columns have equally many
    /// bins; the last is cut at the end of the run.
    pub(super) fn shares(&self, bins: &[u64], columns: usize, lasted: Duration) -> Vec<f64> {
        let bins_each = bins.len().div_ceil(columns).max(1);
        let column = self.bin.as_secs_f64() * bins_each as f64;
        let share = |(index, bins): (usize, &[u64])| {
            let extent = (lasted.as_secs_f64() - index as f64 * column).clamp(0.0, column);
            let busy = sum(bins) / 1e9;
            if extent > 0.0 { (busy / extent).min(1.0) } else { 0.0 }
        };
        bins.chunks(bins_each).enumerate().map(share).collect()
    }

    /// The total time that the columns of [`shares`](Self::shares) cover.
    pub(super) fn extent(&self, columns: usize) -> Duration {
        let bins = self.busy_ns.iter().map(Vec::len).max().unwrap_or(0);
        let bins = bins.next_multiple_of(bins.div_ceil(columns).max(1));
        self.bin.saturating_mul(bins as u32)
    }
}

impl Throughput {
    /// Returns items per second, in at most `columns` columns of equally many bins. Each pair has the end of
    /// the column in seconds, and its rate. An incomplete last column joins the one before, since a single
    /// result in it would look like a burst.
    pub(super) fn rates(&self, columns: usize, lasted: Duration) -> Vec<(f64, f64)> {
        let bins_each = self.items.len().div_ceil(columns).max(1);
        let column = self.bin.as_secs_f64() * bins_each as f64;
        let end = lasted.as_secs_f64();
        let mut sums: Vec<f64> = self.items.chunks(bins_each).map(sum).collect();
        let whole = (end / column) as usize;
        while sums.len() > whole.max(1) {
            let rest = sums.pop().expect("there is more than one");
            *sums.last_mut().expect("there was more than one") += rest;
        }
        let last = sums.len().wrapping_sub(1);
        let rate = |(index, items)| {
            let start = index as f64 * column;
            let until = if index == last { end.max(start) } else { start + column };
            (until, if until > start { items / (until - start) } else { 0.0 })
        };
        sums.into_iter().enumerate().map(rate).collect()
    }
}

/// Sums as floats, which do not overflow: a report may come from a file.
fn sum(bins: &[u64]) -> f64 {
    bins.iter().map(|&bin| bin as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_duration_of_the_run() {
        let busy_ns = vec![vec![500_000_000, 1_000_000_000, 250_000_000]];
        let timeline = Timeline { bin: Duration::from_secs(1), busy_ns, others: vec![] };
        let lasted = Duration::from_millis(2_500);
        assert_eq!(timeline.shares(&timeline.busy_ns[0], 10, lasted), [0.5, 1.0, 0.5]);
        assert_eq!(timeline.shares(&timeline.busy_ns[0], 2, lasted), [0.75, 0.5]);
        assert_eq!(timeline.extent(2), Duration::from_secs(4));
        assert_eq!(timeline.extent(10), Duration::from_secs(3));
    }

    #[test]
    fn an_incomplete_column_has_no_rate_of_its_own() {
        let throughput = Throughput { bin: Duration::from_secs(1), items: vec![4, 10, 1] };
        let rates = |millis, columns| throughput.rates(columns, Duration::from_millis(millis));
        assert_eq!(rates(3_000, 10), [(1.0, 4.0), (2.0, 10.0), (3.0, 1.0)]);
        assert_eq!(rates(2_500, 10), [(1.0, 4.0), (2.5, 11.0 / 1.5)]);
        assert_eq!(rates(3_000, 2), [(3.0, 5.0)]);
        assert_eq!(rates(500, 10), [(0.5, 30.0)]);
        assert_eq!(rates(0, 10), [(0.0, 0.0)]);
        let none = Throughput::default();
        assert_eq!(none.rates(10, Duration::ZERO), []);
    }
}
