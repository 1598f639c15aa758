//! The report of a run on other machines: its rows are the workers, and not the slots here, which only wait.

use std::collections::HashMap;

use gangline::RunReport;
use gangline::report::conclusion::{Limit, Percent, Team, TeamPlace};

/// The processes of the workers that have had the jobs last, by the numbers of the jobs.
pub(super) type JobPlaces = HashMap<u64, u32>;

/// The option that holds jobs back while all workers are busy.
pub(super) const OPTION: &str = "--nats";

/// Puts the rows of `workers`, the report of their service, into the report of a run in the terms of jobs.
pub(super) fn put_workers(report: &mut RunReport, workers: RunReport, places: &JobPlaces) {
    report.producers = workers.producers;
    report.producers.retain(|row| !row.place.is_empty());
    report.timeline = workers.timeline;
    report.time_spans.clear();
    report.held_back_by.remove(OPTION);
    let pids: Vec<Option<u32>> =
        report.producers.iter().map(|row| row.worker.as_ref()?.pid).collect();
    let row = |job: u64| {
        let pid = places.get(&job);
        pids.iter().position(|row| row.is_some() && row.as_ref() == pid)
    };
    let first = |job| row(job).unwrap_or_default();
    report.slowest.iter_mut().for_each(|it| it.producer = first(it.item));
    report.spans.iter_mut().for_each(|it| it.producer = first(it.item));
    report.incidents.iter_mut().for_each(|it| it.producer = it.item.and_then(row));
    for failure in report.failures.iter_mut().chain(&mut report.failures_undelivered) {
        failure.producer = failure.item.and_then(row);
        let worker = failure.producer.and_then(|row| report.producers[row].worker.as_ref());
        (failure.host, failure.device) = (worker.and_then(|worker| worker.host.clone()), None);
    }
    conclude(report);
}

/// A slot that waits for a worker is not what limits the run: the workers are.
fn conclude(report: &mut RunReport) {
    let rows = report.producers.len();
    let busy = report.producers.iter().map(|row| row.busy).sum::<f64>() / rows.max(1) as f64;
    let mut findings = report.findings().clone();
    findings.team = Team { all: rows as u64, lost: 0, place: TeamPlace::Cluster };
    if matches!(&findings.limit, Some(Limit::HeldBack { by, .. }) if by == OPTION) {
        let (busy, rebuilding) = (Percent(busy), Percent(0.0));
        findings.limit = Some(Limit::Producers { busy, rebuilding });
        findings.advice.clear();
    }
    report.conclude(findings);
}
