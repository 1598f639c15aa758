//! The report as text for a terminal.

use std::fmt;

use super::run_report::{Ending, RunReport};
use super::text::{Count, Many, Percent, Plain, Time, Times, clipped, left_out};
use crate::observe::failure::Failure;

/// Entries beyond these are only counted.
const MOST_PRODUCERS: usize = 32;
const MOST_FAILURES: usize = 10;
const MOST_STALLS: usize = 3;

/// Texts are clipped to this many characters: about two lines.
const LONGEST: usize = 160;

/// Formats the report in short: the account, the bottleneck, the first 32 producers and ten failures. Control
/// characters in texts are escaped.
impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", Plain(&headline(self)))?;
        if let Some(error) = &self.error {
            writeln!(f, "{}", Plain(&clipped(error, LONGEST)))?;
        }
        if self.producers.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}", Plain(&self.conclusion))?;
        for fallback in &self.fallbacks {
            writeln!(f, "devices: {}", Plain(fallback))?;
        }
        write_producers(f, self)?;
        write_waits(f, self)?;
        write_retries(f, self)?;
        write_failures(f, self)
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
    let mut waits = vec![
        format!(
            "source: worked {}, held back {} by a full window of {}",
            Time(report.source_working),
            Time(report.source_waiting),
            Many(report.window, "item"),
        ),
        format!(
            "consumer: worked {}, waited {} without a result",
            Time(report.consumer_working),
            Time(report.consumer_waiting),
        ),
    ];
    if report.consumer_abandoned {
        waits.push("the consumer did not return in time: its thread was abandoned".to_owned());
    }
    if !report.head_stalled.is_zero() {
        let stalled = Time(report.head_stalled);
        waits.push(format!("order: later results waited {stalled} for one missing item"));
    }
    waits
}

/// Summarises the retried items.
pub(super) fn retries(report: &RunReport) -> Option<String> {
    let retries = &report.retries;
    (retries.attempts > 0).then(|| {
        format!(
            "{} retried after {}: {} succeeded, {} failed",
            Many(retries.items, "item"),
            Many(retries.attempts, "failed attempt"),
            Count(retries.succeeded),
            Count(retries.failed),
        )
    })
}

/// Explains missing measurements per item.
pub(super) fn lack_of_events(report: &RunReport) -> Option<String> {
    if !report.has_item_events() {
        return Some(
            "No item events: call `.timeline()` on the builder to get latencies, slowest items and a timeline."
                .to_owned(),
        );
    }
    (report.events_lost > 0).then(|| {
        format!(
            "{} came too fast to be recorded: latencies, slowest items and the timeline lack them.",
            Many(report.events_lost, "item event"),
        )
    })
}

/// Explains missing keys in the list of stalls.
pub(super) fn lack_of_keys(report: &RunReport) -> Option<&'static str> {
    let with_key = report.stalls.iter().filter(|stall| stall.key.is_some()).count();
    let is_mixed = (1..report.stalls.len()).contains(&with_key);
    is_mixed.then_some("Keys are kept for the longest waits and the slowest items only.")
}

/// Names an item, with its key if it has one.
pub(super) fn item(item: u64, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("item {item} ({})", clipped(key, LONGEST)),
        None => format!("item {item}"),
    }
}

/// Names the device, hook and attempts of a failure.
pub(super) fn site(failure: &Failure) -> String {
    let mut site = failure.hook.clone().unwrap_or_else(|| "input".to_owned());
    if let Some(device) = &failure.device {
        site.push_str(&format!(" on {device}"));
    }
    if failure.attempts > 1 {
        site.push_str(&format!(", {} attempts", failure.attempts));
    }
    site
}

fn write_producers(f: &mut fmt::Formatter<'_>, report: &RunReport) -> fmt::Result {
    let mut heads =
        vec!["#", "place", "items", "failed attempts", "busy", "working", "waiting", "init"];
    if report.has_item_events() {
        heads.extend(["p50", "p90", "p99", "max"]);
    }
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect()];
    let producers = report.producers.iter().enumerate().take(MOST_PRODUCERS);
    rows.extend(producers.map(|(producer, _)| row(report, producer)));
    writeln!(f)?;
    write_table(f, &rows)?;
    write_more(f, left_out(MOST_PRODUCERS, report.producers.len(), 0), "producer")?;
    let losses = losses(report, MOST_PRODUCERS);
    losses.iter().try_for_each(|loss| writeln!(f, "  {}", Plain(loss)))
}

fn row(report: &RunReport, index: usize) -> Vec<String> {
    let producer = &report.producers[index];
    let mut row = vec![
        index.to_string(),
        Plain(&clipped(&producer.place, 40)).to_string(),
        Count(producer.items).to_string(),
        Count(producer.failed).to_string(),
        Percent(producer.busy).to_string(),
        Time(producer.working).to_string(),
        Time(producer.waiting).to_string(),
        Time(producer.init).to_string(),
    ];
    if report.has_item_events() {
        row.extend(match producer.latency {
            Some(latency) => [latency.p50, latency.p90, latency.p99, latency.max]
                .map(|time| Time(time).to_string()),
            None => [const { String::new() }; 4],
        });
    }
    row
}

/// Aligns numbers to the right and places to the left.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            match column {
                1 => line.push_str(&format!("  {cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Describes what at most `most` producers lost.
pub(super) fn losses(report: &RunReport, most: usize) -> Vec<String> {
    let mut losses = Vec::new();
    for (index, producer) in report.producers.iter().enumerate().take(most) {
        let name = format!("producer {index} ({})", producer.place);
        if producer.states_lost + producer.rebuilds > 0 {
            losses.push(format!(
                "{name} lost its state {} and ran `producer_init` again {}, for {}",
                Times(producer.states_lost),
                Times(producer.rebuilds),
                Time(producer.rebuilding),
            ));
        }
        let why = producer.quarantined.as_ref().map_or(String::new(), |reason| why(report, reason));
        if producer.abandoned {
            losses.push(format!("{name} was abandoned with its thread{why}"));
        } else if producer.quarantined.is_some() {
            losses.push(format!("{name} was taken out of service{why}"));
        }
        if let Some(ceiling) = producer.batch_ceiling {
            losses.push(format!(
                "{name} had memory for batches of at most {} (items, or cost or padded size if \
                 that is bounded)",
                Count(ceiling)
            ));
        }
    }
    losses
}

/// Gives the reason, or names the item if the list of failures has the reason.
fn why(report: &RunReport, reason: &str) -> String {
    let failure = report.failures.iter().find(|failure| failure.error == reason);
    match failure.and_then(|failure| failure.item) {
        Some(item) => format!(" when item {item} failed"),
        None => format!(": {}", clipped(reason, LONGEST)),
    }
}

fn write_waits(f: &mut fmt::Formatter<'_>, report: &RunReport) -> fmt::Result {
    writeln!(f)?;
    if report.ending != Ending::InProgress {
        waits(report).iter().try_for_each(|wait| writeln!(f, "{wait}"))?;
    }
    for stall in report.stalls.iter().take(MOST_STALLS) {
        let item = item(stall.item, stall.key.as_deref());
        writeln!(f, "  {} for {}", Time(stall.lasted), Plain(&item))?;
    }
    lack_of_keys(report).iter().try_for_each(|lack| writeln!(f, "  {lack}"))?;
    lack_of_events(report).iter().try_for_each(|lack| writeln!(f, "{lack}"))
}

fn write_retries(f: &mut fmt::Formatter<'_>, report: &RunReport) -> fmt::Result {
    retries(report).iter().try_for_each(|retries| writeln!(f, "{retries}"))
}

fn write_failures(f: &mut fmt::Formatter<'_>, report: &RunReport) -> fmt::Result {
    if report.failures.is_empty() && report.failures_left_out == 0 {
        return Ok(());
    }
    writeln!(f, "\nfailures:")?;
    for failure in report.failures.iter().take(MOST_FAILURES) {
        writeln!(f, "  {}", Plain(&clipped(&line(failure), 2 * LONGEST)))?;
    }
    let more = left_out(MOST_FAILURES, report.failures.len(), report.failures_left_out);
    write_more(f, more, "failure")
}

/// The failure, and its causes unless an earlier text contains them.
fn line(failure: &Failure) -> String {
    let mut line = match failure.item {
        Some(index) => item(index, failure.key.as_deref()),
        None => "the run".to_owned(),
    };
    line.push_str(&format!(" in {}: {}", site(failure), reason(failure)));
    line
}

/// The innermost cause, which is the most specific one.
fn reason(failure: &Failure) -> &str {
    failure.causes.last().unwrap_or(&failure.error)
}

fn write_more(f: &mut fmt::Formatter<'_>, more: u64, noun: &'static str) -> fmt::Result {
    let plural = if more == 1 { "" } else { "s" };
    if more > 0 { writeln!(f, "  and {} more {noun}{plural}", Count(more)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::report::samples::{Told, eventful, failure};

    #[test]
    fn a_report_is_lines_without_control_characters() {
        let text = eventful(64).to_string();
        assert!(text.lines().count() < 70, "{text}");
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
            lines[0].starts_with("  #  place   items  failed attempts  busy  working"),
            "{text}"
        );
        let widths: Vec<_> = lines[..3].iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 3]);
    }

    #[test]
    fn lost_producers_and_missing_measurements_are_stated() {
        let text = eventful(2).to_string();
        let lost = "producer 1 (cuda:1) was abandoned with its thread: CUDA_ERROR";
        assert!(text.contains(lost), "{text}");
        assert!(!text.contains("No item events"));
        let quiet = Told::new(1).end(1_000).to_string();
        assert!(quiet.contains("No item events: call `.timeline()`"), "{quiet}");
        assert!(!quiet.contains("p99") && !quiet.contains("failures:"), "{quiet}");
    }

    #[test]
    fn a_failure_says_item_place_hook_attempts_and_innermost_cause() {
        let failure = failure(3, 1, 2, "the file is empty");
        let expected = "item 3 (key 3) in producer_work on cuda:1, 2 attempts: the file is empty";
        assert_eq!(line(&failure), expected);
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
