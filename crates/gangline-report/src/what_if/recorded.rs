//! The attempts of a run, read from its report, for a replay by the scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use gangline_scheduler::batch::{Batch, Batching};
use gangline_scheduler::replay::{self, RunModel};
use gangline_scheduler::window::Window;
use gangline_scheduler::{
    Backoff, Bypass, Config, HumanDuration, Input, OnError, Outcome, ProducerId, Timeouts,
};

use super::leases::{BatchTimes, leases, speeds};
use super::{Prediction, RefusedSetting, Settings};
use crate::account::Ending;
use crate::advice::Advice;
use crate::conclusion::{Bottleneck, WindowGain};
use crate::run_report::RunReport;
use crate::vocabulary::{Vocabulary, Words};

/// Settings that the replay does not simulate.
const NOT_REPLAYED: [&str; 6] = [
    "speculate",
    "window_memory",
    "max_batch_cost",
    "max_padded_size",
    "recycle_after",
    "item_timeout",
];

/// The largest difference between a replay and its run, as a share. If it is larger, something else took the time, and
/// nothing is predicted.
const MOST_DIFFERENCE: f64 = 0.25;

/// The largest number of producers. With more, a replay would take too long.
const MOST_PRODUCERS: usize = 10_000;

/// The largest batch that is predicted, as a multiple of the largest recorded one. Larger ones may not follow the line.
const MOST_GROWTH: usize = 2;

/// The largest product of attempts and producers for which a conclusion quotes a prediction. At this limit, predicting
/// takes about 0.1 s.
const MOST_QUOTED: usize = 200_000;

/// The largest share of its time that the run may take with a larger window, if the window is worth a sentence.
const LEAST_GAIN: f64 = 0.9;

/// What each part of a run took.
#[derive(Debug)]
pub(super) struct RecordedRun {
    lasted: Duration,
    /// The items that were worked on, numbered without the others.
    items: Vec<RecordedItem>,
    /// For each producer, the factor of its times to those of the first place.
    speeds: Vec<f64>,
    batches: BatchTimes,
    pull: Duration,
    consume: Duration,
    /// The settings that the run had.
    config: Config,
    window: Option<usize>,
    /// The part of the window that running jobs take. The option of the program is about the rest.
    running: usize,
    rule: Option<Batch>,
    vocabulary: Vocabulary,
}

/// The attempts at an item.
#[derive(Debug, Default)]
struct RecordedItem {
    index: u64,
    /// How long each took, on the first place.
    took: Vec<Duration>,
    /// Whether it failed for good.
    has_failed: bool,
}

/// Predicts how long the run would have taken: see [`RunReport::what_if`].
pub(crate) fn predict(report: &RunReport, settings: &Settings) -> Prediction {
    let run = match RecordedRun::of(report) {
        Ok(run) => run,
        Err(why) => return Prediction::none(report, settings, &why),
    };
    let (settings, refused) = run.check(settings);
    let lasted = match settings == Settings::default() {
        true => report.lasted,
        false => run.predict(&settings),
    };
    let vocabulary = report.vocabulary;
    Prediction { settings, recorded: report.lasted, lasted, refused, vocabulary }
}

/// Adds a sentence to the conclusion of a run that its window limited: what the advised window would have gained.
pub(crate) fn quote(report: &mut RunReport) {
    let is_held_up = matches!(report.bottleneck, Bottleneck::Window | Bottleneck::Head);
    if !is_held_up || report.spans.len() * report.producers.len() > MOST_QUOTED {
        return;
    }
    let window = |advice: &Advice| match advice {
        Advice::Window { items } => Some(*items),
        _ => None,
    };
    let Some(window) = report.findings.all_advice().find_map(window) else { return };
    let Ok(run) = RecordedRun::of(report) else { return };
    let lasted = run.predict(&Settings::new().window(window as usize));
    if lasted <= report.lasted.mul_f64(LEAST_GAIN) {
        let mut findings = report.findings.clone();
        findings.gain = Some(WindowGain { window, lasted: lasted.as_secs_f64() });
        report.conclude(findings);
    }
}

impl RecordedRun {
    /// Reads a report. The error says what the report lacks.
    pub(super) fn of(report: &RunReport) -> Result<Self, String> {
        check_whole(report)?;
        let batches = leases(report);
        let speeds = speeds(report, &batches);
        let items = items(report, &speeds);
        let each = |time: Duration| time.div_f64((items.len() as f64).max(1.0));
        let settings = &report.provenance.settings;
        let times = BatchTimes::of(&batches, &speeds);
        let parse = |text: &String| parsed_rule(text, times.largest);
        let rule = settings.get("batch").map(parse).transpose()?;
        let window = settings.get("window").and_then(|text| text.parse().ok());
        let is_known = settings.contains_key("window");
        let run = RecordedRun {
            lasted: report.lasted,
            pull: each(report.source_working),
            consume: each(report.consumer_working),
            batches: times,
            config: config(report),
            window: if is_known { window } else { Some(report.window as usize) },
            running: report.findings.running as usize,
            rule,
            vocabulary: report.vocabulary,
            items,
            speeds,
        };
        run.check_faithful()?;
        Ok(run)
    }

    /// Divides settings into those whose effect can be predicted, and the others.
    pub(super) fn check(&self, asked: &Settings) -> (Settings, Vec<RefusedSetting>) {
        let mut left = asked.clone();
        let mut refused = vec![];
        let mut refuse = |setting: Settings, why: String| {
            let setting = setting.list(self.vocabulary).concat();
            refused.push(RefusedSetting { setting, why });
        };
        let (none, words) = (Settings::new(), self.words());
        if let Some(producers) = asked.producers.filter(|it| !(1..=MOST_PRODUCERS).contains(it)) {
            left.producers = None;
            let why = format!("a run has from 1 to {MOST_PRODUCERS} {}", words.producers);
            refuse(none.clone().producers(producers), why);
        }
        if let Some((items, why)) = self.refusal_of_window(asked) {
            left.window = None;
            refuse(none.clone().window(items), why);
        }
        if let Some((batch, why)) = asked.batch.and_then(|it| Some((it, self.refusal_of(it)?))) {
            left.batch = None;
            refuse(none.clone().batch(batch), why);
        }
        if let Some((retries, why)) =
            asked.retries.and_then(|it| Some((it, self.refusal_of_retries(it)?)))
        {
            left.retries = None;
            refuse(none.retries(retries), why);
        }
        (left, refused)
    }

    fn words(&self) -> &'static Words {
        self.vocabulary.words()
    }

    fn refusal_of_retries(&self, retries: u32) -> Option<String> {
        let item = self.words().item;
        let failed = self.items.iter().find(|it| it.has_failed);
        if let Some(failed) = failed.filter(|_| retries > self.config.retries) {
            let (index, attempts) = (failed.index, failed.took.len());
            let times = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
            return Some(format!(
                "{item} {index} failed {times}, and what comes after is not known"
            ));
        }
        let is_out = |it: &&RecordedItem| it.took.len() > retries as usize + 1;
        let out =
            self.items.iter().find(is_out).filter(|_| self.config.on_error == OnError::Stop)?;
        Some(format!("{item} {} would have failed and ended the run", out.index))
    }

    fn refusal_of_window(&self, asked: &Settings) -> Option<(usize, String)> {
        let (items, words) = (asked.window?, self.words());
        let producers = asked.producers.unwrap_or(self.config.producers).min(MOST_PRODUCERS);
        let rule = asked.batch.or(self.rule).map_or(1, |rule| rule.most());
        let why = match items + self.running {
            0 => format!("a window has at least one {}", words.item),
            // The feeder then waits for the permits of whole batches; the replay does not.
            all if rule > 1 && all < producers.saturating_mul(rule) => format!(
                "it has no room for a batch of {rule} on each of {producers} {}",
                words.producers
            ),
            _ => return None,
        };
        Some((items, why))
    }

    fn refusal_of(&self, batch: Batch) -> Option<String> {
        let BatchTimes { largest, sizes, .. } = self.batches;
        let (item, items, batches) = (self.words().item, self.words().items, self.words().batches);
        match batch.most() {
            0 => Some(format!("a batch has at least one {item}")),
            most if most == largest => None,
            _ if largest == 1 => {
                Some(format!("{items} came one by one, so how long {batches} take is not known"))
            }
            _ if sizes < 2 => Some(format!(
                "most {batches} had {largest} {items}, so how the time depends on the size is not known"
            )),
            most if most > MOST_GROWTH * largest => Some(format!(
                "the largest batch had {largest} {items}, and one of more than twice as many may not fit or behave alike"
            )),
            _ if self.items.iter().any(|item| item.took.len() > 1) => {
                Some(format!("{items} were tried again, and with other {batches} others would be"))
            }
            _ => None,
        }
    }

    /// The time that the run would have taken. If a replay of its own settings takes less than recorded, the difference
    /// counts as overhead.
    pub(super) fn predict(&self, settings: &Settings) -> Duration {
        let (as_it_was, otherwise) = (self.run(&Settings::default()), self.run(settings));
        let overhead = self.lasted.as_secs_f64() / as_it_was.as_secs_f64().max(1e-9);
        otherwise.mul_f64(overhead)
    }

    /// Checks that a replay of the run's own settings takes about as long as the run.
    fn check_faithful(&self) -> Result<(), String> {
        let largest = self.rule.map_or(1, |rule| rule.most());
        if largest > 1
            && self
                .window
                .is_some_and(|items| items < largest.saturating_mul(self.config.producers))
        {
            return Err("its window had no room for a batch on each producer".to_owned());
        }
        let replayed = self.run(&Settings::default());
        let ratio = replayed.as_secs_f64() / self.lasted.as_secs_f64().max(1e-9);
        if (1.0 - MOST_DIFFERENCE..=1.0 + MOST_DIFFERENCE).contains(&ratio) {
            return Ok(());
        }
        let (replayed, lasted) = (HumanDuration(replayed), HumanDuration(self.lasted));
        Err(format!(
            "by the times of its items, source and consumer it takes {replayed}, not {lasted}: what took the rest is not \
             in it"
        ))
    }

    fn run(&self, settings: &Settings) -> Duration {
        let producers = settings.producers.unwrap_or(self.config.producers);
        let window = settings.window.map(|items| items + self.running).or(self.window);
        let (rule, given) = (settings.batch.or(self.rule), window);
        let mut batching = rule.map(Batching::new);
        if let (Some(batching), Some(items)) = (&mut batching, given) {
            batching.limit_to_window(items, producers);
        }
        let window = Window::new(given, producers, batching);
        let config = Config {
            producers,
            batching,
            window: window.size(),
            order: settings.order.unwrap_or(self.config.order),
            retries: settings.retries.unwrap_or(self.config.retries),
            ..self.config.clone()
        };
        replay::replay(config, window, self.items.len() as u64, &mut RecordedModel(self)).lasted
    }
}

/// The recorded times, for a replay.
struct RecordedModel<'a>(&'a RecordedRun);

impl RunModel for RecordedModel<'_> {
    fn pull(&mut self, _: u64) -> Duration {
        self.0.pull
    }

    fn work(&mut self, producer: ProducerId, items: &[u64], attempt: u32) -> (Duration, Outcome) {
        let RecordedRun { items: recorded, batches, speeds, .. } = self.0;
        let speed = speeds[producer % speeds.len()];
        if batches.largest > 1 || items.len() > 1 {
            let time = batches.fixed + batches.each * items.len() as f64;
            return (Duration::from_secs_f64(time.max(0.0) * speed), Outcome::Succeeded);
        }
        let RecordedItem { took, has_failed, .. } = &recorded[items[0] as usize];
        let last = took.len() - 1;
        let at = (attempt as usize - 1).min(last);
        let outcome = match at < last || *has_failed {
            true => Outcome::Failed,
            false => Outcome::Succeeded,
        };
        (took[at].mul_f64(speed), outcome)
    }

    fn consume(&mut self, _: u64) -> Duration {
        self.0.consume
    }
}

fn check_whole(report: &RunReport) -> Result<(), String> {
    if !report.stages.is_empty() {
        return Err(
            "it is the report of a pipeline: ask the report of one of its stages".to_owned()
        );
    }
    if report.ending != Ending::Finished {
        return Err("the run did not end by itself".to_owned());
    }
    if !report.has_item_events() || report.spans.is_empty() {
        return Err("it has no times of items, which `timeline()` records".to_owned());
    }
    let missing = report.spans_left_out + report.events_lost + report.failures_left_out;
    if missing > 0 {
        return Err(format!("it lacks {missing} attempts or failures"));
    }
    if report.splits.split > 0 {
        return Err("batches failed and were split".to_owned());
    }
    if let Some(name) =
        NOT_REPLAYED.iter().find(|name| report.provenance.settings.contains_key(**name))
    {
        return Err(format!("the run had `{name}`, which is not replayed"));
    }
    Ok(())
}

/// The items with their attempts, as if all had been made on the first place.
fn items(report: &RunReport, speeds: &[f64]) -> Vec<RecordedItem> {
    let mut spans: Vec<_> = report.spans.iter().filter(|span| !span.is_open).collect();
    spans.sort_by_key(|span| (span.item, span.start));
    let failed: BTreeSet<u64> = report.failures.iter().filter_map(|failure| failure.item).collect();
    let mut items: Vec<RecordedItem> = vec![];
    for span in spans {
        if items.last().is_none_or(|item| item.index != span.item) {
            let has_failed = failed.contains(&span.item);
            items.push(RecordedItem { index: span.item, took: vec![], has_failed });
        }
        let item = items.last_mut().expect("one was added");
        item.took.push(span.took.div_f64(speeds[span.producer % speeds.len()]));
    }
    items
}

/// The settings of the run that the scheduler needs. Its window and its batches vary.
fn config(report: &RunReport) -> Config {
    let settings = &report.provenance.settings;
    let skips = settings.get("on_error").is_some_and(|text| text == "skip");
    let backoff = settings.get("backoff").and_then(|text| humantime::parse_duration(text).ok());
    Config {
        producers: report.producers.len().max(1),
        places: None,
        order: report.order,
        window: report.window as usize,
        batching: None,
        on_error: if skips { OnError::Skip } else { OnError::Stop },
        retries: settings.get("retries").and_then(|text| text.parse().ok()).unwrap_or(0),
        backoff: Backoff {
            first: backoff.unwrap_or(Backoff::default().first),
            ..Backoff::default()
        },
        quarantine_after: None,
        copy_after: None,
        timeouts: Timeouts::default(),
        min_producers: 1,
        bypass: Bypass::Never,
        input: Input::MayCome,
    }
}

/// Reads a rule from a report: `of 32`, `up to 32`, `32 within 5 ms`, or `auto`, with `largest` as its largest size.
fn parsed_rule(text: &str, largest: usize) -> Result<Batch, String> {
    if text.starts_with("auto") {
        return Ok(Batch::up_to(largest));
    }
    let rule = match (text.strip_prefix("of "), text.strip_prefix("up to ")) {
        (Some(most), _) => most.parse().ok().map(Batch::of),
        (_, Some(most)) => most.parse().ok().map(Batch::up_to),
        _ => text.split_once(" within ").and_then(|(most, time)| {
            Some(Batch::of(most.parse().ok()?).within(humantime::parse_duration(time).ok()?))
        }),
    };
    rule.ok_or_else(|| format!("its batches, {text:?}, are of an unknown kind"))
}
