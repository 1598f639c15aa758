//! The section about producers.

use std::time::Duration;

use crate::document::{Block, Cell, Medium, RowLimits, Section, TableOf};
use crate::formats::{Count, Time, capitalised};
use crate::latency::Latencies;
use crate::producer_report::{ProducerReport, WorkerReport, share};
use crate::run_report::NO_WINDOW;
use crate::run_report::RunReport;
use crate::sentences::{batch_sizes, lack_of_events, losses};
use crate::stragglers as held_up;
use crate::text_style::Ink;
use crate::time_kind::TimeKind;

/// A page only counts more producers.
pub(crate) const PRODUCERS: usize = 256;
pub(super) const LONGEST_PLACE: usize = 24;
/// The text clips the name of a stage, and of a place or host.
pub(super) const LONGEST_STAGE: usize = 16;

pub(super) type Percentile = fn(Latencies) -> Duration;

/// A kind of time below this share of the run is noise.
const LEAST_SHARE: f64 = 0.01;

/// A desk has no room for more columns.
const MOST_COLUMNS: usize = 12;

pub(super) fn producers(report: &RunReport, key: usize) -> Option<Section<'_>> {
    if report.producers.is_empty() {
        return None;
    }
    let words = report.words();
    let title = format!("{} and times of each {}", capitalised(words.items), words.producer);
    let (order, open) = held_up::notable_first(report);
    let limits = RowLimits { text: open, page: PRODUCERS, open };
    let rows = order.into_iter().map(|number| (number, &report.producers[number]));
    let mut table = TableOf::new(title, limits, rows)
        .counting(words.producer, 0)
        .numbers(words.producer, |it| it.0);
    if !report.stages.is_empty() {
        let stage = |it: &(usize, &ProducerReport)| it.1.stage.clone().unwrap_or_default();
        table = table.text("stage", u32::MAX, LONGEST_STAGE, stage);
    }
    table = table
        .text("place", 11, LONGEST_PLACE, |(_, it)| Cell::Tagged(it.place.clone(), tag(it)))
        .number(words.items, 10, |(_, it)| Count(it.items))
        .number("failed", 8, |(_, it)| Count(it.failed))
        .number("busy", 9, |(_, it)| Cell::Share(it.busy))
        .number("working", 3, |(_, it)| Time(it.working))
        .number("waiting", 4, |(_, it)| Time(it.waiting));
    for kind in kinds_that_matter(report) {
        table = table.number(kind.text(), 4, move |(_, it)| Time(it.times.of_kind(kind)));
    }
    let longest = report.producers.iter().map(|it| it.init).max().unwrap_or_default();
    if share(longest, report.lasted) >= LEAST_SHARE {
        table = table.number("init", 2, |(_, it)| Time(it.init));
    }
    if report.has_item_events() {
        let latencies: [(_, _, Percentile); 4] = [
            ("p50", 7, |it| it.p50),
            ("p90", 1, |it| it.p90),
            ("p99", 5, |it| it.p99),
            ("max", 6, |it| it.max),
        ];
        for (head, rank, of) in latencies {
            let time = |it: Latencies| Time(of(it)).to_string();
            table = table.number(head, rank, |(_, it)| it.latency.map_or_else(String::new, time));
        }
    }
    let table = table.at_most(MOST_COLUMNS).rows(|row, (number, it)| {
        row.ink = Some(Ink::Bad).filter(|_| it.is_lost());
        row.notes = losses(report, *number);
    });
    let mut section = Section::new(capitalised(words.producers)).with(table.end());
    section = match batch_sizes(report) {
        Some(sizes) => section.with(Block::Paragraph(sizes, None)),
        None => section,
    };
    let section = section
        .only(Medium::Text, stragglers(report, key))
        .remark(lack_of_events(report))
        .explain(explanation(report));
    let is_all = open == report.producers.len();
    let chosen = "First the lost ones, the slowest, the fastest, and those that failed most or worked least.";
    let section = if is_all { section } else { section.explain(chosen) };
    Some(section)
}

/// The kinds of time that have a column.
fn kinds_that_matter(report: &RunReport) -> impl Iterator<Item = TimeKind> {
    let shown = [TimeKind::Loading, TimeKind::HeldBack, TimeKind::Journal, TimeKind::Dead];
    shown.into_iter().filter(|kind| matters(report, *kind))
}

/// Whether a kind of time took a producer at least [`LEAST_SHARE`] of the run.
pub(crate) fn matters(report: &RunReport, kind: TimeKind) -> bool {
    let times = report.producers.iter().map(|it| it.times.of_kind(kind));
    share(times.max().unwrap_or_default(), report.lasted) >= LEAST_SHARE
}

/// What the columns of producers mean.
fn explanation(report: &RunReport) -> String {
    let words = report.words();
    let waiting = match report.window {
        NO_WINDOW => "a call".to_owned(),
        _ => format!(
            "{} {}, for the source or for room in the {}",
            words.article, words.item, words.window
        ),
    };
    format!("Failed: failed attempts. Waiting: the time without {waiting}.")
}

/// The tag of a lost producer; a note has the reason.
fn tag(producer: &ProducerReport) -> &'static str {
    match producer {
        ProducerReport { abandoned: true, .. } => "abandoned",
        ProducerReport { quarantined: Some(_), .. } => "out of service",
        ProducerReport { worker: Some(WorkerReport { lost: Some(_), .. }), .. } => "lost",
        _ => "",
    }
}

/// The stragglers of a run. A page names them below the chart that marks them.
pub(super) fn stragglers(report: &RunReport, key: usize) -> Block<'_> {
    Block::List("  ", held_up::sentences(report, key), Some(Ink::Warning))
}
