//! The report as text for a terminal.

use std::fmt;
use std::time::Duration;

use textwrap::core::display_width;

use super::failure_text::{LONGEST, line};
use super::latency::Latencies;
use super::producer::ProducerReport;
use super::run_report::{Ending, RunReport};
use super::splits::splits;
use super::stage_rows::{HEADS, figures, is_limiting};
use super::stragglers;
pub(super) use super::text::item;
use super::text::{Count, Many, Percent, Plain, Time, Times, clipped, left_out};
use super::worker_rows::{self, workers};
use crate::observe::failure::Failure;
use crate::observe::text_style::{Ink, TextStyle};

/// The heading of failures of items that the consumer did not come to.
const UNDELIVERED: &str = "failed before the run ended early, counted as cancelled:";

/// Entries beyond these are only counted.
const MOST_PRODUCERS: usize = 32;
const MOST_WORKERS: usize = 16;
const MOST_FAILURES: usize = 10;
const MOST_STALLS: usize = 3;

const LONGEST_FAILURE: usize = 230;
/// The most characters of a failure with several causes.
const LONGEST_CHAIN: usize = 800;

/// A report as text for a terminal: see [`RunReport::styled`].
pub(super) struct Styled<'a> {
    pub(super) report: &'a RunReport,
    pub(super) style: TextStyle,
}

/// Formats the report in short, in 80 columns without colours: the account, the bottleneck, the first 32
/// producers and ten failures. Control characters in texts are escaped. [`RunReport::styled`] suits a
/// terminal.
impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.styled(TextStyle::plain()).fmt(f)
    }
}

impl fmt::Display for Styled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Styled { report, style } = *self;
        let out = &mut Lines { f, style };
        out.text(&headline(report), Some(ink_of(report)))?;
        if let Some(line) = report.provenance.line().filter(|_| report.has_begun()) {
            out.text(&line, Some(Ink::Faint))?;
        }
        if let Some(error) = &report.error {
            out.text(&clipped(error, LONGEST_FAILURE), Some(Ink::Bad))?;
        }
        if report.producers.is_empty() {
            return Ok(());
        }
        out.text(&report.conclusion, Some(Ink::Strong))?;
        for fallback in &report.fallbacks {
            out.text(&format!("devices: {fallback}"), Some(Ink::Warning))?;
        }
        write_stages(out, report)?;
        write_producers(out, report)?;
        write_workers(out, report)?;
        write_waits(out, report)?;
        write_retries(out, report)?;
        write_failures(out, report)
    }
}

fn ink_of(report: &RunReport) -> Ink {
    match report.ending {
        Ending::Failed => Ink::Bad,
        Ending::Cancelled => Ink::Warning,
        Ending::Finished if report.account.failed > 0 => Ink::Bad,
        Ending::Finished => Ink::Good,
        Ending::InProgress => Ink::Strong,
    }
}

/// Writes lines of a style.
struct Lines<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    style: TextStyle,
}

impl Lines<'_, '_> {
    /// Writes an untrusted text, wrapped.
    fn text(&mut self, text: &str, ink: Option<Ink>) -> fmt::Result {
        self.entry("", text, ink)
    }

    /// Writes an untrusted text of a list, wrapped and indented.
    fn entry(&mut self, indent: &str, text: &str, ink: Option<Ink>) -> fmt::Result {
        let others = if indent.is_empty() { "" } else { "    " };
        let lines = self.style.wrapped(&Plain(text).to_string(), indent, others);
        lines.iter().try_for_each(|line| self.line(line, ink))
    }

    fn line(&mut self, line: &str, ink: Option<Ink>) -> fmt::Result {
        match ink {
            Some(ink) => writeln!(self.f, "{}", self.style.colors.paint(ink, line)),
            None => writeln!(self.f, "{line}"),
        }
    }

    fn more(&mut self, more: u64, noun: &'static str) -> fmt::Result {
        let plural = if more == 1 { "" } else { "s" };
        match more {
            0 => Ok(()),
            _ => self.line(&format!("  and {} more {noun}{plural}", Count(more)), Some(Ink::Faint)),
        }
    }
}

/// How the run ended, and its item counts.
pub(super) fn headline(report: &RunReport) -> String {
    let description = report.description.as_ref();
    let description =
        description.map_or(String::new(), |text| format!("{}: ", clipped(text, LONGEST)));
    match report.has_begun() {
        true => format!(
            "{description}{} {}: {}",
            ending(report.ending),
            Time(report.lasted),
            account(report)
        ),
        false => format!("{description}no run yet"),
    }
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::InProgress => "in progress for",
        Ending::Finished => "finished in",
        Ending::Failed => "failed after",
        Ending::Cancelled => "cancelled after",
    }
}

fn account(report: &RunReport) -> String {
    let account = report.account;
    let mut text = format!("{} ok, {} failed", Count(account.ok), Count(account.failed));
    for (count, name) in [(account.already_done, "already done"), (account.cancelled, "cancelled")]
    {
        if count > 0 {
            text.push_str(&format!(", {} {name}", Count(count)));
        }
    }
    if let Some(unread) = account.unread.filter(|&unread| unread > 0) {
        text.push_str(&format!(", {} unread", Count(unread)));
    }
    text
}

/// One line each for the source, the consumer and the order.
pub(super) fn waits(report: &RunReport) -> Vec<String> {
    // In a pipeline, the window that holds the source back is that of the first stage.
    let window = report.stages.first().map_or(report.window, |stage| stage.report.window);
    let words = report.words();
    let mut waits = vec![
        format!(
            "source: worked {}, held back {}; the {} has {}",
            Time(report.source_working),
            Time(report.source_waiting),
            words.window,
            Many(window, words.item),
        ),
        format!(
            "{}: worked {}, waited {} without a result",
            words.consumer,
            Time(report.consumer_working),
            Time(report.consumer_waiting),
        ),
    ];
    if report.consumer_abandoned {
        let consumer = words.consumer;
        waits.push(format!("the {consumer} did not return in time: its thread was abandoned"));
    }
    if !report.head_stalled.is_zero() {
        let stalled = Time(report.head_stalled);
        let item = words.item;
        waits.push(format!("order: later results waited {stalled} for one missing {item}"));
    }
    waits
}

/// Summarises the retried items.
pub(super) fn retries(report: &RunReport) -> Option<String> {
    let retries = &report.retries;
    (retries.attempts > 0).then(|| {
        format!(
            "{} retried after {}: {} succeeded, {} failed",
            Many(retries.items, report.words().item),
            Many(retries.attempts, "failed attempt"),
            Count(retries.succeeded),
            Count(retries.failed),
        )
    })
}

/// Explains missing measurements per item.
pub(super) fn lack_of_events(report: &RunReport) -> Option<String> {
    if report.lacks_item_events() {
        return Some(
            "No item events: call `.timeline()` on the builder to get latencies, slowest items and a timeline."
                .to_owned(),
        );
    }
    (report.events_lost > 0).then(|| {
        format!(
            "{} came too fast to be recorded: latencies, slowest {} and the timeline lack them.",
            Many(report.events_lost, report.words().item_event),
            report.words().items,
        )
    })
}

/// Explains missing keys in the list of stalls.
pub(super) fn lack_of_keys(report: &RunReport) -> Option<String> {
    let with_key = report.stalls.iter().filter(|stall| stall.key.is_some()).count();
    let is_mixed = (1..report.stalls.len()).contains(&with_key);
    let items = report.words().items;
    is_mixed.then(|| format!("Keys are kept for the longest waits and the slowest {items} only."))
}

type Percentile = fn(&Latencies) -> Duration;

/// A column of the table of producers. Of those that do not fit, the ones of the lowest rank are omitted.
struct Column {
    head: &'static str,
    rank: u32,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let widths = self.cells.iter().map(|cell| display_width(cell));
        widths.chain([self.head.len()]).max().unwrap_or(0)
    }
}

fn write_stages(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    if report.stages.is_empty() {
        return Ok(());
    }
    let names = report.stages.iter().map(|stage| Plain(&clipped(&stage.name, 16)).to_string());
    let mut columns = vec![Column { head: "stage", rank: 9, cells: names.collect() }];
    let figures: Vec<_> = report.stages.iter().map(figures).collect();
    for ((head, index), rank) in HEADS.into_iter().zip(0..).zip([8, 7, 2, 6, 5, 4, 1, 3]) {
        let cells = figures.iter().map(|figures| figures[index].clone()).collect();
        columns.push(Column { head, rank, cells });
    }
    let columns = fitting(columns, out.style.columns);
    out.line("", None)?;
    out.line(&row(&columns, |column| column.head), Some(Ink::Faint))?;
    for stage in 0..report.stages.len() {
        let ink = if is_limiting(report, stage) { Some(Ink::Warning) } else { None };
        out.line(&row(&columns, |column| &column.cells[stage]), ink)?;
    }
    Ok(())
}

fn write_producers(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    let columns = fitting(columns(report), out.style.columns);
    out.line("", None)?;
    out.line(&row(&columns, |column| column.head), Some(Ink::Faint))?;
    for index in 0..report.producers.len().min(MOST_PRODUCERS) {
        let ink = if report.producers[index].is_lost() { Some(Ink::Bad) } else { None };
        out.line(&row(&columns, |column| &column.cells[index]), ink)?;
    }
    out.more(left_out(MOST_PRODUCERS, report.producers.len(), 0), report.words().producer)?;
    let losses = losses(report, MOST_PRODUCERS);
    let notes = losses.into_iter().chain(stragglers::sentences(report));
    notes.into_iter().try_for_each(|note| out.entry("  ", &note, Some(Ink::Warning)))
}

fn write_workers(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    let workers = workers(report);
    if workers.is_empty() {
        return Ok(());
    }
    let more = left_out(MOST_WORKERS, workers.len(), 0);
    let workers = &workers[..workers.len().min(MOST_WORKERS)];
    let numbers = workers.iter().map(|(number, _)| number.to_string());
    let mut columns = vec![Column { head: "#", rank: 9, cells: numbers.collect() }];
    let figures: Vec<_> = workers.iter().map(|(_, it)| worker_rows::figures(it)).collect();
    for ((head, index), rank) in worker_rows::HEADS.into_iter().zip(0..).zip([6, 8, 7, 1, 5, 4, 3])
    {
        let cells = figures.iter().map(|figures| figures[index].clone()).collect();
        columns.push(Column { head, rank, cells });
    }
    let columns = fitting(columns, out.style.columns);
    out.line("", None)?;
    out.line(&row(&columns, |column| column.head), Some(Ink::Faint))?;
    (0..workers.len())
        .try_for_each(|it| out.line(&row(&columns, |column| &column.cells[it]), None))?;
    out.more(more, "worker")
}

fn columns(report: &RunReport) -> Vec<Column> {
    let producers = || report.producers.iter().take(MOST_PRODUCERS);
    let column = |head, rank, cell: &dyn Fn(&ProducerReport) -> String| Column {
        head,
        rank,
        cells: producers().map(cell).collect(),
    };
    let mut columns = vec![
        Column {
            head: "#",
            rank: 12,
            cells: (0..producers().len()).map(|n| n.to_string()).collect(),
        },
        column("place", 11, &|producer| Plain(&clipped(&producer.place, 24)).to_string()),
        column(report.words().items, 10, &|producer| Count(producer.items).to_string()),
        column("failed", 8, &|producer| Count(producer.failed).to_string()),
        column("busy", 9, &|producer| Percent(producer.busy).to_string()),
        column("working", 3, &|producer| Time(producer.working).to_string()),
        column("waiting", 4, &|producer| Time(producer.waiting).to_string()),
        column("init", 2, &|producer| Time(producer.init).to_string()),
    ];
    if !report.stages.is_empty() {
        let stage = |producer: &ProducerReport| {
            Plain(&clipped(producer.stage.as_deref().unwrap_or_default(), 16)).to_string()
        };
        columns.insert(1, column("stage", 13, &stage));
    }
    let latencies: [(_, _, Percentile); 4] = [
        ("p50", 7, |latency| latency.p50),
        ("p90", 1, |latency| latency.p90),
        ("p99", 5, |latency| latency.p99),
        ("max", 6, |latency| latency.max),
    ];
    if report.has_item_events() {
        columns.extend(latencies.map(|(head, rank, of)| {
            let time = |latency: &Latencies| Time(of(latency)).to_string();
            column(head, rank, &|producer| producer.latency.as_ref().map_or_else(String::new, time))
        }));
    }
    columns
}

fn fitting(mut columns: Vec<Column>, width: usize) -> Vec<Column> {
    let needed =
        |columns: &[Column]| columns.iter().map(|column| 2 + column.width()).sum::<usize>();
    while needed(&columns) > width {
        let ranks = columns.iter().map(|column| column.rank);
        let Some((least, _)) = ranks.enumerate().min_by_key(|(_, rank)| *rank) else { break };
        columns.remove(least);
    }
    columns
}

/// Aligns numbers to the right and texts to the left.
fn row<'a>(columns: &'a [Column], cell: impl Fn(&'a Column) -> &'a str) -> String {
    let mut line = String::new();
    for column in columns {
        let text = cell(column);
        let space = " ".repeat(column.width().saturating_sub(display_width(text)));
        line.push_str("  ");
        match column.head {
            "place" | "stage" | "host" => line.extend([text, &space]),
            _ => line.extend([&space, text]),
        }
    }
    line.trim_end().to_owned()
}

/// Describes what at most `most` producers lost.
pub(super) fn losses(report: &RunReport, most: usize) -> Vec<String> {
    let mut losses = Vec::new();
    for (index, producer) in report.producers.iter().enumerate().take(most) {
        let name = format!("{} {index} ({})", report.words().producer, producer.place);
        // A state that was lost last has no rebuild, and one lost in an earlier run is rebuilt in this one.
        let lost = format!("lost its state {}", Times(producer.states_lost));
        let rebuilt = format!(
            "ran `producer_init` again {}, for {}",
            Times(producer.rebuilds),
            Time(producer.rebuilding)
        );
        match (producer.states_lost, producer.rebuilds) {
            (0, 0) => {}
            (_, 0) => losses.push(format!("{name} {lost}")),
            (0, _) => losses.push(format!("{name} {rebuilt}")),
            (..) => losses.push(format!("{name} {lost} and {rebuilt}")),
        }
        if producer.recycles > 0 {
            losses.push(format!(
                "{name} recycled its state {}, for {}",
                Times(producer.recycles),
                Time(producer.recycling),
            ));
        }
        if producer.replacements > 0 {
            losses.push(format!("{name} was replaced {}", Times(producer.replacements)));
        }
        let why = producer.quarantined.as_ref().map_or(String::new(), |reason| why(report, reason));
        if producer.abandoned {
            losses.push(format!("{name} was abandoned with its thread{why}"));
        } else if producer.quarantined.is_some() {
            losses.push(format!("{name} was taken out of service{why}"));
        }
        if let Some(why) = producer.worker.as_ref().and_then(|worker| worker.lost.as_ref()) {
            losses.push(format!("{name} lost its worker: {}", clipped(why, LONGEST)));
        }
        if let Some(ceiling) = producer.batch_ceiling {
            losses.push(format!(
                "{name} had memory for batches of at most {} ({}, or cost or padded size if \
                 that is bounded)",
                Count(ceiling),
                report.words().items
            ));
        }
    }
    losses
}

/// Gives the reason, or names the item if the list of failures has the reason.
fn why(report: &RunReport, reason: &str) -> String {
    let failure = report.failures.iter().find(|failure| failure.error == reason);
    match failure.and_then(|failure| failure.item) {
        Some(index) => format!(" when {} failed", item(report.words(), index, None)),
        None => format!(": {}", clipped(reason, LONGEST)),
    }
}

fn write_waits(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    out.line("", None)?;
    if report.ending != Ending::InProgress {
        waits(report).iter().try_for_each(|wait| out.text(wait, None))?;
    }
    for stall in report.stalls.iter().take(MOST_STALLS) {
        let item = item(report.words(), stall.item, stall.key.as_deref());
        out.entry("  ", &format!("{} for {item}", Time(stall.lasted)), None)?;
    }
    lack_of_keys(report).iter().try_for_each(|lack| out.entry("  ", lack, Some(Ink::Faint)))?;
    lack_of_events(report).iter().try_for_each(|lack| out.text(lack, Some(Ink::Faint)))
}

fn write_retries(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    retries(report).iter().try_for_each(|retries| out.text(retries, None))?;
    splits(&report.splits).iter().try_for_each(|splits| out.text(splits, Some(Ink::Warning)))
}

fn write_failures(out: &mut Lines<'_, '_>, report: &RunReport) -> fmt::Result {
    write_list(out, report, "failures:", &report.failures, report.failures_left_out)?;
    write_list(out, report, UNDELIVERED, &report.failures_undelivered, 0)
}

fn write_list(
    out: &mut Lines<'_, '_>,
    report: &RunReport,
    heading: &str,
    failures: &[Failure],
    others: u64,
) -> fmt::Result {
    if failures.is_empty() && others == 0 {
        return Ok(());
    }
    out.line("", None)?;
    out.line(heading, Some(Ink::Bad))?;
    for failure in failures.iter().take(MOST_FAILURES) {
        let more = failure.causes.len().saturating_sub(1) * LONGEST;
        let longest = (LONGEST_FAILURE + more).min(LONGEST_CHAIN);
        out.entry("  ", &clipped(&line(report, failure), longest), Some(Ink::Bad))?;
    }
    out.more(left_out(MOST_FAILURES, failures.len(), others), "failure")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::report::samples::{Told, eventful, failure};
    use crate::observe::text_style::Colors;
    use crate::observe::worker_report::WorkerReport;

    #[test]
    fn a_report_is_lines_without_control_characters() {
        let text = eventful(64).to_string();
        assert!(text.lines().count() < 120, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(
            text.starts_with(
                "Denoising <micrographs>: finished in 12.0 s: 76,800 ok, 576 failed\n"
            )
        );
        assert!(text.contains("\nThe order limited the run: "));
        assert!(text.contains("\n  and 32 more producers\n"));
        assert!(text.contains("\n  and 566 more failures\n"));
    }

    #[test]
    fn columns_are_aligned() {
        let text = eventful(2).to_string();
        let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("  #")).collect();
        assert!(
            lines[0].starts_with("  #  place   items  failed  busy  working  waiting"),
            "{text}"
        );
        let widths: Vec<_> = lines[..3].iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 3]);
    }

    #[test]
    fn lost_producers_and_missing_measurements_are_stated() {
        let text = eventful(2).to_string();
        let lost = "producer 1 (cuda:1) was abandoned with its thread:";
        assert!(text.contains(lost), "{text}");
        assert!(!text.contains("No item events"));
        let mut told = Told::new(1);
        told.consume(500, 10);
        let quiet = told.end(1_000).to_string();
        assert!(quiet.contains("No item events: call `.timeline()`"), "{quiet}");
        assert!(!quiet.contains("p99") && !quiet.contains("failures:"), "{quiet}");
    }

    #[test]
    fn what_never_happened_is_not_said() {
        for (states_lost, rebuilds, expected) in [
            (0, 0, None),
            (1, 0, Some("producer 0 (cuda:0) lost its state once")),
            (0, 2, Some("producer 0 (cuda:0) ran `producer_init` again 2 times, for 1.00 s")),
            (
                2,
                1,
                Some(
                    "producer 0 (cuda:0) lost its state 2 times and ran `producer_init` again once, for 1.00 s",
                ),
            ),
        ] {
            let mut report = Told::new(1).end(1_000);
            let producer = &mut report.producers[0];
            (producer.states_lost, producer.rebuilds) = (states_lost, rebuilds);
            producer.rebuilding = Duration::from_secs(1);
            assert_eq!(losses(&report, 1).first().map(String::as_str), expected);
        }
    }

    #[test]
    fn a_failure_says_item_place_hook_attempts_and_innermost_cause() {
        let failure = failure(3, 1, 2, "the file is empty");
        let expected = "item 3 (key 3) in producer_work on cuda:1, 2 attempts: the file is empty";
        assert_eq!(line(&RunReport::default(), &failure), expected);
    }

    #[test]
    fn a_report_fits_whatever_the_width_of_characters() {
        for columns in [40, 80, 120] {
            let mut report = eventful(64);
            report.producers[3].place = "日本語".repeat(20);
            report.failures[2].key = Some("日本語".repeat(20));
            let text = report.styled(TextStyle::plain().columns(columns)).to_string();
            let longest = text.lines().map(display_width).max();
            assert!(longest <= Some(columns), "{longest:?} of {columns} columns: {text}");
        }
    }

    #[test]
    fn columns_are_left_out_from_the_least_important_on() {
        let head = |columns| {
            let text = eventful(2).styled(TextStyle::plain().columns(columns)).to_string();
            let head = text.lines().find(|line| line.starts_with("  #")).unwrap_or_default();
            head.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let wide = "# place items failed busy working waiting init p50 p90 p99 max";
        assert_eq!(head(120).join(" "), wide);
        assert_eq!(head(80).join(" "), "# place items failed busy working waiting p50 p99 max");
        assert_eq!(head(40).join(" "), "# place items failed busy");
    }

    #[test]
    fn workers_have_a_row_each() {
        let mut report = Told::new(2).end(1_000);
        assert!(!report.to_string().contains("wire wait"));
        let worker = |pid| WorkerReport {
            pid: Some(pid),
            restarts: 2,
            returned: 3,
            wire_wait: Duration::from_millis(4),
            bytes_down: 5_000_000,
            bytes_up: 6,
            ..WorkerReport::default()
        };
        report.producers[1].worker = Some(worker(123_456));
        let rows = |columns| {
            let text = report.styled(TextStyle::plain().columns(columns)).to_string();
            let rows = text.lines().skip_while(|line| !line.contains("pid")).take(2);
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let head = "  #  host             pid  restarts  returned  wire wait    down   up";
        let row = "  1  this machine  123456         2         3    4.00 ms  5.0 MB  6 B";
        assert_eq!(rows(80), [head, row]);
        let narrow = rows(40)[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(narrow.join(" "), "# host pid restarts");
        assert!(report.to_html().contains("<h2>Workers</h2>"), "{}", report.to_html());
    }

    #[test]
    fn only_colours_differ_between_styles() {
        let report = eventful(2);
        let colored = report.styled(TextStyle::plain().colors(Colors::On)).to_string();
        assert!(colored.starts_with("\u{1b}[31mDenoising"), "{colored}");
        assert_eq!(textwrap::core::display_width(&colored), display_width(&report.to_string()));
        let escapes = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[33m"];
        let plain = escapes.iter().fold(colored, |text, escape| text.replace(escape, ""));
        assert_eq!(plain, report.to_string());
    }

    #[test]
    fn the_account_has_every_count() {
        let mut played = Told::new(1);
        played.totals.account.cancelled = 2;
        played.totals.account.unread = Some(1_000);
        played.consume(10, 5);
        let report = played.end(1_000);
        let expected = "finished in 1.00 ms: 5 ok, 0 failed, 2 cancelled, 1,000 unread";
        assert_eq!(headline(&report), expected);
        assert_eq!(RunReport::default().to_string(), "no run yet\n");
    }
}
