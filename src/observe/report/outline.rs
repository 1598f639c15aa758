//! The sections of a report.

use std::time::Duration;

use super::document::{Block, Cell, Document, Layout, Medium, RowLimits, Section, TableOf};
use super::formats::{Bytes, Count, Percent, Time, capitalised, clipped, item, more, part, rate};
use super::latency::Latencies;
use super::producer_report::{ProducerReport, share};
use super::retries::Retried;
use super::run_report::{RunReport, Stall};
use super::sentences::{
    LONGEST, failed, failure, headline, lack_of_events, lack_of_keys, losses, retries, site, waits,
};
use super::stragglers;
use crate::observe::account::Ending;
use crate::observe::failure::Failure;
use crate::observe::text_style::Ink;
use crate::observe::worker_report::WorkerReport;

/// More producers are only counted.
pub(super) const PRODUCERS: RowLimits = RowLimits { text: 32, page: 256, ..RowLimits::NONE };
const WORKERS: RowLimits = RowLimits { text: 16, ..PRODUCERS };
/// The first failures are open on the page, so that the rest of it is not far.
const FAILURES: RowLimits = RowLimits { text: 10, page: 1_000, open: 10 };
const RETRIED: RowLimits = RowLimits { text: 0, page: 1_000, open: 5 };
const STALLS: RowLimits = RowLimits { text: 3, open: 5, ..RowLimits::NONE };
const SLOWEST: RowLimits = RowLimits { text: 0, ..STALLS };

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

fn leads(report: &RunReport) -> Vec<(String, Option<Ink>)> {
    let provenance = report.provenance.line().filter(|_| report.has_begun());
    let conclusion = Some(&report.conclusion).filter(|conclusion| !conclusion.is_empty());
    let fallbacks = report.fallbacks.iter().map(|fallback| format!("devices: {fallback}"));
    let leads = provenance.map(|line| (line, Some(Ink::Faint))).into_iter();
    let leads = leads.chain(report.error.clone().map(|error| (error, Some(Ink::Bad))));
    let leads = leads.chain(conclusion.map(|it| (it.clone(), Some(Ink::Strong))));
    leads.chain(fallbacks.map(|it| (it, Some(Ink::Warning)))).collect()
}

fn account(report: &RunReport) -> Section<'_> {
    let account = report.account;
    let count = |count: u64, ink: Option<Ink>| {
        Some(Cell::Inked(Count(count).to_string(), ink.filter(|_| count > 0)))
    };
    let any = |number: u64, ink| count(number, ink).filter(|_| number > 0);
    let per_second = account.ok as f64 / report.lasted.as_secs_f64();
    let latency = |of: Percentile| report.latency.map(|it| Time(of(it)).into());
    let figures = [
        ("lasted", Some(Time(report.lasted).into())),
        ("ok", count(account.ok, Some(Ink::Good))),
        ("failed", count(account.failed, Some(Ink::Bad))),
        ("already done", any(account.already_done, None)),
        ("cancelled", any(account.cancelled, Some(Ink::Warning))),
        ("unread", any(account.unread.unwrap_or(0), None)),
        ("retried", any(report.retries.items, None)),
        ("ok per second", per_second.is_finite().then(|| rate(per_second).into())),
        ("median", latency(|it| it.p50)),
        ("99th percentile", latency(|it| it.p99)),
        ("slowest", latency(|it| it.max)),
        ("threads abandoned", any(report.threads_abandoned(), Some(Ink::Bad))),
    ];
    let figures = figures.into_iter().filter_map(|(name, cell)| Some((name.to_owned(), cell?)));
    Section::new("Account").with(Block::Figures(figures.collect()))
}

fn stages(report: &RunReport) -> Option<Section<'_>> {
    if report.stages.is_empty() {
        return None;
    }
    let mean = |report: &RunReport, of: fn(&RunReport, &ProducerReport) -> f64| {
        let shares = report.producers.iter().map(|producer| of(report, producer));
        Percent(shares.sum::<f64>() / report.producers.len().max(1) as f64)
    };
    let stages = report.stages.iter().map(|stage| (&stage.name, &stage.report)).enumerate();
    let is_limiting = |number: usize| report.bottleneck_stage == Some(number + 1);
    let tag = |number| if is_limiting(number) { "limited the run" } else { "" };
    let table = TableOf::new("Items and times of each stage", RowLimits::NONE, stages)
        .text("stage", u32::MAX, LONGEST_STAGE, |it| Cell::Tagged(it.1.0.clone(), tag(it.0)))
        .number("ok", 8, |(_, (_, it))| Count(it.account.ok))
        .number("failed", 7, |(_, (_, it))| Count(it.account.failed))
        .number("cancelled", 2, |(_, (_, it))| Count(it.account.cancelled))
        .number("producers", 6, |(_, (_, it))| Count(it.producers.len() as u64))
        .number("busy", 5, |(_, (_, it))| mean(it, |_, producer| producer.busy))
        .number("waiting", 4, |(_, (_, it))| mean(it, |it, one| share(one.waiting, it.lasted)))
        .number("window", 1, |(_, (_, it))| Count(it.window))
        .number("full", 3, |(_, (_, it))| Percent(share(it.source_waiting, it.lasted)))
        .rows(|row, it| row.ink = Some(Ink::Warning).filter(|_| is_limiting(it.0)));
    let concluded = report.stages.iter().filter(|stage| !stage.report.conclusion.is_empty());
    let conclusions = concluded.map(|it| format!("{}: {}", it.name, it.report.conclusion));
    let section = Section::new("Stages")
        .with(table.end())
        .only(Medium::Page, Block::List("", conclusions.collect(), None))
        .explain("Busy, waiting: the average of the producers. Full: the time with a full window.");
    Some(section)
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
    let line = |it: &&Failure| {
        let more = it.causes.len().saturating_sub(1) * LONGEST;
        vec![clipped(&failure(report, it), (LONGEST_FAILURE + more).min(LONGEST_CHAIN))]
    };
    let table = TableOf::new("Final failures", FAILURES, failures.iter())
        .counting("failure", others)
        .text(report.words().item, 0, usize::MAX, |it| failed(report, it))
        .text("where", 0, usize::MAX, |it| site(report, it))
        // The innermost cause is the most specific text. Around it are those that name item and place.
        .errors("error", |it| it.causes.iter().rev().chain([&it.error]).map(|it| &**it).collect())
        .lines(Layout::Lines, line)
        .rows(|row, _| row.ink = Some(Ink::Bad));
    let line = Some(format!("{}:", heading.to_lowercase()));
    Some(Section { line, ..Section::new(heading).with(table.end()) })
}

fn timeline(report: &RunReport) -> Option<Section<'_>> {
    let timeline = report.timeline.as_ref()?;
    if timeline.busy_ns.is_empty() || report.producers.is_empty() || report.lasted.is_zero() {
        return None;
    }
    let left_out = report.producers.len().saturating_sub(PRODUCERS.page) as u64;
    let section = Section::new("Timeline")
        .only(Medium::Page, Block::BusyChart(report, timeline))
        .only(Medium::Page, stragglers(report));
    Some(match more(left_out, report.words().producer) {
        Some(more) => section.explain(more),
        None => section,
    })
}

/// The stragglers of a run. A page names them below the chart that marks them.
fn stragglers(report: &RunReport) -> Block<'_> {
    Block::List("  ", stragglers::sentences(report), Some(Ink::Warning))
}

fn throughput(report: &RunReport) -> Option<Section<'_>> {
    let is_empty = report.throughput.rates(1, report.lasted).iter().all(|(_, rate)| *rate == 0.0);
    let heading = format!("{} done over time", capitalised(report.words().items));
    let chart = Block::ThroughputChart(report);
    (!is_empty).then(|| Section::new(heading).only(Medium::Page, chart))
}

type Percentile = fn(Latencies) -> Duration;

fn producers(report: &RunReport) -> Option<Section<'_>> {
    if report.producers.is_empty() {
        return None;
    }
    let words = report.words();
    let title = format!("{} and times of each {}", capitalised(words.items), words.producer);
    let mut table = TableOf::new(title, PRODUCERS, report.producers.iter().enumerate())
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
        .number("waiting", 4, |(_, it)| Time(it.waiting))
        .number("init", 2, |(_, it)| Time(it.init));
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
    let table = table.rows(|row, (number, it)| {
        row.ink = Some(Ink::Bad).filter(|_| it.is_lost());
        row.notes = losses(report, *number);
    });
    let section = Section::new(capitalised(words.producers))
        .with(table.end())
        .only(Medium::Text, stragglers(report))
        .remark(lack_of_events(report))
        .explain(format!(
            "Failed: failed attempts. Waiting: the time without {} {}, for the source or for room in the {}.",
            words.article, words.item, words.window
        ));
    Some(section)
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
    let words = report.words();
    let host = |it: &WorkerReport| it.host.as_deref().unwrap_or("this machine").to_owned();
    let pid = |it: &WorkerReport| it.pid.map_or_else(String::new, |pid| pid.to_string());
    let title = format!("The worker of each {}", words.producer);
    let table = TableOf::new(title, WORKERS, workers.into_iter())
        .counting("worker", 0)
        .numbers(words.producer, |it| it.0)
        .text("host", 6, LONGEST_PLACE, |(_, it)| host(it))
        .number("pid", 8, |(_, it)| pid(it))
        .number("restarts", 7, |(_, it)| Count(it.restarts))
        .number("returned", 1, |(_, it)| Count(it.returned))
        .number("wire wait", 5, |(_, it)| Time(it.wire_wait))
        .number("down", 4, |(_, it)| Bytes(it.bytes_down))
        .number("up", 3, |(_, it)| Bytes(it.bytes_up));
    let section = Section::new("Workers").with(table.end()).explain(
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
        section = section.with(Block::List("", waits(report), None));
    }
    if !report.stalls.is_empty() {
        let title = format!("The {} that blocked the head of line for the longest", words.items);
        let name = |stall: &&Stall| item(words, stall.item, stall.key.as_deref());
        let table = TableOf::new(title, STALLS, report.stalls.iter())
            .text(words.item, 0, usize::MAX, name)
            .number("waited", 0, |stall| Time(stall.lasted))
            .lines(Layout::Lines, |it| vec![format!("{} for {}", Time(it.lasted), name(it))]);
        section = section.with(table.end());
    }
    Some(section.remark(lack_of_keys(report)))
}

fn slowest(report: &RunReport) -> Option<Section<'_>> {
    if report.slowest.is_empty() {
        return None;
    }
    let words = report.words();
    let title = "The attempts that took the longest";
    let table = TableOf::new(title, SLOWEST, report.slowest.iter())
        .text(words.item, 0, usize::MAX, |it| item(words, it.item, it.key.as_deref()))
        .number("took", 0, |it| Time(it.took))
        .number(words.producer, 0, |it| it.producer)
        .number("attempt", 0, |it| it.attempt)
        .number("batch of", 0, |it| Count(it.together));
    let heading = format!("Slowest {}", words.items);
    Some(Section::new(heading).only(Medium::Page, table.end()))
}

fn retried(report: &RunReport) -> Option<Section<'_>> {
    let summary = retries(report)?;
    let words = report.words();
    let title = format!("{} that were retried", capitalised(words.items));
    let name = |it: &&Retried| part(words, it.item, it.key.as_deref(), &it.parts);
    let table = TableOf::new(title, RETRIED, report.retries.list.iter())
        .counting(words.item, report.retries.left_out)
        .text(words.item, 0, usize::MAX, name)
        .number("failed attempts", 0, |it| it.failed_attempts)
        .text("outcome", 0, usize::MAX, |it| it.outcome.text())
        .errors("last error", |it| vec![&it.error]);
    let section = Section::new("Retries").with(Block::Paragraph(summary, None));
    Some(section.only(Medium::Page, table.end()))
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
