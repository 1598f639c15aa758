//! The leases of a run: how long they took, by their size and their place.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::run_report::RunReport;

/// Places whose times differ by less are alike: the times of items vary too.
const LEAST_DIFFERENCE: f64 = 1.25;

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

/// The leases of a run: the attempts of a batch begin and end together.
pub(super) fn leases(report: &RunReport) -> Vec<RecordedLease> {
    let mut leases: BTreeMap<(usize, Duration), RecordedLease> = BTreeMap::new();
    for span in report.spans.iter().filter(|span| !span.is_open) {
        let lease = RecordedLease { producer: span.producer, size: 0, took: span.took };
        leases.entry((span.producer, span.start)).or_insert(lease).size += 1;
    }
    leases.into_values().collect()
}

/// For each producer, how much longer an item takes there than on the first place, by the medians of the places.
pub(super) fn speeds(report: &RunReport, leases: &[RecordedLease]) -> Vec<f64> {
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for lease in leases {
        let place = report.producers.get(lease.producer).map_or("", |it| it.place.as_str());
        times.entry(place).or_default().push(lease.took.as_secs_f64() / lease.size as f64);
    }
    let median = |place: &str| {
        let mut times = times.get(place)?.clone();
        times.sort_by(f64::total_cmp);
        Some(times[times.len() / 2])
    };
    let first = report.producers.iter().find_map(|producer| median(&producer.place));
    let speed = |place: &str| match (median(place), first) {
        (Some(here), Some(first)) if first > 0.0 && here > 0.0 => {
            let ratio = here / first;
            let alike = 1.0 / LEAST_DIFFERENCE..=LEAST_DIFFERENCE;
            if alike.contains(&ratio) { 1.0 } else { ratio }
        }
        _ => 1.0,
    };
    let speeds: Vec<_> = report.producers.iter().map(|producer| speed(&producer.place)).collect();
    if speeds.is_empty() { vec![1.0] } else { speeds }
}
