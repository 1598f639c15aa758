//! Two reports side by side.

mod page;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::bottleneck::Bottleneck;
use super::producer::{ProducerReport, share};
use super::run_report::RunReport;
use super::text::{Count, Many, Percent, Time, item};
use crate::observe::failure::Failure;
use crate::observe::text_style::Ink;

/// What changed from one report to another: see [`RunReport::compare`].
///
/// `Display` writes it as text of 80 columns without colours; [`styled`](Self::styled) suits a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    before: &'a RunReport,
    after: &'a RunReport,
}

/// One measure of both.
struct Row {
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

const MOST_FAILURES: usize = 5;

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

    fn rows(&self) -> Vec<Row> {
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

    fn counts(&self) -> Vec<Row> {
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
            Row { name, before, after, change, tone }
        };
        counts.into_iter().map(row).collect()
    }

    fn time_row(
        &self,
        name: &'static str,
        better: Better,
        of: fn(&RunReport) -> Option<Duration>,
    ) -> Row {
        let times = [self.before, self.after].map(of);
        let [before, after] =
            times.map(|time| time.map_or("-".to_owned(), |time| Time(time).to_string()));
        let [was, is] = times.map(|time| time.map(|time| time.as_secs_f64()));
        let (change, tone) = match (was, is) {
            (Some(was), Some(is)) => (relative(was, is), tone(was, is, better, LEAST_CHANGE)),
            _ => (String::new(), None),
        };
        Row { name, before, after, change, tone }
    }

    fn rate_row(&self) -> Row {
        let [was, is] = [self.before, self.after].map(|report| {
            ratio(report.account.ok as f64, report.lasted.as_secs_f64()).unwrap_or_default()
        });
        let [before, after] = [was, is].map(super::html::rate);
        let tone = tone(was, is, Better::More, LEAST_CHANGE);
        Row { name: "ok per second", before, after, change: relative(was, is), tone }
    }

    fn share_row(&self, name: &'static str, of: impl Fn(&RunReport) -> Duration) -> Row {
        let shares = [self.before, self.after].map(|report| share(of(report), report.lasted));
        let [before, after] = shares.map(|share| Percent(share).to_string());
        let points = ((shares[1] - shares[0]) * 100.0).round();
        let change = if points == 0.0 { "same".to_owned() } else { format!("{points:+} points") };
        Row { name, before, after, change, tone: None }
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

    /// Failures that are only in one of the reports, as titles with the items.
    fn failures(&self) -> Vec<(&'static str, u64, Vec<String>)> {
        let [before, after] = [self.before, self.after].map(named_failures);
        let only = |of: &BTreeMap<String, &Failure>, other: &BTreeMap<String, &Failure>| {
            let only: Vec<String> = of
                .iter()
                .filter(|(name, _)| !other.contains_key(*name))
                .map(|(name, failure)| {
                    format!("{name}: {}", failure.causes.last().unwrap_or(&failure.error))
                })
                .collect();
            (only.len() as u64, only.into_iter().take(MOST_FAILURES).collect())
        };
        let (new, first_new) = only(&after, &before);
        let (gone, first_gone) = only(&before, &after);
        let lists =
            [("failed only after", new, first_new), ("failed only before", gone, first_gone)];
        lists.into_iter().filter(|(_, count, _)| *count > 0).collect()
    }
}

/// Failures by the name of the item. The index alone tells nothing if the items have keys.
fn named_failures(report: &RunReport) -> BTreeMap<String, &Failure> {
    let name = |failure: &Failure| match (&failure.key, failure.item) {
        (Some(key), _) => key.clone(),
        (None, Some(index)) => item(report.words(), index, None),
        (None, None) => "the run".to_owned(),
    };
    report.failures.iter().map(|failure| (name(failure), failure)).collect()
}

fn facts(report: &RunReport) -> BTreeMap<String, String> {
    let provenance = &report.provenance;
    let mut facts = provenance.settings.clone();
    facts.extend(provenance.devices.clone());
    let mut add = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("started", provenance.started_text());
    add("host", provenance.host.clone());
    add("system", provenance.system.clone());
    add("cores", provenance.cores.map(|cores| cores.to_string()));
    add("gangline", provenance.gangline.clone());
    add("command", Some(provenance.command_line()));
    facts
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
