//! How long batches took by their size.

use std::collections::BTreeMap;
use std::time::Duration;

/// With fewer batches of a size, such as the last one of a run, chance decides what they take.
const LEAST_BATCHES: usize = 3;

/// How long batches take on the first place: `fixed + each * size`, by least squares.
#[derive(Debug, Default)]
pub(super) struct BatchTimes {
    pub(super) fixed: f64,
    pub(super) each: f64,
    pub(super) largest: usize,
    /// The number of different sizes of which there were enough.
    pub(super) sizes: usize,
}

/// Attempts that began together on one producer.
pub(super) struct RecordedLease {
    pub(super) producer: usize,
    pub(super) size: usize,
    pub(super) took: Duration,
}

impl BatchTimes {
    pub(super) fn of(leases: &[RecordedLease], speeds: &[f64]) -> Self {
        let points: Vec<_> = leases
            .iter()
            .map(|it| (it.size as f64, it.took.as_secs_f64() / speeds[it.producer % speeds.len()]))
            .collect();
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (size, time) = (mean(|it| it.0), mean(|it| it.1));
        let spread: f64 = points.iter().map(|it| (it.0 - size).powi(2)).sum();
        let common: f64 = points.iter().map(|it| (it.0 - size) * (it.1 - time)).sum();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        leases.iter().for_each(|it| *counts.entry(it.size).or_default() += 1);
        let each = if spread > 0.0 { (common / spread).max(0.0) } else { 0.0 };
        BatchTimes {
            fixed: (time - each * size).max(0.0),
            each,
            largest: leases.iter().map(|it| it.size).max().unwrap_or(0),
            sizes: counts.values().filter(|&&count| count >= LEAST_BATCHES).count(),
        }
    }
}
