//! The data of a report.

use std::time::Duration;

use gangline_scheduler::Order;
use serde::{Deserialize, Deserializer, Serialize};

use super::advice::AdvisedSetting;
use super::call_report::CallReport;
use super::conclusion::{Bottleneck, Conclusion};
use super::copy_report::CopyReport;
use super::gpu_load::GpuLoad;
use super::latency::Latencies;
use super::producer_report::ProducerReport;
use super::report_json::versioned;
use super::retries::RetryReport;
use super::slowest::SlowItem;
use super::span::{Incident, Span};
use super::split_report::SplitReport;
use super::time_kind::{HeldBackBy, TimeSpan};
use super::timeline::{Throughput, Timeline};
use super::vocabulary::{Vocabulary, Words};
use crate::account::{Account, Destination, Ending, Origin};
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::seconds;

/// The window of a service, which has none: its callers wait.
pub const NO_WINDOW: u64 = 0;

/// The cause of the time in which items waited for a retry, among the causes that held work back.
pub const BACKOFF: &str = "backoff";

/// The result of a run in numbers: time, items, producers and failures.
///
/// Measurements per item (latencies, timeline, slowest items, spans) need item events, which
/// [`timeline`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.timeline) turns on. Everything else
/// is always measured, and costs a clock reading only where a thread waits. In JSON, times are numbers of seconds.
///
/// Its size is bounded for every run. The documentation of each list states its maximum length, and a number
/// beside the list counts the entries that did not fit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunReport {
    /// The description of the work that the builder was given, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) vocabulary: Vocabulary,
    /// Where, when and how the run took place.
    pub provenance: Provenance,
    /// How the run ended, or that it is in progress.
    pub ending: Ending,
    /// The error that ended the run, as text with its causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That error by its parts: its hook, item, place and causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<Failure>,
    /// What limited the run.
    pub bottleneck: Bottleneck,
    /// In the report of a pipeline: the number of the stage that limited the run, from 1. `None` if no stage
    /// stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck_stage: Option<usize>,
    /// The bottleneck as a sentence, with its reasons and what to change.
    pub conclusion: String,
    /// The settings that the conclusion advises, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) advice: Vec<AdvisedSetting>,
    /// The conclusion as data, of which its sentence is made.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "findings")]
    pub(crate) findings: Conclusion,
    /// The [devices used](https://docs.rs/gangline/latest/gangline/device/struct.Devices.html#method.fallbacks) instead
    /// of others that are not available, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The order in which results were consumed.
    pub order: Order,
    /// The exact number of items in the input, if its `size_hint` gives it.
    pub items: Option<u64>,
    /// How many items ended in each way. While the run lasts, only items that events have reported.
    pub account: Account,
    /// From the start to the end of the run. While the run lasts, to the last event seen.
    #[serde(with = "seconds")]
    pub lasted: Duration,
    /// How long the producers took to get ready before the first run of a pool. Zero for its later runs.
    #[serde(with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub start_up: Duration,
    /// How long `consumer_init` took, before any item was read.
    #[serde(with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub consumer_init: Duration,
    /// The time on all processors that the process took meanwhile. Zero if it is not known.
    #[serde(with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub computing: Duration,
    /// The kind of source.
    #[serde(skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// The kind of consumer.
    #[serde(skip_serializing_if = "is_default")]
    pub destination: Destination,
    /// The size of the window at the end of the run.
    pub window: u64,
    /// The number of items to which the window may grow by itself behind a slow item. 0 if its size was set.
    #[serde(skip_serializing_if = "is_default")]
    pub window_limit: u64,
    /// The bound on the [memory](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window_memory) of
    /// items in flight, in bytes, if it kept items back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_memory: Option<u64>,
    /// The memory that the process may have, in bytes, if that bound kept items back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How long the feeder was inside the source. For a later stage of a pipeline: how long the stage before
    /// delivered nothing.
    #[serde(with = "seconds")]
    pub source_working: Duration,
    /// How long what was read got its key, was measured or was looked up in the journal. It is not part of
    /// `source_working`.
    #[serde(with = "seconds")]
    pub source_naming: Duration,
    /// How long the feeder did not ask the source because the window was full.
    #[serde(with = "seconds")]
    pub source_waiting: Duration,
    /// How long the consumer worked. For `outputs`: how long the caller did not ask for a result; for a stage
    /// before another: how long the next stage took none.
    #[serde(with = "seconds")]
    pub consumer_working: Duration,
    /// How long the consumer's thread wrote the journal, with `consumer_flush`. It is not part of `consumer_working`.
    #[serde(with = "seconds")]
    pub journal_writing: Duration,
    /// How long the consumer waited with no result available.
    #[serde(with = "seconds")]
    pub consumer_waiting: Duration,
    /// How long the consumer waited for one item while later results were ready: the head of line was
    /// blocked.
    #[serde(with = "seconds")]
    pub head_stalled: Duration,
    /// The producer time that was lost meanwhile: producers had no items, since the window was full of results behind the
    /// head of line. Estimated from the shares of the time.
    #[serde(with = "seconds")]
    pub head_cost: Duration,
    /// The items that blocked the head of line for the longest, longest first. At most 20.
    pub stalls: Vec<Stall>,
    /// Whether the consumer's thread was abandoned because it did not return in time.
    pub consumer_abandoned: bool,
    /// The producers, in the order of their numbers. In a cluster, there is one for each seat that a worker has had, and
    /// they are numbered without the other seats.
    pub producers: Vec<ProducerReport>,
    /// Latency of items over all producers. `None` without item events.
    pub latency: Option<Latencies>,
    /// The attempts that took the longest, slowest first. At most 20.
    pub slowest: Vec<SlowItem>,
    /// The final failures, in input order: the first 10,000 reported, or fewer if their text exceeds 16 MiB.
    pub failures: Vec<Failure>,
    /// How many final failures are not in `failures`.
    pub failures_left_out: u64,
    /// Failures of items that the consumer did not come to, since the run ended early. The account counts these
    /// items as cancelled. A report of `gangline run` has the jobs here that were ended with the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures_undelivered: Vec<Failure>,
    /// Which items were retried, and how they ended.
    pub retries: RetryReport,
    /// Batches that were split.
    pub splits: SplitReport,
    /// How long callers waited for their answers. `None` if the run was not that of a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallReport>,
    /// Copies of slow items.
    pub copies: CopyReport,
    /// How many items were done in each bin of time. Empty unless
    /// [`timeline`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.timeline) or an
    /// [`observer`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.observer) is set.
    pub throughput: Throughput,
    /// When each producer worked. `None` without item events.
    pub timeline: Option<Timeline>,
    /// The load and the memory of GPUs, which `gangline run --report` measures. The library leaves it empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuLoad>,
    /// How many item events were lost because observers were too slow. Measurements per item lack them.
    pub events_lost: u64,
    /// The attempts at items, in the order in which they ended: at most the first 100,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// How many attempts are not in `spans`.
    pub spans_left_out: u64,
    /// Times of producers from 1 ms that were no work, and no mere wait for input: at most the first 10,000. They need
    /// item events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub time_spans: Vec<TimeSpan>,
    /// The time for which each cause held work back, of all producers together, in seconds.
    #[serde(skip_serializing_if = "HeldBackBy::is_empty", with = "seconds::by_name")]
    pub held_back_by: HeldBackBy,
    /// Failures, retries, rebuilt states and lost producers over time: the first 10,000 of the first three,
    /// and every lost producer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<Incident>,
    /// How many failures, retries and rebuilt states are not in `incidents`.
    pub incidents_left_out: u64,
    /// In the report of a [pipeline](https://docs.rs/gangline/latest/gangline/struct.Pipeline.html#method.report): its
    /// stages, each with the report of its pool.
    ///
    /// The fields beside this one then are about the pipeline: the source is that of the first stage, and the
    /// consumer, the stalls and the throughput are those of the last. Producers are numbered through all
    /// stages; only a stage's own report has its latencies and spans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageReport>,
}

/// A stage of a pipeline, with the report of its pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StageReport {
    /// Its name: the [description](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.describe) of its
    /// builder, or else `stage 2`.
    pub name: String,
    /// The report of its pool. In JSON it has a `version`, so that it can be read on its own.
    #[serde(serialize_with = "versioned")]
    pub report: RunReport,
}

/// An item that blocked the head of line: the consumer waited for it while later results were ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stall {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if the builder has a [key](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.key) and
    /// an item event carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long the consumer waited.
    #[serde(with = "seconds")]
    pub lasted: Duration,
}

impl Stall {
    /// An item that the consumer waited for.
    #[doc(hidden)]
    pub fn new(item: u64, lasted: Duration) -> Self {
        Stall { item, key: None, lasted }
    }
}

impl RunReport {
    /// Returns how many threads were abandoned: producers and the consumer, if they did not return in time.
    pub fn threads_abandoned(&self) -> u64 {
        let producers = self.producers.iter().filter(|producer| producer.abandoned).count();
        producers as u64 + u64::from(self.consumer_abandoned)
    }

    /// Returns the words in which the report is shown.
    pub fn vocabulary(&self) -> Vocabulary {
        self.vocabulary
    }

    /// The items that were ok, for each second of the run; `None` if it took no time.
    pub(super) fn ok_per_second(&self) -> Option<f64> {
        let rate = self.account.ok as f64 / self.lasted.as_secs_f64();
        rate.is_finite().then_some(rate)
    }

    /// Returns whether the run had item events, which latencies and the timeline need.
    pub fn has_item_events(&self) -> bool {
        self.timeline.is_some()
    }

    /// Whether item events would have shown more than there is.
    pub(super) fn lacks_item_events(&self) -> bool {
        !self.has_item_events() && self.account.ok + self.account.failed > 0
    }

    pub(super) fn words(&self) -> &'static Words {
        self.findings.words(self.vocabulary)
    }

    /// Gives producers other numbers in all lists about what they did.
    pub(super) fn renumber(&mut self, number: impl Fn(usize) -> usize) {
        self.time_spans.iter_mut().for_each(|it| it.producer = number(it.producer));
        self.slowest.iter_mut().for_each(|it| it.producer = number(it.producer));
        self.spans.iter_mut().for_each(|it| it.producer = number(it.producer));
        self.incidents.iter_mut().for_each(|it| it.producer = it.producer.map(&number));
        let failures = self.failures.iter_mut().chain(&mut self.failures_undelivered);
        failures.for_each(|it| it.producer = it.producer.map(&number));
    }

    /// Returns whether a run has begun. A pool that has had no run has a report too.
    pub(super) fn has_begun(&self) -> bool {
        self.ending != Ending::InProgress || !self.producers.is_empty()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a conclusion, or none if it is of a kind that this version does not know: the report has its sentence.
fn findings<'de, D: Deserializer<'de>>(from: D) -> Result<Conclusion, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Removes the seats that no worker has had, and renumbers the others.
pub(super) fn leave_out_vacant(report: &mut RunReport) {
    let is_row: Vec<bool> = report.producers.iter().map(|it| !it.place.is_empty()).collect();
    if is_row.iter().all(|is_row| *is_row) {
        return;
    }
    let before = |seat: usize| is_row.iter().take(seat).filter(|is_row| **is_row).count();
    let rows: Vec<usize> = (0..is_row.len()).map(before).collect();
    // Events name no seat before its worker has joined.
    let row = |seat: usize| rows.get(seat).copied().unwrap_or(seat);
    report.producers.retain(|it| !it.place.is_empty());
    if let Some(timeline) = &mut report.timeline {
        let is_row_of = &is_row;
        let mut is_row = is_row_of.iter();
        timeline.busy_ns.retain(|_| is_row.next().is_none_or(|is_row| *is_row));
        for other in &mut timeline.others {
            let mut is_row = is_row_of.iter();
            other.ns.retain(|_| is_row.next().is_none_or(|is_row| *is_row));
        }
    }
    report.renumber(row);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::RunReport;
    use crate::samples::{PlayedRun, failure, micros};
    use crate::span::IncidentKind;

    /// A cluster of five seats, with workers in the second and the fourth.
    fn played() -> PlayedRun {
        let mut run = PlayedRun::on(vec![String::new(); 5], None);
        for seat in [1, 3] {
            let place = format!("node/{seat}");
            run.recorder.worker_joined(micros(100), seat, &place);
            run.totals.producers[seat].place = place;
        }
        run.start(1_000, 3, 0, 1);
        run.start(1_000, 1, 1, 1);
        run.finish(4_000, 3, 0);
        run.finish(6_000, 1, 1);
        run.fail(4_000, failure(0, 3, 1, "no"));
        run.recorder.worker_lost(micros(7_000), 3, "silent", Duration::ZERO);
        run
    }

    fn check(report: &RunReport) {
        let places: Vec<_> = report.producers.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["node/1", "node/3"]);
        assert_eq!(report.slowest.iter().map(|it| it.producer).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(report.spans.iter().map(|it| it.producer).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(report.failures[0].producer, Some(1));
        assert!(report.incidents.iter().all(|it| it.producer == Some(1)));
        assert_eq!(report.incidents[1].kind, IncidentKind::WorkerLost);
        let busy = &report.timeline.as_ref().unwrap().busy_ns;
        let sums: Vec<_> = busy.iter().map(|row| Duration::from_nanos(row.iter().sum())).collect();
        assert_eq!(sums, [5, 3].map(Duration::from_millis));
    }

    #[test]
    fn seats_that_no_worker_has_had_have_no_row() {
        let mut run = played();
        check(&run.recorder.report());
        check(&run.end(8_000));
    }

    #[test]
    fn without_a_worker_there_is_no_row() {
        let report = PlayedRun::on(vec![String::new(); 64], None).end(1_000);
        assert!(report.producers.is_empty(), "{report}");
        assert!(report.to_html().contains("finished in"), "{report}");
    }

    #[test]
    fn items_of_one_worker_may_overlap() {
        let mut run = PlayedRun::on(vec![String::new()], None);
        run.recorder.worker_joined(micros(0), 0, "node/0");
        run.totals.producers[0].place = "node/0".to_owned();
        for (at, item) in [(1_000, 0), (3_000, 1), (8_000, 2)] {
            run.start(at, 0, item, 1);
        }
        for (at, item) in [(5_000, 1), (9_000, 0), (12_000, 2)] {
            run.finish(at, 0, item);
        }
        run.start(20_000, 0, 3, 1);
        run.finish(21_000, 0, 3);
        let report = run.end(30_000);
        let took: Vec<_> = report.slowest.iter().map(|it| (it.item, it.took.as_millis())).collect();
        assert_eq!(took, [(0, 8), (2, 4), (1, 2), (3, 1)]);
        let busy: u64 = report.timeline.as_ref().unwrap().busy_ns[0].iter().sum();
        assert_eq!(Duration::from_nanos(busy), Duration::from_millis(12));
    }
}
