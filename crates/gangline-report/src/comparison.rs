//! Two reports side by side.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::document::{Cell, Document, Layout, RowLimits, Section, TableOf};
use super::formats::{Count, LONGEST_TEXT, Many, Percent, Time, capitalised, clipped, item, rate};
use super::page::page;
use super::producer_report::{ProducerReport, share};
use super::run_report::RunReport;
use super::styled::Styled;
use super::vocabulary::Words;
use super::wording::limit;
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::text_style::{Ink, TextStyle};

/// What changed from one report to another: see [`RunReport::compare`].
///
/// `Display` writes it as text of 80 columns without colours; [`styled`](Self::styled) suits a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    before: &'a RunReport,
    after: &'a RunReport,
}

/// A measure of a run.
enum RunMeasure {
    Count(u64),
    Time(Duration),
    /// Items per second.
    Rate(f64),
    /// A share of the time.
    Share(f64),
}

type MeasureOf = fn(&RunReport) -> Option<RunMeasure>;

/// A measure of both runs, as text.
struct Compared {
    name: &'static str,
    both: [String; 2],
    change: String,
    tone: Option<Ink>,
}

/// Which change of a measure is an improvement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
    Neither,
}

/// A smaller change is chance, and has no colour.
const LEAST_CHANGE: f64 = 0.05;

const FAILURES: RowLimits = RowLimits { text: 5, page: 1_000, open: 5 };

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
        summary.push(match [before, after].map(limit).into() {
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

    fn measures(&self) -> Vec<Compared> {
        use Better::{Less, More, Neither};
        let words = self.after.words();
        let measures: [(_, _, MeasureOf); 21] = [
            ("lasted", Less, |it| Some(RunMeasure::Time(it.lasted))),
            (words.producers, Neither, |it| Some(RunMeasure::Count(it.producers.len() as u64))),
            (words.window, Neither, |it| Some(RunMeasure::Count(it.window))),
            ("ok", More, |it| Some(RunMeasure::Count(it.account.ok))),
            ("failed", Less, |it| Some(RunMeasure::Count(it.account.failed))),
            ("already done", Neither, |it| Some(RunMeasure::Count(it.account.already_done))),
            ("cancelled", Less, |it| Some(RunMeasure::Count(it.account.cancelled))),
            ("retried", Less, |it| Some(RunMeasure::Count(it.retries.items))),
            ("states lost", Less, |it| {
                let lost = it.producers.iter().map(|one| one.states_lost);
                Some(RunMeasure::Count(lost.fold(0, u64::saturating_add)))
            }),
            ("threads abandoned", Less, |it| Some(RunMeasure::Count(it.threads_abandoned()))),
            ("ok per second", More, |it| {
                Some(RunMeasure::Rate(it.ok_per_second().unwrap_or_default()))
            }),
            ("median", Less, |it| Some(RunMeasure::Time(it.latency?.p50))),
            ("99th percentile", Less, |it| Some(RunMeasure::Time(it.latency?.p99))),
            ("slowest", Less, |it| Some(RunMeasure::Time(it.latency?.max))),
            (words.producers_busy, Neither, |it| of_producers(it, |one| one.working)),
            (words.producers_waiting, Neither, |it| of_producers(it, |one| one.waiting)),
            ("rebuilding states", Neither, |it| of_producers(it, |one| one.rebuilding)),
            ("source working", Neither, |it| of_time(it, it.source_working)),
            ("source held back", Neither, |it| of_time(it, it.source_waiting)),
            (words.consumer_working, Neither, |it| of_time(it, it.consumer_working)),
            ("head of line blocked", Neither, |it| of_time(it, it.head_stalled)),
        ];
        let compared = measures.map(|(name, better, of)| self.compared(name, better, of));
        let is_nothing = |it: &str| ["-", "0", "0 %"].contains(&it);
        let is_shown = |it: &Compared| it.both[0] != it.both[1] || !is_nothing(&it.both[1]);
        compared.into_iter().filter(is_shown).collect()
    }

    fn compared(&self, name: &'static str, better: Better, of: MeasureOf) -> Compared {
        let measures = [self.before, self.after].map(of);
        let text =
            |it: &Option<RunMeasure>| it.as_ref().map_or("-".to_owned(), RunMeasure::to_string);
        let (change, tone) = match &measures {
            [Some(was), Some(is)] => (is.change_from(was), is.tone(was, better)),
            _ => (String::new(), None),
        };
        Compared { name, both: measures.each_ref().map(text), change, tone }
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
            leads: vec![(self.summary().join("\n"), None)],
            sections: sections.into_iter().flatten().collect(),
        }
    }

    fn measure_section(&self) -> Section<'_> {
        let measures = self.measures().into_iter();
        let table = TableOf::new("Measures of both runs", RowLimits::NONE, measures)
            .text("measure", 3, usize::MAX, |it| it.name)
            .number("before", 1, |it| it.both[0].clone())
            .number("after", 2, |it| it.both[1].clone())
            .number("change", 0, |it| Cell::Inked(it.change.clone(), it.tone))
            .rows(|row, it| row.ink = it.tone);
        Section::new("Measures").with(table.end())
    }

    fn difference_section(&self) -> Option<Section<'_>> {
        let differences = self.differences();
        let line = |name: &str, when: &str, value: &str| {
            format!("{name} {when}: {}", clipped(value, LONGEST_TEXT))
        };
        let is_empty = differences.is_empty();
        let title = "How the runs differed";
        let table = TableOf::new(title, RowLimits::NONE, differences.into_iter())
            .text("what", 0, usize::MAX, |it| it.0.clone())
            .text("before", 0, usize::MAX, |it| it.1.clone())
            .text("after", 0, usize::MAX, |it| it.2.clone())
            .lines(Layout::ColumnsOrLines, |(name, before, after)| {
                vec![line(name, "before", before), line(name, "after", after)]
            });
        (!is_empty).then(|| Section::new(title).with(table.end()))
    }
}

impl RunMeasure {
    fn number(&self) -> f64 {
        match self {
            RunMeasure::Count(count) => *count as f64,
            RunMeasure::Time(time) => time.as_secs_f64(),
            RunMeasure::Rate(number) | RunMeasure::Share(number) => *number,
        }
    }

    fn change_from(&self, before: &RunMeasure) -> String {
        let (was, is) = (before.number(), self.number());
        match (before, self) {
            (RunMeasure::Count(was), RunMeasure::Count(is)) if is > was => {
                format!("+{}", Count(is - was))
            }
            (RunMeasure::Count(was), RunMeasure::Count(is)) if is < was => {
                format!("-{}", Count(was - is))
            }
            (RunMeasure::Count(_), _) => "same".to_owned(),
            (RunMeasure::Share(_), _) => match ((is - was) * 100.0).round() {
                0.0 => "same".to_owned(),
                points => format!("{points:+} points"),
            },
            _ => match ratio(is, was).map(|times| ((times - 1.0) * 100.0).round()) {
                Some(0.0) => "same".to_owned(),
                Some(percent) if percent.abs() < 1_000.0 => format!("{percent:+} %"),
                Some(percent) => format!("{:.0} times", percent / 100.0 + 1.0),
                None => String::new(),
            },
        }
    }

    /// Returns the ink of an improvement, or of the contrary.
    fn tone(&self, before: &RunMeasure, better: Better) -> Option<Ink> {
        let (was, is) = (before.number(), self.number());
        let least = if let RunMeasure::Count(_) = self { 0.0 } else { LEAST_CHANGE };
        let has_changed = (is - was).abs() > least * was.abs();
        match (better, is < was) {
            (Better::Less, true) | (Better::More, false) if has_changed => Some(Ink::Good),
            (Better::Less, false) | (Better::More, true) if has_changed => Some(Ink::Bad),
            _ => None,
        }
    }
}

impl fmt::Display for RunMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunMeasure::Count(count) => Count(*count).fmt(f),
            RunMeasure::Time(time) => Time(*time).fmt(f),
            RunMeasure::Rate(number) => f.write_str(&rate(*number)),
            RunMeasure::Share(share) => Percent(*share).fmt(f),
        }
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
    let table = TableOf::new(capitalised(heading), FAILURES, only.into_iter())
        .text(words.item, 0, usize::MAX, |it| it.0)
        .errors("error", |it| vec![it.1.essence().into()])
        .lines(Layout::Lines, |(name, failure)| {
            vec![clipped(&format!("{name}: {}", failure.essence()), LONGEST_TEXT)]
        });
    let section = Section::new(capitalised(&line)).with(table.end());
    Some(Section { line: Some(line), ..section })
}

/// Failures by the name of the item. The index alone tells nothing if the items have keys.
fn named_failures(report: &RunReport) -> NamedFailures<'_> {
    let name = |failure: &Failure| match (&failure.key, failure.item) {
        (Some(key), _) => key.clone(),
        (None, Some(index)) => item(report.words(), index, None, 0),
        (None, None) => "the run".to_owned(),
    };
    report.failures.iter().map(|failure| (name(failure), failure)).collect()
}

fn facts(report: &RunReport) -> BTreeMap<String, String> {
    let provenance = &report.provenance;
    let facts = provenance.facts().map(|(name, value)| (name.to_owned(), value));
    facts.chain([("command".to_owned(), Provenance::command_line(&provenance.command))]).collect()
}

fn worked(report: &RunReport) -> u64 {
    report.account.ok.saturating_add(report.account.failed)
}

/// The share of the time that producers spent in this way, on average.
fn of_producers(report: &RunReport, of: fn(&ProducerReport) -> Duration) -> Option<RunMeasure> {
    let sum = report.producers.iter().map(of).fold(Duration::ZERO, Duration::saturating_add);
    of_time(report, sum / u32::try_from(report.producers.len()).unwrap_or(u32::MAX).max(1))
}

fn of_time(report: &RunReport, time: Duration) -> Option<RunMeasure> {
    Some(RunMeasure::Share(share(time, report.lasted)))
}

fn ratio(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

fn title(comparison: &Comparison<'_>) -> String {
    let [before, after] = [comparison.before, comparison.after]
        .map(|report| report.description.clone().unwrap_or_else(|| "A run".to_owned()));
    match before == after {
        true => format!("{before}, before and after"),
        false => format!("{before}; {after}"),
    }
}
