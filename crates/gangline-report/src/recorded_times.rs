//! The times of attempts, as item events report them.

use std::collections::VecDeque;
use std::time::Duration;

use super::bins::Bins;
use super::latency::Distribution;
use super::report_lane::{LaneWork, ReportLane};
use super::run_report::RunReport;
use super::slowest::Slowest;
use super::span::{RecordedSpans, Span, span};
use super::time_kind::{TimeAccount, TimeKind, TimeSpan};
use super::timeline::{KindTimeline, Timeline};

/// The times of attempts, of each producer and of all. All are in nanoseconds.
#[derive(Debug)]
pub(super) struct RecordedTimes {
    /// The working time of each producer, and below it a row of each for each other kind.
    busy: Bins,
    producers: usize,
    time_spans: Vec<TimeSpan>,
    /// Latencies of the first producers, each allocated with the first attempt that is measured.
    latencies: Vec<Option<Distribution>>,
    /// Those of the other producers.
    other_latencies: Distribution,
    pub(super) slowest: Slowest,
    pub(super) spans: RecordedSpans,
}

/// The resolution of the timeline: bins per producer, and over all producers (1 MB).
pub(super) const MOST_BINS: usize = 512;
const MOST_BINS_OF_ALL: usize = 131_072;
const LEAST_BINS: usize = 8;

/// A shorter time that is no work is not kept as a span, in nanoseconds; and the largest number of spans kept.
const SHORTEST_SPAN: u64 = 1_000_000;
const MOST_TIME_SPANS: usize = 10_000;

/// Producers with a latency histogram of their own, of 40 KB each.
pub(super) const MOST_MEASURED: usize = 256;

impl RecordedTimes {
    pub(super) fn new(producers: usize) -> Self {
        let bins = (MOST_BINS_OF_ALL / producers.max(1)).clamp(LEAST_BINS, MOST_BINS);
        RecordedTimes {
            busy: Bins::new(producers * (1 + TimeKind::DRAWN.len()), 1 << bins.ilog2()),
            producers,
            time_spans: Vec::new(),
            latencies: (0..producers.min(MOST_MEASURED)).map(|_| None).collect(),
            other_latencies: Distribution::default(),
            slowest: Slowest::default(),
            spans: RecordedSpans::default(),
        }
    }

    /// Adds working time of a producer.
    pub(super) fn work(&mut self, producer: usize, from: u64, to: u64) {
        self.busy.add_time(producer, from, to);
    }

    /// Adds time of a producer that is of another kind.
    pub(super) fn set_aside(&mut self, producer: usize, kind: TimeKind, from: u64, to: u64) {
        let drawn = TimeKind::DRAWN.iter().position(|drawn| *drawn == kind);
        let Some(row) = drawn.map(|kind| (1 + kind) * self.producers + producer) else { return };
        self.busy.add_time(row, from, to);
        if to.saturating_sub(from) >= SHORTEST_SPAN && self.time_spans.len() < MOST_TIME_SPANS {
            let [start, took] = [from, to - from].map(Duration::from_nanos);
            self.time_spans.push(TimeSpan { producer, kind, start, took });
        }
    }

    /// The time of a producer so far, by kind, in a run that has lasted until `end` and in which its present call of the
    /// hook began at `since`.
    pub(super) fn account(&self, producer: usize, since: Option<u64>, end: u64) -> TimeAccount {
        let open = since.map_or(0, |since| end.saturating_sub(since));
        let mut account = TimeAccount {
            work: Duration::from_nanos(self.busy.sum(producer) + open),
            ..TimeAccount::default()
        };
        for (kind, row) in TimeKind::DRAWN.into_iter().zip(1..) {
            account.add(kind, Duration::from_nanos(self.busy.sum(row * self.producers + producer)));
        }
        account.input = Duration::from_nanos(end).saturating_sub(account.sum());
        account
    }

    /// Adds an attempt that took `took` to the latencies.
    pub(super) fn measure(&mut self, producer: usize, work: &LaneWork, took: u64) {
        match self.latencies.get_mut(producer) {
            Some(own) => own.get_or_insert_default().record(took),
            None => self.other_latencies.record(took),
        }
        self.slowest.see(producer, work, took);
    }

    /// Measures the attempts that the run has given up.
    pub(super) fn measure_what_was_cut_off(&mut self, lanes: &mut [ReportLane]) {
        for (producer, lane) in lanes.iter_mut().enumerate() {
            let Some((in_hand, at)) = lane.cut_off() else { continue };
            in_hand.iter().for_each(|work| self.measure(producer, work, work.took(at)));
        }
    }

    /// Writes the times up to `end` into a report. `open` has, for each producer with attempts in progress, its number, those
    /// attempts, and the start of its time that is not yet counted as busy.
    pub(super) fn write<'a>(
        &self,
        report: &mut RunReport,
        open: impl Iterator<Item = (usize, &'a VecDeque<LaneWork>, u64)>,
        end: u64,
    ) {
        let mut busy = self.busy.clone();
        let mut open_works = Vec::new();
        for (producer, works, since) in open {
            busy.add_time(producer, since, end);
            open_works.extend(works.iter().map(|work| (producer, work, work.took(end))));
        }
        self.write_spans(report, open_works);
        let (bin, mut rows) = busy.until(end);
        let mut of_kinds = rows.split_off(self.producers);
        let others = TimeKind::DRAWN.into_iter().map(|kind| {
            let ns = of_kinds.drain(..self.producers).collect();
            KindTimeline { kind, ns }
        });
        let others = others.filter(KindTimeline::has_time).collect();
        report.timeline = Some(Timeline { bin, busy_ns: rows, others });
        report.time_spans = self.time_spans.clone();
        report.latency = self.all_latencies().latencies();
        report.slowest = self.slowest.items();
        for (producer, own) in report.producers.iter_mut().zip(&self.latencies) {
            producer.latency = own.as_ref().and_then(Distribution::latencies);
        }
    }

    fn write_spans(&self, report: &mut RunReport, open: Vec<(usize, &LaneWork, u64)>) {
        report.spans = self.spans.report();
        report.spans_left_out = self.spans.left_out;
        let room = self.spans.room();
        report.spans_left_out += open.len().saturating_sub(room) as u64;
        let open = open.into_iter().take(room);
        report.spans.extend(
            open.map(|(producer, work, took)| Span { is_open: true, ..span(producer, work, took) }),
        );
    }

    fn all_latencies(&self) -> Distribution {
        let mut all = Distribution::default();
        let own = self.latencies.iter().flatten();
        own.chain([&self.other_latencies]).for_each(|latencies| all.add(latencies));
        all
    }
}
