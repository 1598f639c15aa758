//! The times of attempts, as item events report them.

use std::collections::VecDeque;

use super::bins::Bins;
use super::latency::Distribution;
use super::report_lane::LaneWork;
use super::run_report::RunReport;
use super::slowest::Slowest;
use super::span::{RecordedSpans, Span, span};
use super::timeline::Timeline;

/// The times of attempts, of each producer and of all. All are in nanoseconds.
#[derive(Debug)]
pub(super) struct RecordedTimes {
    /// The working time of each producer.
    pub(super) busy: Bins,
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

/// Producers with a latency histogram of their own, of 40 KB each.
pub(super) const MOST_MEASURED: usize = 256;

impl RecordedTimes {
    pub(super) fn new(producers: usize) -> Self {
        let bins = (MOST_BINS_OF_ALL / producers.max(1)).clamp(LEAST_BINS, MOST_BINS);
        RecordedTimes {
            busy: Bins::new(producers, 1 << bins.ilog2()),
            latencies: (0..producers.min(MOST_MEASURED)).map(|_| None).collect(),
            other_latencies: Distribution::default(),
            slowest: Slowest::default(),
            spans: RecordedSpans::default(),
        }
    }

    /// Adds an attempt that took `took` to the latencies.
    pub(super) fn measure(&mut self, producer: usize, work: &LaneWork, took: u64) {
        match self.latencies.get_mut(producer) {
            Some(own) => own.get_or_insert_default().record(took),
            None => self.other_latencies.record(took),
        }
        self.slowest.see(producer, work, took);
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
            let took = |work: &LaneWork| end.saturating_sub(work.start);
            open_works.extend(works.iter().map(|work| (producer, work, took(work))));
        }
        self.write_spans(report, open_works);
        let (bin, busy_ns) = busy.until(end);
        report.timeline = Some(Timeline { bin, busy_ns });
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
