//! Builds a report from the events of a run.

mod producer_events;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::Order;

use super::account::Ending;
use super::bins::nanos;
use super::conclusion::{Conclusion, Limit};
use super::failure::Failure;
use super::kept_failures::Failures;
use super::producer_report::{ProducerReport, share};
use super::provenance::Provenance;
use super::recorded_times::{MOST_BINS, RecordedTimes};
use super::report_lane::{LaneWork, ReportLane};
use super::retries::{ConsumedItems, Retries};
use super::run_report::leave_out_vacant;
use super::run_report::{RunReport, Stall};
use super::span::{IncidentKind, Incidents};
use super::timeline::DoneCounts;
use super::{bottleneck, head_cost};

/// Records what happens in a run, and returns a report at any moment. Times are arguments, from the beginning of the run;
/// what happened to different producers may be told in another order than it happened.
///
/// Its size is bounded for any run, apart from the length of places and of keys in progress.
#[derive(Debug)]
pub struct Recorder {
    /// What events have reported, without what the fields below have. It lasts to the last event.
    so_far: RunReport,
    lanes: Vec<ReportLane>,
    has_item_events: bool,
    times: RecordedTimes,
    done: DoneCounts,
    failures: Failures,
    retries: Retries,
    incidents: Incidents,
    /// What the threads of a run that has ended measured.
    totals: Option<Arc<RunReport>>,
}

const MOST_STALLS: usize = 20;

impl Recorder {
    /// Returns a recorder; every report carries the description of the work.
    pub fn new(description: Option<String>) -> Self {
        Self::of(RunReport { description, ..RunReport::default() }, &[])
    }

    fn of(so_far: RunReport, producers: &[String]) -> Self {
        Recorder {
            so_far,
            lanes: producers.iter().map(|place| ReportLane::new(place)).collect(),
            has_item_events: false,
            times: RecordedTimes::new(producers.len()),
            done: DoneCounts::new(MOST_BINS),
            failures: Failures::default(),
            retries: Retries::default(),
            incidents: Incidents::default(),
            totals: None,
        }
    }

    /// Adds where, when and how the run takes place.
    pub fn set_provenance(&mut self, provenance: Provenance) {
        self.so_far.provenance = provenance;
    }

    /// Returns the report up to the last event.
    pub fn report(&self) -> RunReport {
        match &self.totals {
            Some(totals) => self.report_with(RunReport::clone(totals)),
            None => self.in_progress(self.with_events(self.report_of_running())),
        }
    }

    /// Adds what events have reported to what threads have measured, and draws the conclusion.
    pub fn report_with(&self, totals: RunReport) -> RunReport {
        let mut report = self.with_events(totals);
        if report.ending == Ending::InProgress && !bottleneck::has_worked(&report) {
            return self.in_progress(report);
        }
        report.head_cost = head_cost::lost(&report);
        report.conclude(bottleneck::decide(&report));
        report
    }

    fn in_progress(&self, mut report: RunReport) -> RunReport {
        let limit = (!self.lanes.is_empty()).then_some(Limit::InProgress);
        report.conclude(Conclusion { limit, ..Conclusion::default() });
        report
    }

    /// Adds what events have reported, without the seats that no worker has had.
    fn with_events(&self, mut report: RunReport) -> RunReport {
        let so_far = &self.so_far;
        report.description = so_far.description.clone();
        report.provenance = so_far.provenance.clone();
        (report.order, report.items) = (so_far.order, so_far.items);
        report.fallbacks = so_far.fallbacks.clone();
        report.events_lost = so_far.events_lost;
        report.stalls.iter_mut().for_each(|stall| stall.key = self.key(stall.item));
        // The engine learns of losses at the end.
        for (row, lane) in report.producers.iter_mut().zip(&self.lanes) {
            if self.totals.is_none() {
                row.quarantined = lane.row.quarantined.clone();
                row.abandoned = lane.row.abandoned;
            }
        }
        self.add_failures(&mut report);
        report.throughput = self.done.throughput(nanos(report.lasted.max(self.so_far.lasted)));
        if self.has_item_events {
            self.add_item_events(&mut report);
        }
        leave_out_vacant(&mut report);
        report
    }

    /// States that later events report items done after `at`.
    pub fn count_done_until(&mut self, at: Duration) {
        let at = nanos(at);
        self.done.count_until(at);
        (0..self.lanes.len()).for_each(|producer| self.end_replaced(producer, at));
        self.times.measure_what_was_cut_off(&mut self.lanes);
    }

    fn report_of_running(&self) -> RunReport {
        let producers = (0..self.lanes.len()).map(|producer| self.producer_so_far(producer));
        RunReport { producers: producers.collect(), ..self.so_far.clone() }
    }

    fn producer_so_far(&self, producer: usize) -> ProducerReport {
        let (lane, lasted) = (&self.lanes[producer], self.so_far.lasted);
        let since = lane.in_hand.open().map(|(_, since)| since);
        let times = self.times.account(producer, since, nanos(lasted));
        let busy = share(times.work, lasted);
        ProducerReport { busy, working: times.work, times, ..lane.row.clone() }
    }

    fn add_failures(&self, report: &mut RunReport) {
        (report.failures, report.failures_left_out) = match self.totals {
            None => self.failures.all(),
            Some(_) => self.failures.delivered(),
        };
        if self.totals.is_some() {
            report.failures_undelivered = self.failures.undelivered();
        }
        report.retries = self.retries.report(consumed(report));
        report.incidents = self.incidents.kept.clone();
        report.incidents_left_out = self.incidents.left_out;
    }

    fn add_item_events(&self, report: &mut RunReport) {
        let end = nanos(report.lasted.max(self.so_far.lasted));
        let lanes = self.lanes.iter().enumerate();
        // After the run, only abandoned producers have items in progress; of other items, the end was lost.
        let may_be_open = |lane: &ReportLane| {
            self.totals.is_none() || self.so_far.events_lost == 0 || lane.row.abandoned
        };
        let lanes = lanes.filter(|(_, lane)| may_be_open(lane));
        let open = lanes.filter_map(|(producer, lane)| {
            lane.in_hand.open().map(|(works, since)| (producer, works, since))
        });
        self.times.write(report, open, end);
    }

    /// The key of an item, if it is still kept.
    fn key(&self, item: u64) -> Option<String> {
        let stalled = self.so_far.stalls.iter().find(|stall| stall.item == item);
        let key = stalled.and_then(|stall| stall.key.as_deref());
        key.or_else(|| self.times.slowest.key(item).map(|key| &**key))
            .or_else(|| self.failures.key(item))
            .or_else(|| self.retries.key(item))
            .map(str::to_owned)
    }

    /// Forgets what it has recorded: another run begins, with producers at these places.
    pub fn begin(
        &mut self,
        items: Option<u64>,
        order: Order,
        places: &[String],
        fallbacks: &[String],
    ) {
        let RunReport { description, provenance, .. } = std::mem::take(&mut self.so_far);
        let fallbacks = fallbacks.to_vec();
        let so_far =
            RunReport { description, provenance, items, order, fallbacks, ..RunReport::default() };
        *self = Self::of(so_far, places);
    }

    /// Notes that the run has lasted this long.
    pub fn pass(&mut self, at: Duration) {
        self.so_far.lasted = self.so_far.lasted.max(at);
    }

    /// A producer began with an attempt at an item.
    pub fn item_started(
        &mut self,
        at: Duration,
        producer: usize,
        item: u64,
        key: Option<Arc<str>>,
        attempt: u32,
    ) {
        self.pass(at);
        let start = nanos(at);
        self.has_item_events = true;
        self.end_replaced(producer, start);
        if let Some(lane) = self.lanes.get_mut(producer) {
            lane.in_hand.begin(LaneWork { item, key, attempt, start, ..LaneWork::default() });
        }
    }

    /// A producer has ended its attempt at an item.
    pub fn item_finished(&mut self, at: Duration, producer: usize, item: u64) {
        self.pass(at);
        let at = nanos(at);
        self.has_item_events = true;
        let Some(lane) = self.lanes.get_mut(producer) else { return };
        let busy_from = lane.in_hand.busy_from();
        let Some(work) = lane.end(item) else { return };
        let took = work.took(at);
        let since = lane.in_hand.busy_since(busy_from.unwrap_or(work.start), at);
        let is_measured = lane.row.abandoned && lane.cut_off_at.is_none();
        self.times.work(producer, since, at);
        if !is_measured {
            self.times.measure(producer, &work, took);
        }
        self.times.spans.keep(producer, work, took);
    }

    /// More items are done.
    pub fn items_done(&mut self, at: Duration, items: u64) {
        self.pass(at);
        self.done.add(nanos(at), items);
    }

    /// More items were consumed.
    pub fn items_consumed(&mut self, at: Duration, items: u64) {
        self.pass(at);
        self.so_far.account.ok += items;
    }

    /// An item was not worked on, since an earlier run had done it.
    pub fn already_done(&mut self, at: Duration) {
        self.pass(at);
        self.so_far.account.already_done += 1;
    }

    /// The number of failures so far.
    pub fn failures_so_far(&self) -> u64 {
        self.failures.count()
    }

    /// Notes that the consumer has come to the failures of these numbers, counted from 0.
    pub fn failures_delivered(&mut self, numbers: Range<u64>) {
        self.failures.deliver(numbers);
    }

    /// An attempt failed, and its item is tried again.
    pub fn retried(&mut self, at: Duration, failure: &Failure) {
        self.pass(at);
        self.retries.retried(failure);
        self.attempt_failed(at, IncidentKind::Retried, failure);
    }

    /// An item failed for good, and the consumer comes to it at once.
    pub fn failed_at_consumer(&mut self, at: Duration, failure: &Arc<Failure>) {
        self.failed(at, failure);
        self.failures.deliver_last();
    }

    /// Adds a failure that the consumer has yet to come to.
    pub fn failed(&mut self, at: Duration, failure: &Arc<Failure>) {
        self.pass(at);
        self.so_far.account.failed += 1;
        self.failures.keep(failure);
        self.retries.failed(failure);
        self.attempt_failed(at, IncidentKind::Failed, failure);
    }

    fn attempt_failed(&mut self, at: Duration, kind: IncidentKind, failure: &Failure) {
        self.incidents.keep_failure(at, kind, failure);
        let lane = failure.producer.and_then(|producer| self.lanes.get_mut(producer));
        lane.into_iter().for_each(|lane| lane.row.failed += 1);
    }

    /// The consumer waits for this item. One stall is reported several times, each time longer.
    pub fn head_stalled(&mut self, at: Duration, item: u64, lasted: Duration) {
        self.pass(at);
        // No producer has the item while it waits for a retry.
        let key = || {
            let key = self.lanes.iter().find_map(|lane| lane.in_hand.key(item));
            key.map(|key| key.to_string())
        };
        let stalls = &mut self.so_far.stalls;
        match stalls.iter_mut().find(|stall| stall.item == item) {
            Some(stall) => {
                stall.lasted = stall.lasted.max(lasted);
                stall.key = stall.key.take().or_else(key);
            }
            None => stalls.push(Stall { item, key: key(), lasted }),
        }
        stalls.sort_by_key(|stall| std::cmp::Reverse(stall.lasted));
        stalls.truncate(MOST_STALLS);
    }

    /// Observers did not keep up, and as many events were dropped.
    pub fn events_lost(&mut self, at: Duration, events: u64) {
        self.pass(at);
        self.so_far.events_lost += events;
    }

    /// The run is over. `totals` is what its threads measured.
    pub fn end(&mut self, at: Duration, totals: &Arc<RunReport>) {
        self.pass(at);
        self.totals = Some(Arc::clone(totals));
    }
}

/// The items of `report` that the consumer has come to. Calls of a service are answered in the order in which they are done,
/// whatever the order of the pool.
fn consumed(report: &RunReport) -> ConsumedItems {
    let account = report.account;
    let order = if report.calls.is_some() { Order::Completion } else { report.order };
    match (report.ending, order) {
        (Ending::InProgress, Order::Completion) => ConsumedItems::Before(0),
        (Ending::InProgress, Order::Input) => ConsumedItems::Before(account.ok),
        (_, _) if account.cancelled == 0 => ConsumedItems::All,
        (_, Order::Input) => {
            ConsumedItems::Before(account.ok + account.failed + account.already_done)
        }
        (_, Order::Completion) => ConsumedItems::Before(0),
    }
}
