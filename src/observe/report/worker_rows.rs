//! A row of figures for the worker of each producer.

use super::run_report::RunReport;
use super::text::{Bytes, Count, Plain, Time, clipped};
use crate::observe::worker_report::WorkerReport;

/// The heads of the figures, after the number of the producer.
pub(super) const HEADS: [&str; 7] =
    ["host", "pid", "restarts", "returned", "wire wait", "down", "up"];

/// The workers, with the numbers of their producers. A producer in this process has none.
pub(super) fn workers(report: &RunReport) -> Vec<(usize, &WorkerReport)> {
    let producers = report.producers.iter().enumerate();
    producers.filter_map(|(number, it)| Some((number, it.worker.as_ref()?))).collect()
}

/// The figures of a worker, one for each of [`HEADS`].
pub(super) fn figures(worker: &WorkerReport) -> [String; 7] {
    let host = worker.host.as_deref().unwrap_or("this machine");
    [
        Plain(&clipped(host, 24)).to_string(),
        worker.pid.map_or_else(String::new, |pid| pid.to_string()),
        Count(worker.restarts).to_string(),
        Count(worker.returned).to_string(),
        Time(worker.wire_wait).to_string(),
        Bytes(worker.bytes_down).to_string(),
        Bytes(worker.bytes_up).to_string(),
    ]
}
