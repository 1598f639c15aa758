//! The sections of a report.

use super::document::{
    Block, Cell, Column, Document, Layout, Lead, Limits, List, Medium, Row, Section, Table,
};
use super::formats::{Bytes, Count, Percent, Time, capitalised, clipped, item, part, rate};
use super::producer::{ProducerReport, share};
use super::run_report::{Ending, RunReport, StageReport};
use super::sentences::{
    LONGEST, failed, failure, headline, lack_of_events, lack_of_keys, losses, more, retries, site,
    waits,
};
use super::stragglers;
use crate::observe::failure::Failure;
use crate::observe::text_style::Ink;
use crate::observe::worker_report::WorkerReport;

/// More producers are only counted.
pub(super) const PRODUCERS: Limits = Limits { text: 32, page: 256, open: usize::MAX };
const WORKERS: Limits = Limits { text: 16, ..PRODUCERS };
/// The first failures are open on the page, so that the rest of it is not far.
const FAILURES: Limits = Limits { text: 10, page: 1_000, open: 10 };
const RETRIED: Limits = Limits { text: 0, page: 1_000, open: 5 };
const STALLS: Limits = Limits { text: 3, page: usize::MAX, open: 5 };
const SLOWEST: Limits = Limits { text: 0, ..STALLS };

/// The text clips a failure to this many characters, and one with several causes to more.
const LONGEST_FAILURE: usize = 230;
const LONGEST_CHAIN: usize = 800;

/// The text clips the name of a stage, and of a place or host.
const LONGEST_STAGE: usize = 16;
const LONGEST_PLACE: usize = 24;

/// Returns what a report shows.
pub(super) fn outline(report: &RunReport) -> Document<'_> {
    let status = match report.ending {
        Ending::InProgress if !report.has_begun() => "No run yet",
        Ending::InProgress => "Run in progress",
        Ending::Finished => "Run finished",
        Ending::Failed => "Run failed",
        Ending::Cancelled => "Run cancelled",
    };
    let sections = [
        Some(account(report)),
        stages(report),
        failures(report, "Failures", &report.failures, report.failures_left_out),
        failures(report, UNDELIVERED, &report.failures_undelivered, 0),
        timeline(report),
        throughput(report),
        producers(report),
        workers(report),
        window(report),
        slowest(report),
        retried(report),
        split_batches(report),
        provenance(report),
    ];
    Document {
        title: headline(report),
        ink: ink(report),
        kind: "gangline run report",
        heading: report.description.clone().unwrap_or_else(|| status.to_owned()),
        status: report.description.is_some().then_some(status),
        leads: leads(report),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn ink(report: &RunReport) -> Ink {
    match report.ending {
        Ending::Failed => Ink::Bad,
        Ending::Cancelled => Ink::Warning,
        Ending::Finished if report.account.failed > 0 => Ink::Bad,
        Ending::Finished => Ink::Good,
        Ending::InProgress => Ink::Strong,
    }
}

fn leads(report: &RunReport) -> Vec<Lead<'_>> {
    let provenance = report.provenance.line().filter(|_| report.has_begun());
    let conclusion = Some(&*report.conclusion).filter(|conclusion| !conclusion.is_empty());
    let mut leads: Vec<Lead<'_>> = provenance.map(Lead::Provenance).into_iter().collect();
    leads.extend(report.error.as_deref().map(Lead::Error));
    leads.extend(conclusion.map(Lead::Conclusion));
    leads.extend(report.fallbacks.iter().map(|fallback| Lead::Fallback(fallback)));
    leads
}

fn account(report: &RunReport) -> Section<'_> {
    let account = report.account;
    let ink = |ink, count| Some(ink).filter(|_| count > 0);
    let mut figures = vec![
        ("lasted", Time(report.lasted).to_string(), None),
        ("ok", Count(account.ok).to_string(), ink(Ink::Good, account.ok)),
        ("failed", Count(account.failed).to_string(), ink(Ink::Bad, account.failed)),
    ];
    let mut add = |name, count, ink| {
        figures.extend((count > 0).then(|| (name, Count(count).to_string(), ink)));
    };
    add("already done", account.already_done, None);
    add("cancelled", account.cancelled, Some(Ink::Warning));
    add("unread", account.unread.unwrap_or(0), None);
    add("retried", report.retries.items, None);
    let per_second = account.ok as f64 / report.lasted.as_secs_f64();
    if per_second.is_finite() {
        figures.push(("ok per second", rate(per_second), None));
    }
    if let Some(latency) = report.latency {
        let times =
            [("median", latency.p50), ("99th percentile", latency.p99), ("slowest", latency.max)];
        figures.extend(times.map(|(name, time)| (name, Time(time).to_string(), None)));
    }
    if report.threads_abandoned() > 0 {
        let abandoned = report.threads_abandoned().to_string();
        figures.push(("threads abandoned", abandoned, Some(Ink::Bad)));
    }
    Section::new("Account").with(Block::Figures(figures))
}

fn stages(report: &RunReport) -> Option<Section<'_>> {
    if report.stages.is_empty() {
        return None;
    }
    let columns = vec![
        Column::text("stage", u32::MAX, LONGEST_STAGE),
        Column::number("ok", 8),
        Column::number("failed", 7),
        Column::number("cancelled", 2),
        Column::number("producers", 6),
        Column::number("busy", 5),
        Column::number("waiting", 4),
        Column::number("window", 1),
        Column::number("full", 3),
    ];
    let rows = report.stages.iter().enumerate().map(|(number, stage)| {
        let is_limiting = report.bottleneck_stage == Some(number + 1);
        stage_row(stage, if is_limiting { "limited the run" } else { "" })
    });
    let conclusions = report.stages.iter().filter(|stage| !stage.report.conclusion.is_empty());
    let conclusions =
        conclusions.map(|stage| format!("{}: {}", stage.name, stage.report.conclusion));
    let conclusions = List { indent: "  ", sentences: conclusions.collect(), ink: None };
    let section = Section::new("Stages")
        .with(Block::Table(Table::new("Items and times of each stage", columns).rows(rows)))
        .only(Medium::Page, Block::List(conclusions))
        .explain("Busy, waiting: the average of the producers. Full: the time with a full window.");
    Some(section)
}

fn stage_row<'a>(stage: &StageReport, tag: &'static str) -> Row<'a> {
    let StageReport { name, report } = stage;
    let producers = &report.producers;
    let mean = |of: &dyn Fn(&ProducerReport) -> f64| {
        Percent(producers.iter().map(of).sum::<f64>() / producers.len().max(1) as f64)
    };
    Row::new(vec![
        Cell::Tagged(name.clone(), tag),
        Count(report.account.ok).into(),
        Count(report.account.failed).into(),
        Count(report.account.cancelled).into(),
        Count(producers.len() as u64).into(),
        mean(&|producer| producer.busy).into(),
        mean(&|producer| share(producer.waiting, report.lasted)).into(),
        Count(report.window).into(),
        Percent(share(report.source_waiting, report.lasted)).into(),
    ])
    .ink(Some(Ink::Warning).filter(|_| !tag.is_empty()))
}

const UNDELIVERED: &str = "Failed before the run ended early, counted as cancelled";

fn failures<'a>(
    report: &'a RunReport,
    heading: &'static str,
    failures: &'a [Failure],
    others: u64,
) -> Option<Section<'a>> {
    if failures.is_empty() && others == 0 {
        return None;
    }
    let item = Column::text(report.words().item, 0, usize::MAX);
    let columns = vec![item, Column::text("where", 0, usize::MAX), Column::long_text("error")];
    let rows = failures.iter().map(|failure| failure_row(report, failure));
    let table = Table::new("Final failures", columns)
        .layout(Layout::Lines)
        .limits(FAILURES)
        .counting("failure", others)
        .rows(rows);
    let line = Some(format!("{}:", heading.to_lowercase()));
    Some(Section { line, ..Section::new(heading).with(Block::Table(table)) })
}

fn failure_row<'a>(report: &RunReport, it: &'a Failure) -> Row<'a> {
    // The innermost cause is the most specific text. Around it are those that name item and place.
    let errors = it.causes.iter().rev().chain([&it.error]).map(String::as_str).collect();
    let more = it.causes.len().saturating_sub(1) * LONGEST;
    let line = clipped(&failure(report, it), (LONGEST_FAILURE + more).min(LONGEST_CHAIN));
    Row::new(vec![failed(report, it).into(), site(report, it).into(), Cell::Errors(errors)])
        .ink(Some(Ink::Bad))
        .lines(vec![line])
}

fn timeline(report: &RunReport) -> Option<Section<'_>> {
    let timeline = report.timeline.as_ref()?;
    if timeline.busy_ns.is_empty() || report.producers.is_empty() || report.lasted.is_zero() {
        return None;
    }
    let left_out = report.producers.len().saturating_sub(PRODUCERS.page) as u64;
    let mut section = Section::new("Timeline")
        .only(Medium::Page, Block::BusyChart(report, timeline))
        .only(Medium::Page, stragglers(report));
    if let Some(more) = more(left_out, report.words().producer) {
        section = section.explain(more);
    }
    Some(section)
}

/// The stragglers of a run. A page names them below the chart that marks them.
fn stragglers(report: &RunReport) -> Block<'_> {
    let (sentences, ink) = (stragglers::sentences(report), Some(Ink::Warning));
    Block::List(List { indent: "  ", sentences, ink })
}

fn throughput(report: &RunReport) -> Option<Section<'_>> {
    let is_empty = report.throughput.rates(1, report.lasted).iter().all(|(_, rate)| *rate == 0.0);
    let heading = format!("{} done over time", capitalised(report.words().items));
    let chart = Block::ThroughputChart(report);
    (!is_empty).then(|| Section::new(heading).only(Medium::Page, chart))
}

fn producers(report: &RunReport) -> Option<Section<'_>> {
    if report.producers.is_empty() {
        return None;
    }
    let words = report.words();
    let title = format!("{} and times of each {}", capitalised(words.items), words.producer);
    let rows = (0..report.producers.len()).map(|index| producer_row(report, index));
    let table = Table::new(title, producer_columns(report))
        .limits(PRODUCERS)
        .counting(words.producer, 0)
        .rows(rows);
    let section = Section::new(capitalised(words.producers))
        .with(Block::Table(table))
        .only(Medium::Text, stragglers(report))
        .remark(lack_of_events(report))
        .explain(format!(
            "Failed: failed attempts. Waiting: the time without {} {}, for the source or for room in the {}.",
            words.article, words.item, words.window
        ));
    Some(section)
}

fn producer_columns(report: &RunReport) -> Vec<Column> {
    let words = report.words();
    let mut columns = vec![
        Column::numbering(words.producer),
        Column::text("place", 11, LONGEST_PLACE),
        Column::number(words.items, 10),
        Column::number("failed", 8),
        Column::number("busy", 9),
        Column::number("working", 3),
        Column::number("waiting", 4),
        Column::number("init", 2),
    ];
    if !report.stages.is_empty() {
        columns.insert(1, Column::text("stage", u32::MAX, LONGEST_STAGE));
    }
    if report.has_item_events() {
        let latencies = [("p50", 7), ("p90", 1), ("p99", 5), ("max", 6)];
        columns.extend(latencies.map(|(head, rank)| Column::number(head, rank)));
    }
    columns
}

fn producer_row(report: &RunReport, index: usize) -> Row<'_> {
    let producer = &report.producers[index];
    let mut cells = vec![index.into()];
    if !report.stages.is_empty() {
        cells.push(producer.stage.as_deref().unwrap_or_default().into());
    }
    cells.extend([
        Cell::Tagged(producer.place.clone(), tag(producer)),
        Count(producer.items).into(),
        Count(producer.failed).into(),
        Cell::Share(producer.busy),
        Time(producer.working).into(),
        Time(producer.waiting).into(),
        Time(producer.init).into(),
    ]);
    if report.has_item_events() {
        let latency = producer.latency;
        let times = latency.map(|it| [it.p50, it.p90, it.p99, it.max].map(|it| Time(it).into()));
        cells.extend(times.unwrap_or_else(|| std::array::from_fn(|_| "".into())));
    }
    let ink = Some(Ink::Bad).filter(|_| producer.is_lost());
    Row::new(cells).ink(ink).notes(losses(report, index))
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

fn workers(report: &RunReport) -> Option<Section<'_>> {
    let producers = report.producers.iter().enumerate();
    let workers = producers.filter_map(|(number, it)| Some((number, it.worker.as_ref()?)));
    let workers: Vec<(usize, &WorkerReport)> = workers.collect();
    if workers.is_empty() {
        return None;
    }
    let columns = vec![
        Column::numbering(report.words().producer),
        Column::text("host", 6, LONGEST_PLACE),
        Column::number("pid", 8),
        Column::number("restarts", 7),
        Column::number("returned", 1),
        Column::number("wire wait", 5),
        Column::number("down", 4),
        Column::number("up", 3),
    ];
    let row = |(number, worker): (usize, &WorkerReport)| {
        Row::new(vec![
            number.into(),
            worker.host.as_deref().unwrap_or("this machine").into(),
            worker.pid.map_or_else(String::new, |pid| pid.to_string()).into(),
            Count(worker.restarts).into(),
            Count(worker.returned).into(),
            Time(worker.wire_wait).into(),
            Bytes(worker.bytes_down).into(),
            Bytes(worker.bytes_up).into(),
        ])
    };
    let table = Table::new(format!("The worker of each {}", report.words().producer), columns)
        .limits(WORKERS)
        .counting("worker", 0)
        .rows(workers.into_iter().map(row));
    let section = Section::new("Workers").with(Block::Table(table)).explain(
        "Returned: items that came back before a hook began them. Wire wait: the time in which a worker had \
         items while no hook ran. Down, up: bytes to the worker, and from it.",
    );
    Some(section)
}

fn window(report: &RunReport) -> Option<Section<'_>> {
    let is_in_progress = report.ending == Ending::InProgress;
    if is_in_progress && report.stalls.is_empty() {
        return None;
    }
    let words = report.words();
    let mut section = Section::new(format!("Source, {} and {}", words.window, words.consumer));
    if !is_in_progress {
        let waits = List { indent: "", sentences: waits(report), ink: None };
        section = section.with(Block::List(waits));
    }
    if !report.stalls.is_empty() {
        let title = format!("The {} that blocked the head of line for the longest", words.items);
        let columns = vec![Column::text(words.item, 0, usize::MAX), Column::number("waited", 0)];
        let rows = report.stalls.iter().map(|stall| {
            let (item, time) = (item(words, stall.item, stall.key.as_deref()), Time(stall.lasted));
            let line = format!("{time} for {item}");
            Row::new(vec![item.into(), time.into()]).lines(vec![line])
        });
        let table = Table::new(title, columns).layout(Layout::Lines).limits(STALLS).rows(rows);
        section = section.with(Block::Table(table));
    }
    Some(section.remark(lack_of_keys(report)))
}

fn slowest(report: &RunReport) -> Option<Section<'_>> {
    if report.slowest.is_empty() {
        return None;
    }
    let words = report.words();
    let columns = vec![
        Column::text(words.item, 0, usize::MAX),
        Column::number("took", 0),
        Column::number(words.producer, 0),
        Column::number("attempt", 0),
        Column::number("batch of", 0),
    ];
    let rows = report.slowest.iter().map(|slow| {
        Row::new(vec![
            item(words, slow.item, slow.key.as_deref()).into(),
            Time(slow.took).into(),
            slow.producer.into(),
            slow.attempt.into(),
            Count(slow.together).into(),
        ])
    });
    let table =
        Table::new("The attempts that took the longest", columns).limits(SLOWEST).rows(rows);
    let heading = format!("Slowest {}", words.items);
    Some(Section::new(heading).only(Medium::Page, Block::Table(table)))
}

fn retried(report: &RunReport) -> Option<Section<'_>> {
    let summary = retries(report)?;
    let words = report.words();
    let columns = vec![
        Column::text(words.item, 0, usize::MAX),
        Column::number("failed attempts", 0),
        Column::text("outcome", 0, usize::MAX),
        Column::long_text("last error"),
    ];
    let rows = report.retries.list.iter().map(|retried| {
        Row::new(vec![
            part(words, retried.item, retried.key.as_deref(), &retried.parts).into(),
            retried.failed_attempts.into(),
            retried.outcome.text().into(),
            Cell::Errors(vec![&retried.error]),
        ])
    });
    let table = Table::new(format!("{} that were retried", capitalised(words.items)), columns)
        .limits(RETRIED)
        .counting(words.item, report.retries.left_out)
        .rows(rows);
    let section = Section::new("Retries")
        .with(Block::Paragraph(summary, None))
        .only(Medium::Page, Block::Table(table));
    Some(section)
}

fn split_batches(report: &RunReport) -> Option<Section<'_>> {
    let summary = Block::Paragraph(report.splits.summary()?, Some(Ink::Warning));
    Some(Section::new("Split batches").with(summary))
}

fn provenance(report: &RunReport) -> Option<Section<'_>> {
    let facts = report.provenance.facts().map(|(name, value)| (name.to_owned(), value.into()));
    let mut facts: Vec<(String, Cell<'_>)> = facts.collect();
    if !report.provenance.command.is_empty() {
        facts.push(("command".to_owned(), Cell::Code(report.provenance.command_line())));
    }
    let is_empty = facts.is_empty();
    (!is_empty).then(|| Section::new("How it was run").only(Medium::Page, Block::Facts(facts)))
}
