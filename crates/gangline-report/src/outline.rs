//! The sections of a report.

mod attempts;
mod producers;

use self::attempts::{retried, slowest, split_batches, times};
use self::producers::{LONGEST_PLACE, LONGEST_STAGE, Percentile, producers, stragglers};
pub(super) use self::producers::{PRODUCERS, matters};
use super::causes::{NAME, by_cause};
use super::document::{Block, Cell, Document, Layout, Medium, RowLimits, Section, TableOf};
use super::formats::{Bytes, Count, Many, Percent, Time, capitalised, item, more, rate};
use super::gpu_load::GpuLoad;
use super::producer_report::{ProducerReport, WorkerReport, share};
use super::run_report::{RunReport, Stall};
use super::sentences::{self, headline, lack_of_keys, waits};
use super::vocabulary::Vocabulary;
use crate::account::Ending;
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::text_style::Ink;

const WORKERS: RowLimits = RowLimits { text: 16, page: PRODUCERS, open: 16 };
/// The first causes are open on the page, so that the rest of it is not far.
const FAILURES: RowLimits = RowLimits { text: 10, page: 1_000, open: 10 };
const STALLS: RowLimits = RowLimits { text: 3, open: 5, ..RowLimits::NONE };

/// The columns of a table in a summary.
const SUMMARY_COLUMNS: usize = 8;

/// A page names this many items of a cause.
const NAMES: usize = 1_000;

/// A page shortens keys to this many characters.
pub(super) const LONGEST_KEY: usize = 160;

/// Returns what a report shows, with keys of at most `key` characters.
pub(super) fn outline(report: &RunReport, key: usize) -> Document<'_> {
    let sections = [
        Some(account(report)),
        stages(report),
        failures(report, FAILED, &report.failures, key),
        failures(report, undelivered(report), &report.failures_undelivered, key),
        timeline(report, key),
        gpus(report),
        throughput(report),
        times(report),
        producers(report, key),
        workers(report),
        window(report, key),
        slowest(report, key),
        retried(report, key),
        split_batches(report),
        provenance(report),
    ];
    document(report, sections)
}

/// Returns the part of the outline that has room in another document: how the run ended, what limited it, and its parts.
pub(super) fn summary(report: &RunReport, key: usize) -> Document<'_> {
    let sections = [
        Some(account(report)),
        stages(report),
        failures(report, FAILED, &report.failures, key),
        producers(report, key),
    ];
    let mut document = document(report, sections);
    let blocks = document.sections.iter_mut().flat_map(|section| &mut section.blocks);
    for (_, block) in blocks {
        if let Block::Table(table) = block {
            table.omit_columns(SUMMARY_COLUMNS);
        }
    }
    document
}

fn document<'a, const N: usize>(
    report: &'a RunReport,
    sections: [Option<Section<'a>>; N],
) -> Document<'a> {
    let status = match report.ending {
        Ending::InProgress if !report.has_begun() => "No run yet",
        Ending::InProgress => "Run in progress",
        Ending::Finished => "Run finished",
        Ending::Failed => "Run failed",
        Ending::Cancelled => "Run cancelled",
    };
    Document {
        title: headline(report),
        ink: ink(report),
        kind: "gangline run report",
        heading: report
            .description
            .clone()
            .unwrap_or_else(|| status.to_owned() + &some_failed(report)),
        status: report.description.is_some().then(|| status.to_owned() + &some_failed(report)),
        leads: leads(report),
        sections: sections.into_iter().flatten().collect(),
    }
}

/// How many items of a run that has finished failed, if any did.
fn some_failed(report: &RunReport) -> String {
    let account = report.account;
    match (report.ending, account.failed) {
        (Ending::Finished, 1..) => {
            let all = Many(account.ok.saturating_add(account.failed), report.words().item);
            format!(": {} of {all} failed", Count(account.failed))
        }
        _ => String::new(),
    }
}

fn ink(report: &RunReport) -> Ink {
    match report.ending {
        Ending::Failed => Ink::Bad,
        Ending::Cancelled => Ink::Warning,
        // What failed is red where it is counted.
        Ending::Finished if report.account.failed > 0 => Ink::Warning,
        Ending::Finished => Ink::Good,
        Ending::InProgress => Ink::Strong,
    }
}

fn leads(report: &RunReport) -> Vec<(String, Option<Ink>)> {
    let provenance = report.provenance.line().filter(|_| report.has_begun());
    let conclusion = Some(&report.conclusion).filter(|conclusion| !conclusion.is_empty());
    let fallbacks = report.fallbacks.iter().map(|fallback| format!("devices: {fallback}"));
    let leads = provenance.map(|line| (line, Some(Ink::Faint))).into_iter();
    // The title says that a run was cancelled, and its error says no more. One among few failures is said there.
    let is_said = report.ending == Ending::Cancelled || is_listed(report);
    let error = report.error.clone().filter(|_| !is_said);
    let leads = leads.chain(error.map(|error| (error, Some(Ink::Bad))));
    let leads = leads.chain(conclusion.map(|it| (it.clone(), Some(Ink::Strong))));
    leads.chain(fallbacks.map(|it| (it, Some(Ink::Warning)))).collect()
}

/// Whether the failure that ended the run is in the list of failures that a text has too.
fn is_listed(report: &RunReport) -> bool {
    let Some(end) = &report.ended_by else { return false };
    let is_end =
        |it: &Failure| (it.item, &it.error, &it.causes) == (end.item, &end.error, &end.causes);
    report.failures.iter().take(FAILURES.text).any(is_end)
}

fn account(report: &RunReport) -> Section<'_> {
    let account = report.account;
    let count = |count: u64, ink: Option<Ink>| {
        Some(Cell::Inked(Count(count).to_string(), ink.filter(|_| count > 0)))
    };
    let any = |number: u64, ink| count(number, ink).filter(|_| number > 0);
    let latency = |of: Percentile| report.latency.map(|it| Time(of(it)).into());
    let answers = report.calls.and_then(|calls| calls.latency);
    let answer = |of: Percentile| answers.map(|it| Time(of(it)).into());
    let figures = [
        ("lasted", Some(Time(report.lasted).into())),
        ("ok", count(account.ok, Some(Ink::Good))),
        ("failed", count(account.failed, Some(Ink::Bad))),
        ("already done", any(account.already_done, None)),
        ("cancelled", any(account.cancelled, Some(Ink::Warning))),
        ("unread", any(account.unread.unwrap_or(0), None)),
        ("retried", any(report.retries.items, None)),
        ("ok per second", report.ok_per_second().map(|it| rate(it).into())),
        ("median", latency(|it| it.p50)),
        ("99th percentile", latency(|it| it.p99)),
        ("slowest", latency(|it| it.max)),
        ("calls that were late", any(report.calls.map_or(0, |it| it.late), Some(Ink::Bad))),
        ("median answer", answer(|it| it.p50)),
        ("99 % of the answers", answer(|it| it.p99)),
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
        .names("stage", LONGEST_STAGE, |it| Cell::Tagged(it.1.0.clone(), tag(it.0)))
        .number("ok", 8, |(_, (_, it))| Count(it.account.ok))
        .number("failed", 7, |(_, (_, it))| Count(it.account.failed))
        .number("cancelled", 2, |(_, (_, it))| Count(it.account.cancelled))
        .number(report.words().producers, 6, |(_, (_, it))| Count(it.producers.len() as u64))
        .number("busy", 5, |(_, (_, it))| mean(it, |_, producer| producer.busy))
        .number("waiting", 4, |(_, (_, it))| mean(it, |it, one| share(one.waiting, it.lasted)))
        .number("window", 1, |(_, (_, it))| Count(it.window))
        .number("full", 3, |(_, (_, it))| Percent(share(it.source_waiting, it.lasted)))
        .rows(|row, it| row.ink = Some(Ink::Warning).filter(|_| is_limiting(it.0)));
    let section = Section::new("Stages").with(table.end()).explain(format!(
        "Busy, waiting: the average of the {}. Full: the time with a full window.",
        report.words().producers
    ));
    Some(section)
}

const FAILED: &str = "Failures";

/// The heading above what the account counts as cancelled. The program ends its running jobs with the run.
fn undelivered(report: &RunReport) -> &'static str {
    match report.vocabulary {
        Vocabulary::Items | Vocabulary::Workers => {
            "Failed before the run ended early, counted as cancelled"
        }
        Vocabulary::Jobs => "Ended with the run, counted as cancelled",
    }
}

fn failures<'a>(
    report: &'a RunReport,
    heading: &'static str,
    failures: &'a [Failure],
    key: usize,
) -> Option<Section<'a>> {
    let others = if heading == FAILED { report.failures_left_out } else { 0 };
    if failures.is_empty() && others == 0 {
        return None;
    }
    let words = report.words();
    let causes = by_cause(failures);
    let is_shared = causes.iter().any(|cause| cause.others(1) > 0);
    let note = format!("{NAME} stands for the key of the {}, or for a number.", words.item);
    let table = TableOf::new("Final failures by cause", FAILURES, causes.iter())
        .counting("cause", 0)
        .text("failed", 0, usize::MAX, |it| it.count(report))
        .errors("error", |it| it.errors())
        .text("where", 0, usize::MAX, |it| it.site(report))
        .text(words.items, 0, usize::MAX, |it| {
            Cell::Names(it.names(report, key, NAMES), it.others(NAMES))
        })
        .lines(Layout::Lines, |it| it.lines(report, key))
        .rows(|row, _| row.ink = Some(Ink::Bad));
    let section = Section::new(heading).with(table.end()).remark(more(others, "failure"));
    let retry = Some(&report.provenance.retry).filter(|it| heading == FAILED && !it.is_empty());
    let retry =
        retry.map(|it| ("runs these again".to_owned(), Cell::Code(Provenance::command_line(it))));
    let section = match retry {
        Some(retry) => section.only(Medium::Page, Block::Facts(vec![retry])),
        None => section,
    };
    let section = if is_shared { section.explain(note) } else { section };
    Some(Section { line: Some(format!("{}:", heading.to_lowercase())), ..section })
}

fn timeline(report: &RunReport, key: usize) -> Option<Section<'_>> {
    let timeline = report.timeline.as_ref()?;
    if timeline.busy_ns.is_empty() || report.producers.is_empty() || report.lasted.is_zero() {
        return None;
    }
    let left_out = report.producers.len().saturating_sub(PRODUCERS) as u64;
    let section = Section::new("Timeline")
        .only(Medium::Page, Block::BusyChart(report, timeline))
        .only(Medium::Page, stragglers(report, key));
    Some(match more(left_out, report.words().producer) {
        Some(more) => section.explain(more),
        None => section,
    })
}

fn gpus(report: &RunReport) -> Option<Section<'_>> {
    if report.gpus.is_empty() || report.lasted.is_zero() {
        return None;
    }
    let sentences = report.gpus.iter().map(GpuLoad::sentence);
    let section = Section::new("GPUs")
        .only(Medium::Page, Block::GpuChart(report))
        .with(Block::List("", sentences.collect(), None))
        .explain(
            "Of each GPU, the upper row is the share of the time in which it computed, and the lower row the share \
             of its memory in use. Other programs on the GPU count too.",
        );
    Some(section)
}

fn throughput(report: &RunReport) -> Option<Section<'_>> {
    let is_empty = report.throughput.rates(1, report.lasted).iter().all(|(_, rate)| *rate == 0.0);
    let heading = format!("{} done over time", capitalised(report.words().items));
    let chart = Block::ThroughputChart(report);
    (!is_empty).then(|| Section::new(heading).only(Medium::Page, chart))
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
    // Where a producer is a worker, what it runs in is a process.
    let (heading, noun) = match words.producer {
        "worker" => ("Processes", "process"),
        _ => ("Workers", "worker"),
    };
    let title = format!("The {noun} of each {}", words.producer);
    let table = TableOf::new(title, WORKERS, workers.into_iter())
        .counting(noun, 0)
        .numbers(words.producer, |it| it.0)
        .text("host", 6, LONGEST_PLACE, |(_, it)| host(it))
        .number("pid", 8, |(_, it)| pid(it))
        .number("restarts", 7, |(_, it)| Count(it.restarts))
        .number("returned", 1, |(_, it)| Count(it.returned))
        .number("wire wait", 5, |(_, it)| Time(it.wire_wait))
        .number("down", 4, |(_, it)| Bytes(it.bytes_down))
        .number("up", 3, |(_, it)| Bytes(it.bytes_up));
    let section = Section::new(heading).with(table.end()).explain(format!(
        "Returned: items that came back before a {hook} began them. Wire wait: the time in which a {noun} had \
         items while no {hook} ran. Down, up: bytes to the {noun}, and from it.",
        hook = words.hook,
    ));
    Some(section)
}

fn window(report: &RunReport, key: usize) -> Option<Section<'_>> {
    let waits = match report.ending {
        Ending::InProgress => vec![],
        _ => waits(report),
    };
    let stalls = report.stalls.iter().filter(|stall| sentences::matters(report, stall.lasted));
    let stalls: Vec<&Stall> = stalls.collect();
    if waits.is_empty() && stalls.is_empty() {
        return None;
    }
    let words = report.words();
    let mut section = Section::new(format!("Source, {} and {}", words.window, words.consumer));
    if !waits.is_empty() {
        section = section.with(Block::List("", waits, None));
    }
    if !stalls.is_empty() {
        let title = format!("The {} that blocked the head of line for the longest", words.items);
        let name = |stall: &&Stall| item(words, stall.item, stall.key.as_deref(), key);
        let table = TableOf::new(title, STALLS, stalls.into_iter())
            .text(words.item, 0, usize::MAX, name)
            .number("waited", 0, |stall| Time(stall.lasted))
            .lines(Layout::Lines, |it| vec![format!("{} for {}", Time(it.lasted), name(it))]);
        section = section.with(table.end());
    }
    Some(section.remark(lack_of_keys(report)))
}

fn provenance(report: &RunReport) -> Option<Section<'_>> {
    // The settings of the library are no words of the program or the package, and defaults say nothing.
    let hides = |name: &str, value: &str| {
        let is_default = match name.rsplit(": ").next() {
            Some("window") => value == "grows as needed",
            Some("order") => value == "input",
            _ => false,
        };
        report.provenance.settings.contains_key(name)
            && (is_default || report.vocabulary != Vocabulary::Items)
    };
    let facts = report.provenance.facts().filter(|(name, value)| !hides(name, value));
    let facts = facts.map(|(name, value)| (name.to_owned(), value.into()));
    let mut facts: Vec<(String, Cell<'_>)> = facts.collect();
    let command = &report.provenance.command;
    if !command.is_empty() {
        facts.push(("command".to_owned(), Cell::Code(Provenance::command_line(command))));
    }
    let is_empty = facts.is_empty();
    (!is_empty).then(|| Section::new("How it was run").only(Medium::Page, Block::Facts(facts)))
}

#[cfg(test)]
mod tests {
    use super::super::document::TableRow;
    use super::*;
    use crate::formats::Plain;
    use crate::samples::{PlayedRun, eventful, failure};
    use crate::stages::{self, StagePart};
    use crate::text_style::TextStyle;

    /// A page as its reader sees it.
    fn seen(page: &str) -> String {
        let body = page.split_once("<body>").unwrap().1;
        let texts = body.split('<').map(|part| part.split_once('>').map_or(part, |it| it.1));
        let mut seen = texts.collect::<String>();
        for (escaped, character) in
            [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        {
            seen = seen.replace(escaped, character);
        }
        words(&seen)
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The sentences and cells of a block that both renderers show.
    fn shared(block: &Block<'_>) -> Vec<String> {
        match block {
            Block::Paragraph(text, _) => vec![text.clone()],
            Block::List(_, sentences, _) => sentences.clone(),
            Block::Table(table) => {
                let rows = table.rows.iter().take(table.limits.text);
                let texts = |row: &TableRow<'_>| -> Vec<String> {
                    let cells = row.cells.iter().map(|cell| cell.text().into_owned());
                    let cells = cells.filter(|_| table.layout == Layout::Columns);
                    cells.chain(row.notes.clone()).collect()
                };
                rows.flat_map(texts).collect()
            }
            _ => vec![],
        }
    }

    #[test]
    fn what_both_renderers_show_is_the_same() {
        let mut report = eventful(64);
        // The text clips longer ones.
        for producer in &mut report.producers {
            producer.place = "cuda:0".to_owned();
            producer.worker.iter_mut().for_each(|worker| worker.host = None);
        }
        let style = TextStyle::plain().columns(10_000);
        let (text, page) = (words(&report.styled(style).to_string()), seen(&report.to_html()));
        let document = outline(&report, LONGEST_KEY);
        let both = document.sections.iter().flat_map(|section| &section.blocks);
        let both = both.filter(|(medium, _)| *medium == Medium::Both);
        let shared: Vec<String> = both.flat_map(|(_, block)| shared(block)).collect();
        assert!(shared.len() > 100, "{shared:?}");
        for shown in shared.iter().map(|shown| words(&Plain(shown).to_string())) {
            assert!(text.contains(&shown), "{shown}: {text}");
            assert!(page.contains(&shown.replace('`', "")), "{shown}: {page}");
        }
    }

    #[test]
    fn the_failure_that_ended_a_run_is_said_once() {
        let mut played = PlayedRun::new(1);
        let failure = failure(3, 0, 1, "bad pixel");
        played.fail(1_000, failure.clone());
        played.totals.ending = Ending::Failed;
        played.totals.error = Some(failure.to_string());
        played.totals.ended_by = Some(failure);
        let report = played.end(2_000);
        for shown in [report.to_string(), seen(&report.to_html())] {
            assert_eq!(shown.matches("bad pixel").count(), 1, "{shown}");
        }
        let unlisted = RunReport { failures: vec![], ..report };
        assert!(unlisted.to_string().contains("bad pixel"), "{unlisted}");
    }

    #[test]
    fn settings_that_are_defaults_are_not_listed() {
        let mut report = eventful(1);
        report.provenance.settings = [
            ("first: window", "grows as needed"),
            ("first: order", "input"),
            ("second: window", "512"),
            ("second: order", "completion"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let page = seen(&report.to_html());
        assert!(page.contains("second: window512") && page.contains("second: order"), "{page}");
        assert!(!page.contains("first: "), "{page}");
    }

    #[test]
    fn producers_of_a_cluster_are_workers_in_all_of_its_report() {
        let mut run = PlayedRun::on(vec!["node/0".to_owned()], Some("work"));
        let worker = WorkerReport { host: Some("node".to_owned()), ..WorkerReport::default() };
        run.totals.producers[0].worker = Some(worker);
        run.consume(500, 10);
        let report = run.end(20_000);
        for shown in [report.to_string(), report.to_html()] {
            assert!(!shown.to_lowercase().contains("producer"), "{shown}");
        }
    }

    #[test]
    fn slow_items_of_a_pipeline_have_their_stage() {
        let part = |name: &str| StagePart { name: Some(name.to_owned()), report: eventful(1) };
        let account = crate::account::Account::default();
        let page = stages::report(vec![part("decode"), part("infer")], account).to_html();
        let slowest = page.split("<h2>Slowest items</h2>").nth(1).unwrap();
        let slowest = slowest.split("</section>").next().unwrap();
        assert!(slowest.contains("data-head=\"stage\">infer<"), "{slowest}");
    }
}
