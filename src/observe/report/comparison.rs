//! Two reports side by side.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::bottleneck::Bottleneck;
use super::document::{Block, Cell, Column, Document, Layout, Lead, Limits, Row, Section, Table};
use super::formats::{Count, Many, Percent, Time, capitalised, clipped, item, rate};
use super::page::page;
use super::producer::{ProducerReport, share};
use super::run_report::RunReport;
use super::styled::Styled;
use super::vocabulary::Words;
use crate::observe::failure::Failure;
use crate::observe::text_style::{Ink, TextStyle};

/// What changed from one report to another: see [`RunReport::compare`].
///
/// `Display` writes it as text of 80 columns without colours; [`styled`](Self::styled) suits a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    before: &'a RunReport,
    after: &'a RunReport,
}

/// One measure of both.
struct Measure {
    name: &'static str,
    before: String,
    after: String,
    change: String,
    tone: Option<Ink>,
}

type CountOf = fn(&RunReport) -> u64;

/// Which change of a measure is an improvement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
    Neither,
}

/// A smaller change is chance, and has no colour.
const LEAST_CHANGE: f64 = 0.05;

const FAILURES: Limits = Limits { text: 5, page: 1_000, open: 5 };

/// The text clips values of facts and failures to this many characters.
const LONGEST: usize = 160;

impl<'a> Comparison<'a> {
    pub(super) fn new(before: &'a RunReport, after: &'a RunReport) -> Self {
        Comparison { before, after }
    }
}

impl Comparison<'_> {
    /// What changed, in sentences.
    fn summary(&self) -> Vec<String> {
        let (before, after, words) = (self.before, self.after, self.after.words());
        let mut summary = vec![self.time()];
        let [was, is] = [before, after].map(worked);
        if was != is {
            let (was, is) = (Many(was, words.item), Many(is, words.item));
            summary.push(format!("The work differed: {was} before, {is} after."));
        }
        summary.push(match (limit(before), limit(after)) {
            (was, is) if was == is => format!("In both, {is} limited the run."),
            (was, is) => format!("Before, {was} limited the run; after, {is}."),
        });
        summary
    }

    fn time(&self) -> String {
        let [was, is] = [self.before, self.after].map(|report| report.lasted);
        let (was_text, is_text) = (Time(was), Time(is));
        match ratio(is.as_secs_f64(), was.as_secs_f64()) {
            Some(times) if times < 1.0 - LEAST_CHANGE => format!(
                "The run took {is_text} instead of {was_text}: it is {:.2} times as fast.",
                1.0 / times
            ),
            Some(times) if times > 1.0 + LEAST_CHANGE => format!(
                "The run took {is_text} instead of {was_text}: it is {times:.2} times as slow."
            ),
            _ => format!("The run took about the same time: {was_text} before, {is_text} after."),
        }
    }

    fn measures(&self) -> Vec<Measure> {
        let words = self.after.words();
        let mut rows = vec![self.time_row("lasted", Better::Less, |report| Some(report.lasted))];
        rows.extend(self.counts());
        rows.push(self.rate_row());
        rows.extend([
            self.time_row("median", Better::Less, |report| Some(report.latency?.p50)),
            self.time_row("99th percentile", Better::Less, |report| Some(report.latency?.p99)),
            self.time_row("slowest", Better::Less, |report| Some(report.latency?.max)),
            self.share_row(words.producers_busy, |report| producers(report, |one| one.working)),
            self.share_row(words.producers_waiting, |report| producers(report, |one| one.waiting)),
            self.share_row("rebuilding states", |report| producers(report, |one| one.rebuilding)),
            self.share_row("source working", |report| report.source_working),
            self.share_row("source held back", |report| report.source_waiting),
            self.share_row(words.consumer_working, |report| report.consumer_working),
            self.share_row("head of line blocked", |report| report.head_stalled),
        ]);
        rows.retain(|row| row.before != row.after || !["-", "0", "0 %"].contains(&&*row.after));
        rows
    }

    fn counts(&self) -> Vec<Measure> {
        let words = self.after.words();
        let counts: [(_, _, CountOf); 9] = [
            (words.producers, Better::Neither, |report| report.producers.len() as u64),
            (words.window, Better::Neither, |report| report.window),
            ("ok", Better::More, |report| report.account.ok),
            ("failed", Better::Less, |report| report.account.failed),
            ("already done", Better::Neither, |report| report.account.already_done),
            ("cancelled", Better::Less, |report| report.account.cancelled),
            ("retried", Better::Less, |report| report.retries.items),
            ("states lost", Better::Less, |report| {
                report.producers.iter().map(|one| one.states_lost).fold(0, u64::saturating_add)
            }),
            ("threads abandoned", Better::Less, RunReport::threads_abandoned),
        ];
        let row = |(name, better, of): (_, _, CountOf)| {
            let [was, is] = [self.before, self.after].map(of);
            let (before, after) = (Count(was).to_string(), Count(is).to_string());
            let change = match is.abs_diff(was) {
                0 => "same".to_owned(),
                more if is > was => format!("+{}", Count(more)),
                less => format!("-{}", Count(less)),
            };
            let tone = tone(was as f64, is as f64, better, 0.0);
            Measure { name, before, after, change, tone }
        };
        counts.into_iter().map(row).collect()
    }

    fn time_row(
        &self,
        name: &'static str,
        better: Better,
        of: fn(&RunReport) -> Option<Duration>,
    ) -> Measure {
        let times = [self.before, self.after].map(of);
        let [before, after] =
            times.map(|time| time.map_or("-".to_owned(), |time| Time(time).to_string()));
        let [was, is] = times.map(|time| time.map(|time| time.as_secs_f64()));
        let (change, tone) = match (was, is) {
            (Some(was), Some(is)) => (relative(was, is), tone(was, is, better, LEAST_CHANGE)),
            _ => (String::new(), None),
        };
        Measure { name, before, after, change, tone }
    }

    fn rate_row(&self) -> Measure {
        let [was, is] = [self.before, self.after].map(|report| {
            ratio(report.account.ok as f64, report.lasted.as_secs_f64()).unwrap_or_default()
        });
        let [before, after] = [was, is].map(rate);
        let tone = tone(was, is, Better::More, LEAST_CHANGE);
        Measure { name: "ok per second", before, after, change: relative(was, is), tone }
    }

    fn share_row(&self, name: &'static str, of: impl Fn(&RunReport) -> Duration) -> Measure {
        let shares = [self.before, self.after].map(|report| share(of(report), report.lasted));
        let [before, after] = shares.map(|share| Percent(share).to_string());
        let points = ((shares[1] - shares[0]) * 100.0).round();
        let change = if points == 0.0 { "same".to_owned() } else { format!("{points:+} points") };
        Measure { name, before, after, change, tone: None }
    }

    /// Settings, devices and versions that differ: the name, and both values.
    fn differences(&self) -> Vec<(String, String, String)> {
        let [before, after] = [self.before, self.after].map(facts);
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let value = |facts: &BTreeMap<String, String>, name: &str| {
            facts.get(name).map_or("-".to_owned(), String::clone)
        };
        let both =
            names.into_iter().map(|name| (name.clone(), value(&before, name), value(&after, name)));
        both.filter(|(_, before, after)| before != after).collect()
    }
}

impl Comparison<'_> {
    /// Returns the comparison as text in a style, such as that of the terminal.
    pub fn styled(&self, style: TextStyle) -> impl fmt::Display {
        Styled { document: self.document(), style }
    }

    /// Returns the comparison as one self-contained HTML page: no script, no other file.
    pub fn to_html(&self) -> String {
        page(&self.document())
    }

    fn document(&self) -> Document<'_> {
        let [before, after] = [self.before, self.after].map(named_failures);
        let words = self.after.words();
        let sections = [
            failures(words, "failed only after", &after, &before),
            failures(words, "failed only before", &before, &after),
            Some(self.measure_section()),
            self.difference_section(),
        ];
        let title = title(self);
        Document {
            title: title.clone(),
            ink: Ink::Strong,
            kind: "gangline: two reports",
            heading: title,
            status: None,
            leads: vec![Lead::Summary(self.summary())],
            sections: sections.into_iter().flatten().collect(),
        }
    }

    fn measure_section(&self) -> Section<'_> {
        let columns = vec![
            Column::text("measure", 3, usize::MAX),
            Column::number("before", 1),
            Column::number("after", 2),
            Column::number("change", 0),
        ];
        let measures = self.measures();
        let rows = measures.into_iter().map(|Measure { name, before, after, change, tone }| {
            Row::new(vec![name.into(), before.into(), after.into(), Cell::Inked(change)]).ink(tone)
        });
        let table = Table::new("Measures of both runs", columns).rows(rows);
        Section::new("Measures").with(Block::Table(table))
    }

    fn difference_section(&self) -> Option<Section<'_>> {
        let text = |head| Column::text(head, 0, usize::MAX);
        let columns = ["what", "before", "after"].map(text).into();
        let rows = self.differences().into_iter().map(|(what, before, after)| {
            let line = |when, value: &str| format!("{what} {when}: {}", clipped(value, LONGEST));
            let lines = vec![line("before", &before), line("after", &after)];
            Row::new([what, before, after].map(Cell::Text).into()).lines(lines)
        });
        let title = "How the runs differed";
        let table = Table::new(title, columns).layout(Layout::ColumnsOrLines).rows(rows);
        let is_empty = table.rows.is_empty();
        (!is_empty).then(|| Section::new(title).with(Block::Table(table)))
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.styled(TextStyle::plain()).fmt(f)
    }
}

type NamedFailures<'a> = BTreeMap<String, &'a Failure>;

/// Failures that are only in one of the reports.
fn failures<'a>(
    words: &Words,
    heading: &str,
    of: &NamedFailures<'a>,
    other: &NamedFailures<'a>,
) -> Option<Section<'a>> {
    let only: Vec<_> = of.iter().filter(|(name, _)| !other.contains_key(*name)).collect();
    if only.is_empty() {
        return None;
    }
    let line = format!("{heading}: {}", Count(only.len() as u64));
    let rows = only.into_iter().map(|(name, failure)| {
        let error = failure.causes.last().unwrap_or(&failure.error);
        let line = clipped(&format!("{name}: {error}"), LONGEST);
        Row::new(vec![name.into(), Cell::Errors(vec![error])]).lines(vec![line])
    });
    let columns = vec![Column::text(words.item, 0, usize::MAX), Column::long_text("error")];
    let table = Table::new(capitalised(heading), columns);
    let table = table.layout(Layout::Lines).limits(FAILURES).rows(rows);
    let section = Section::new(capitalised(&line)).with(Block::Table(table));
    Some(Section { line: Some(line), ..section })
}

/// Failures by the name of the item. The index alone tells nothing if the items have keys.
fn named_failures(report: &RunReport) -> NamedFailures<'_> {
    let name = |failure: &Failure| match (&failure.key, failure.item) {
        (Some(key), _) => key.clone(),
        (None, Some(index)) => item(report.words(), index, None),
        (None, None) => "the run".to_owned(),
    };
    report.failures.iter().map(|failure| (name(failure), failure)).collect()
}

fn facts(report: &RunReport) -> BTreeMap<String, String> {
    let provenance = &report.provenance;
    let facts = provenance.facts().map(|(name, value)| (name.to_owned(), value));
    facts.chain([("command".to_owned(), provenance.command_line())]).collect()
}

fn worked(report: &RunReport) -> u64 {
    report.account.ok.saturating_add(report.account.failed)
}

/// Names what limited a run.
fn limit(report: &RunReport) -> String {
    let words = report.words();
    let part = match report.bottleneck {
        Bottleneck::Unknown => "something unknown",
        Bottleneck::Source => "the source",
        Bottleneck::Producers => return format!("the {}", words.producers),
        Bottleneck::Rebuilding => "rebuilding lost states",
        Bottleneck::Consumer => return format!("the {}", words.consumer),
        Bottleneck::Window => return format!("the {}", words.window),
        Bottleneck::Backoff => "the backoff before retries",
        Bottleneck::Head => "the order",
        Bottleneck::Uneven => "uneven work",
        Bottleneck::Mixed => "no single part",
        Bottleneck::Splits => "split batches",
    };
    part.to_owned()
}

/// The mean over the producers.
fn producers(report: &RunReport, of: fn(&ProducerReport) -> Duration) -> Duration {
    let sum = report.producers.iter().map(of).fold(Duration::ZERO, Duration::saturating_add);
    sum / u32::try_from(report.producers.len()).unwrap_or(u32::MAX).max(1)
}

fn ratio(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

fn relative(was: f64, is: f64) -> String {
    match ratio(is, was).map(|times| ((times - 1.0) * 100.0).round()) {
        Some(0.0) => "same".to_owned(),
        Some(percent) if percent.abs() < 1_000.0 => format!("{percent:+} %"),
        Some(percent) => format!("{:.0} times", percent / 100.0 + 1.0),
        None => String::new(),
    }
}

fn tone(was: f64, is: f64, better: Better, least: f64) -> Option<Ink> {
    let has_changed = (is - was).abs() > least * was.abs();
    match (better, is < was) {
        (Better::Less, true) | (Better::More, false) if has_changed => Some(Ink::Good),
        (Better::Less, false) | (Better::More, true) if has_changed => Some(Ink::Bad),
        _ => None,
    }
}

fn title(comparison: &Comparison<'_>) -> String {
    let [before, after] = [comparison.before, comparison.after]
        .map(|report| report.description.clone().unwrap_or_else(|| "A run".to_owned()));
    match before == after {
        true => format!("{before}, before and after"),
        false => format!("{before}; {after}"),
    }
}
