//! The report of a run on other machines: its rows are the workers, and not the slots here, which only wait.

use std::collections::HashMap;

use gangline::RunReport;
use gangline::report::conclusion::{Limit, Percent, Team, TeamPlace};

/// Which workers have had which jobs. A worker is known by its process.
#[derive(Debug, Default)]
pub(super) struct JobPlaces {
    /// The worker of the last attempt, by the number of the job.
    last: HashMap<u64, u32>,
    /// The number of failed attempts, by the worker.
    failed: HashMap<u32, u64>,
}

impl JobPlaces {
    /// A worker has answered for a job.
    pub(super) fn note(&mut self, job: u64, worker: u32, is_ok: bool) {
        self.last.insert(job, worker);
        *self.failed.entry(worker).or_default() += u64::from(!is_ok);
    }
}

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
        let pid = places.last.get(&job);
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
    for (row, pid) in report.producers.iter_mut().zip(&pids) {
        let Some(pid) = pid else { continue };
        // Its service counts attempts, and as failed those that were lost.
        row.items = places.last.values().filter(|last| *last == pid).count() as u64;
        row.failed += places.failed.get(pid).copied().unwrap_or_default();
    }
    conclude(report);
}

/// A slot that waits for a worker is not what limits the run: the workers are.
fn conclude(report: &mut RunReport) {
    let rows = report.producers.len();
    let busy = report.producers.iter().map(|row| row.busy).sum::<f64>() / rows.max(1) as f64;
    let mut findings = report.findings().clone();
    let lost = report.producers.iter().filter(|row| row.quarantined.is_some()).count() as u64;
    findings.team = Team { all: rows as u64, lost, place: TeamPlace::Cluster };
    // Both are said of the slots here.
    if matches!(&findings.limit, Some(Limit::HeldBack { by, .. }) if by == OPTION) {
        let (busy, rebuilding) = (Percent(busy), Percent(0.0));
        findings.limit = Some(Limit::Producers { busy, rebuilding });
        findings.advice.clear();
    }
    if let Some(Limit::TooFew { busy: of_slots, .. }) = &mut findings.limit {
        *of_slots = Percent(busy);
    }
    report.conclude(findings);
}
