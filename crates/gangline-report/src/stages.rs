//! One report of all stages of a pipeline.

use std::collections::BTreeMap;
use std::time::Duration;

use gangline_scheduler::Order;

use super::bottleneck_stage;
use super::copy_report::CopyReport;
use super::kept_failures::MOST as MOST_FAILURES;
use super::retries::RetryReport;
use super::run_report::{RunReport, StageReport};
use super::slowest;
use super::span::MOST_INCIDENTS;
use super::split_report::SplitReport;
use super::time_kind::{HeldBackBy, TimeKind};
use super::timeline::{KindTimeline, Timeline};
use crate::account::{Account, Ending};
use crate::provenance::Provenance;

/// What the report of a pipeline is made of, for each stage.
#[derive(Debug)]
pub struct StagePart {
    /// The name that the builder was given.
    pub name: Option<String>,
    pub report: RunReport,
}

/// Returns the report of a pipeline. `account` is that of all stages.
///
/// # Panics
///
/// Without stages.
pub fn report(parts: Vec<StagePart>, account: Account) -> RunReport {
    let is_named = parts.iter().any(|part| part.name.is_some());
    let mut stages: Vec<StageReport> = (1..).zip(parts).map(named).collect();
    let is_finished = |stage: &StageReport| stage.report.ending == Ending::Finished;
    if stages.iter().all(is_finished) && account.cancelled == 0 {
        settle_parts(&mut stages);
    }
    let reports = || stages.iter().map(|stage| &stage.report);
    let first = reports().next().expect("a pipeline has stages");
    let last = reports().next_back().expect("a pipeline has stages");
    let names = || stages.iter().map(|stage| stage.name.as_str());
    let mut whole = RunReport {
        description: is_named.then(|| names().collect::<Vec<_>>().join(", ")),
        provenance: provenance(&stages),
        ending: last.ending,
        error: last.error.clone(),
        ended_by: last.ended_by.clone(),
        fallbacks: reports().flat_map(|report| report.fallbacks.clone()).collect(),
        order: match reports().all(|report| report.order == Order::Input) {
            true => Order::Input,
            false => Order::Completion,
        },
        items: first.items,
        account,
        lasted: reports().map(|report| report.lasted).max().unwrap_or_default(),
        start_up: reports().map(|report| report.start_up).max().unwrap_or_default(),
        computing: reports().map(|report| report.computing).max().unwrap_or_default(),
        consumer_init: last.consumer_init,
        destination: last.destination,
        window_memory: reports().filter_map(|report| report.window_memory).max(),
        memory: reports().filter_map(|report| report.memory).max(),
        window: reports().map(|report| report.window).fold(0, u64::saturating_add),
        source_working: first.source_working,
        source_waiting: first.source_waiting,
        source_naming: first.source_naming,
        consumer_working: last.consumer_working,
        consumer_waiting: last.consumer_waiting,
        journal_writing: last.journal_writing,
        head_stalled: last.head_stalled,
        head_cost: last.head_cost,
        stalls: last.stalls.clone(),
        consumer_abandoned: last.consumer_abandoned,
        throughput: last.throughput.clone(),
        timeline: timeline(&stages),
        events_lost: reports().map(|report| report.events_lost).fold(0, u64::saturating_add),
        spans_left_out: reports().map(|report| report.spans_left_out).fold(0, u64::saturating_add),
        retries: retries(&stages),
        copies: reports().fold(CopyReport::default(), |all, report| all.and(report.copies)),
        held_back_by: held_back_by(&stages),
        ..RunReport::default()
    };
    add_lists(&mut whole, &stages);
    conclude(&mut whole, &stages);
    // Of a single run, splits are to be mended before its start-up. A pipeline is never limited by them.
    whole.splits = reports().fold(SplitReport::default(), |all, report| all.and(&report.splits));
    whole.stages = stages;
    whole
}

fn conclude(whole: &mut RunReport, stages: &[StageReport]) {
    if stages.iter().all(|stage| stage.report.ending != Ending::InProgress) {
        let (conclusion, stage) = bottleneck_stage::decide(stages, whole);
        whole.bottleneck_stage = stage;
        whole.conclude(conclusion);
    }
}

fn named((number, StagePart { name, report, .. }): (usize, StagePart)) -> StageReport {
    StageReport { name: name.unwrap_or_else(|| format!("stage {number}")), report }
}

/// Says how retried parts ended, once all items have a verdict. Without all failures it is not known.
fn settle_parts(stages: &mut [StageReport]) {
    for StageReport { report, .. } in stages {
        if report.failures_left_out == 0 {
            report.retries.settle_parts(&report.failures);
        }
    }
}

/// Adds the lists about producers, which are numbered through all stages, and about failures.
fn add_lists(whole: &mut RunReport, stages: &[StageReport]) {
    for StageReport { name, report } in stages {
        let before = whole.producers.len();
        let mut own = RunReport {
            producers: report.producers.clone(),
            slowest: report.slowest.clone(),
            incidents: report.incidents.clone(),
            time_spans: report.time_spans.clone(),
            failures: report.failures.clone(),
            failures_undelivered: report.failures_undelivered.clone(),
            ..RunReport::default()
        };
        own.renumber(|producer| producer + before);
        own.producers.iter_mut().for_each(|it| it.stage = Some(name.clone()));
        let failures = own.failures.iter_mut().chain(&mut own.failures_undelivered);
        failures.for_each(|it| it.stage = Some(name.clone()));
        whole.producers.append(&mut own.producers);
        whole.slowest.append(&mut own.slowest);
        whole.incidents.append(&mut own.incidents);
        whole.time_spans.append(&mut own.time_spans);
        whole.failures.append(&mut own.failures);
        whole.failures_undelivered.append(&mut own.failures_undelivered);
        let sum = u64::saturating_add;
        whole.failures_left_out = sum(whole.failures_left_out, report.failures_left_out);
        whole.incidents_left_out = sum(whole.incidents_left_out, report.incidents_left_out);
    }
    whole.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took));
    whole.slowest.truncate(slowest::MOST);
    whole.failures.sort_by_key(|failure| failure.item);
    whole.failures_left_out += cut(&mut whole.failures, MOST_FAILURES);
    whole.failures_undelivered.sort_by_key(|failure| failure.item);
    whole.failures_undelivered.truncate(MOST_FAILURES);
    whole.incidents.sort_by_key(|incident| incident.at);
    whole.incidents_left_out += cut(&mut whole.incidents, MOST_INCIDENTS);
}

/// Shortens a list, and returns by how much.
fn cut<T>(list: &mut Vec<T>, most: usize) -> u64 {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more as u64
}

fn provenance(stages: &[StageReport]) -> Provenance {
    let of = |stage: &StageReport| {
        let settings = stage.report.provenance.settings.clone();
        let name = stage.name.clone();
        settings.into_iter().map(move |(setting, value)| (format!("{name}: {setting}"), value))
    };
    let devices = stages.iter().flat_map(|stage| stage.report.provenance.devices.clone());
    Provenance {
        settings: stages.iter().flat_map(of).collect(),
        devices: devices.collect::<BTreeMap<_, _>>(),
        ..stages[0].report.provenance.clone()
    }
}

fn held_back_by(stages: &[StageReport]) -> HeldBackBy {
    let mut all = HeldBackBy::new();
    for (cause, time) in stages.iter().flat_map(|stage| &stage.report.held_back_by) {
        *all.entry(cause.clone()).or_default() += *time;
    }
    all
}

fn retries(stages: &[StageReport]) -> RetryReport {
    let mut all = RetryReport::default();
    for StageReport { report: RunReport { retries, .. }, .. } in stages {
        all.attempts = all.attempts.saturating_add(retries.attempts);
        all.items = all.items.saturating_add(retries.items);
        all.succeeded = all.succeeded.saturating_add(retries.succeeded);
        all.failed = all.failed.saturating_add(retries.failed);
        all.list.extend_from_slice(&retries.list);
        all.left_out = all.left_out.saturating_add(retries.left_out);
    }
    all.left_out += cut(&mut all.list, super::retries::MOST);
    all
}

/// The timelines of all stages as one, with the widest of their bins. A stage without item events is idle in
/// it.
fn timeline(stages: &[StageReport]) -> Option<Timeline> {
    let timelines = || stages.iter().filter_map(|stage| stage.report.timeline.as_ref());
    let bin = timelines().map(|timeline| timeline.bin).max()?;
    let busy_ns = rows(stages, bin, |timeline| Some(&timeline.busy_ns));
    let of_kind = |kind: TimeKind| {
        let ns = rows(stages, bin, |it| Some(&it.others.iter().find(|it| it.kind == kind)?.ns));
        KindTimeline { kind, ns }
    };
    let others = TimeKind::DRAWN.into_iter().map(of_kind).filter(KindTimeline::has_time).collect();
    Some(Timeline { bin, busy_ns, others })
}

/// The rows of all producers, in bins of this width. A stage for which `of` returns none has no time in them.
fn rows(
    stages: &[StageReport],
    bin: Duration,
    of: impl Fn(&Timeline) -> Option<&Vec<Vec<u64>>>,
) -> Vec<Vec<u64>> {
    let mut rows = Vec::new();
    for StageReport { report, .. } in stages {
        let timeline = report.timeline.as_ref();
        match timeline.and_then(|timeline| Some((timeline.bin, of(timeline)?))) {
            Some((own, bins)) => rows.extend(bins.iter().map(|row| widened(row, own, bin))),
            None => rows.extend(report.producers.iter().map(|_| vec![])),
        }
    }
    let bins = rows.iter().map(Vec::len).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row.resize(bins, 0));
    rows
}

/// The bins of a row, added up to wider ones.
fn widened(row: &[u64], from: Duration, to: Duration) -> Vec<u64> {
    let mut wide: Vec<u64> = Vec::new();
    for (index, busy) in row.iter().enumerate() {
        let at = index as u128 * from.as_nanos() / to.as_nanos().max(1);
        let at = usize::try_from(at).expect("wider bins are fewer");
        if wide.len() <= at {
            wide.resize(at + 1, 0);
        }
        wide[at] = wide[at].saturating_add(*busy);
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bottleneck, Destination, ProducerReport};

    /// Two stages with 100 items, whose start-up took longer than the run, and which hand outputs to the caller.
    fn pipeline(splits: SplitReport) -> RunReport {
        let stage = |destination| RunReport {
            ending: Ending::Finished,
            account: Account::new(100, 100, 0, 0, Some(0)),
            lasted: Duration::from_secs(3),
            start_up: Duration::from_secs(6),
            computing: Duration::from_secs(5),
            producers: vec![ProducerReport { items: 100, ..ProducerReport::default() }],
            splits: splits.clone(),
            destination,
            window_memory: Some(64),
            memory: Some(1_024),
            ..RunReport::default()
        };
        let stages = [stage(Destination::NextStage), stage(Destination::Outputs)];
        let parts = stages.map(|report| StagePart { name: None, report });
        report(parts.into(), Account::new(100, 100, 0, 0, Some(0)))
    }

    #[test]
    fn what_stages_share_is_in_the_whole() {
        let whole = pipeline(SplitReport::default());
        assert_eq!(whole.destination, Destination::Outputs);
        assert_eq!(whole.computing, Duration::from_secs(5), "that of one process");
        assert_eq!((whole.window_memory, whole.memory), (Some(64), Some(1_024)));
    }

    #[test]
    fn splits_hide_no_start_up_of_a_pipeline() {
        let splits = SplitReport { batches: 10, split: 10, calls: 30, ..SplitReport::default() };
        let (whole, split) = (pipeline(SplitReport::default()), pipeline(splits));
        assert_eq!(whole.bottleneck, Bottleneck::StartUp, "{whole}");
        assert_eq!(split.conclusion, whole.conclusion);
        assert_eq!(split.splits.split, 20, "they are counted");
    }

    #[test]
    fn wider_bins_have_the_same_sum() {
        let ms = Duration::from_millis;
        assert_eq!(widened(&[1, 2, 3, 4, 5], ms(10), ms(20)), [3, 7, 5]);
        assert_eq!(widened(&[1, 2, 3], ms(10), ms(10)), [1, 2, 3]);
        assert_eq!(widened(&[], ms(10), ms(80)), [0; 0]);
    }
}
