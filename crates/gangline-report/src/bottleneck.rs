//! The bottleneck of a run, decided from shares of its time.

mod advice;
mod clauses;
mod early;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::advice::{FEWEST_EACH, calls, worked};
use self::early::SHORTEST;
use super::advised_setting::{AdvisedSetting, Circumstances};
use super::formats::{Count, Many, Time, capitalised};
use super::head_cost;
use super::live_producers::{all_producers, lost, mean, without_vacant, words};
use super::producer_report::share;
use super::vocabulary::Words;
use crate::totals::{Destination, NO_WINDOW, Origin, ProducerTotals, Totals};

/// What limited a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// Unknown: the run is in progress, had no work, or was too short.
    #[default]
    Unknown,
    /// The source: it was at work most of the time. In a pipeline, also the stage before.
    Source,
    /// The producers: they were at work most of the time.
    Producers,
    /// Rebuilding states that were lost or recycled: producers called `producer_init` again much of the time.
    Rebuilding,
    /// The consumer: it was at work most of the time. Also the caller of `outputs`, and the next stage of a
    /// pipeline.
    Consumer,
    /// The window: it was full while producers waited, and the consumer was not the cause.
    Window,
    /// Backoff: producers waited for items that were due for a retry later.
    Backoff,
    /// The order: the head of line was blocked and the window full of later results.
    Head,
    /// Uneven work: one producer was at work most of the time while the others ran out of items.
    Uneven,
    /// No single part: none was at work most of the time.
    Mixed,
    /// Split batches: most batches failed as a whole, and were worked on in parts.
    Splits,
    /// Too few items, or batches, for the producers to share evenly.
    TooFew,
    /// Start-up: the producers took longer to get ready than the run took, or `consumer_init` took at least 20 % of it.
    StartUp,
}

/// The sentence of a report of a run in progress.
pub(super) const IN_PROGRESS: &str = "The run is in progress: its bottleneck is known at the end.";

/// The share of the time from which a part that works sets the pace of the run.
pub(super) const MOST: f64 = 0.75;

/// The share of the time from which a wait counts. Without such a wait, the run would gain a tenth.
pub(super) const LEAST_WAIT: f64 = 0.1;

/// The lead of the busiest producer over the mean from which work is uneven, as a share of the time.
const LEAST_UNEVEN: f64 = 0.1;

/// The share of the time from which rebuilding states limits a run.
const LEAST_REBUILDING_TO_LIMIT: f64 = 0.2;

/// The share of the time from which rebuilding is mentioned.
const LEAST_REBUILDING: f64 = 0.05;

/// The largest difference of two shares that may swap places in the next run.
pub(super) const CLOSE: f64 = 0.1;

/// The calls of the hook per producer below which a run with an uneven end had too few items.
const FEW_EACH: f64 = 4.0;

/// What a report says about the bottleneck of a run.
#[derive(Debug, Default)]
pub(super) struct Conclusion {
    pub(super) bottleneck: Bottleneck,
    pub(super) sentence: String,
    pub(super) advice: Vec<AdvisedSetting>,
}

/// Decides the bottleneck of a run, and describes it in a sentence.
pub(super) fn decide(totals: &Totals, at: &Circumstances<'_>) -> Conclusion {
    let totals = &*without_vacant(totals);
    if let Some(early) = decided_early(totals) {
        return early;
    }
    let shares = TimeShares::of(totals);
    let bottleneck = shares.limit(totals);
    // Other parts, if they limited the run, did so in spite of the splits.
    let split = match bottleneck {
        Bottleneck::Producers | Bottleneck::Mixed | Bottleneck::Unknown => totals.splits.clause(),
        _ => None,
    };
    let mut conclusion = match (split, bottleneck) {
        (Some(clause), _) => Conclusion::without_advice(Bottleneck::Splits, clause),
        (None, Bottleneck::Unknown) => return too_short(totals),
        (None, _) => Conclusion::of(bottleneck, &shares, totals, at),
    };
    let (opening, clause) = (opening(totals), &conclusion.sentence);
    let sentence = capitalised(&format!("{opening}{clause}{}.", lost(totals)));
    conclusion.sentence = done_before(totals) + &sentence;
    conclusion.and_head(totals, at)
}

impl Conclusion {
    /// Its sentence is a clause.
    pub(super) fn of(
        bottleneck: Bottleneck,
        shares: &TimeShares,
        totals: &Totals,
        at: &Circumstances<'_>,
    ) -> Self {
        let advice = shares.advised(bottleneck, totals, at);
        let sentence = shares.clause(bottleneck, totals, at, &advice);
        Conclusion { bottleneck, sentence, advice }
    }

    pub(super) fn without_advice(bottleneck: Bottleneck, sentence: String) -> Self {
        Conclusion { bottleneck, sentence, advice: vec![] }
    }

    /// Adds a sentence about the head of the line, unless its own has advice for the window.
    pub(super) fn and_head(mut self, totals: &Totals, at: &Circumstances<'_>) -> Self {
        let is_said =
            matches!(self.bottleneck, Bottleneck::Head | Bottleneck::Window | Bottleneck::Backoff);
        if is_said || !head_cost::matters(totals) {
            return self;
        }
        let mut advised = head_cost::advised(totals, at);
        advised.retain(|setting| !self.advice.contains(setting));
        self.sentence.push_str(&format!(" {}", head_cost::sentence(totals, &advised)));
        self.advice.extend(advised);
        self
    }
}

/// Shares of the time of a run, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TimeShares {
    words: &'static Words,
    origin: Origin,
    destination: Destination,
    source: f64,
    /// Time with a full window.
    full: f64,
    /// Time that producers worked, on average.
    producers: f64,
    /// Time that producers rebuilt lost or recycled states, on average.
    rebuilding: f64,
    /// Time that producers built their first states, on average.
    loading: f64,
    /// The share of the busiest producer, and its number.
    busiest: (f64, usize),
    starved: StarvedShares,
    consumer: f64,
    /// The time of the consumer, or of the next stage of a pipeline.
    taking: f64,
    /// Time that the head of line was blocked.
    stalled: f64,
    /// The calls of the hook, for each producer.
    calls_each: f64,
}

/// Time that producers found no item, on average, as a share of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct StarvedShares {
    all: f64,
    /// With the window full.
    held_up: f64,
    /// With items waiting for a retry.
    backing_off: f64,
}

impl TimeShares {
    pub(super) fn of(totals: &Totals) -> Self {
        let share = |time| share(time, totals.lasted);
        let working = totals.producers.iter().map(|producer| share(producer.working));
        let busiest = working.zip(0..).max_by(|one, other| one.0.total_cmp(&other.0));
        TimeShares {
            words: words(totals),
            origin: totals.origin,
            destination: totals.destination,
            source: share(totals.source_working),
            full: share(totals.source_waiting),
            producers: mean(totals, |producer| producer.working),
            busiest: busiest.unwrap_or_default(),
            rebuilding: mean(totals, |producer| producer.rebuilding + producer.recycling),
            loading: mean(totals, |producer| producer.loading),
            starved: StarvedShares {
                all: mean(totals, |producer| producer.waiting),
                held_up: mean(totals, |producer| held_up(producer, totals)),
                backing_off: mean(totals, |producer| producer.backing_off),
            },
            consumer: share(totals.consumer_working),
            taking: share(totals.consumer_working),
            stalled: share(totals.head_stalled),
            calls_each: calls(totals) as f64 / totals.producers.len().max(1) as f64,
        }
    }

    /// The bottleneck of a run that may have been short, or may have had few items. Then chance decides what took the most
    /// time.
    fn limit(&self, totals: &Totals) -> Bottleneck {
        match () {
            () if is_short(totals) => Bottleneck::Unknown,
            () if !has_few(totals) => self.bottleneck(),
            () if has_ended_early(totals) || totals.window == NO_WINDOW => Bottleneck::Unknown,
            () => self.limit_of_few(self.bottleneck(), totals),
        }
    }

    /// The busiest part if it sets the pace, or else the reason why producers wait.
    fn bottleneck(&self) -> Bottleneck {
        let (busiest, share) = self.parts()[0];
        match () {
            () if share >= MOST => self.if_they_wait(busiest),
            () => self.reason_to_wait().unwrap_or(Bottleneck::Mixed),
        }
    }

    /// The busiest part, or the reason why producers wait although they are the busiest part. More of them would wait too.
    pub(super) fn if_they_wait(&self, busiest: Bottleneck) -> Bottleneck {
        match busiest {
            Bottleneck::Producers => self.reason_to_wait().unwrap_or(Bottleneck::Producers),
            busiest => busiest,
        }
    }

    /// The reason why producers do not work all the time, if it is neither the source nor the consumer.
    pub(super) fn reason_to_wait(&self) -> Option<Bottleneck> {
        let StarvedShares { all, held_up, backing_off } = self.starved;
        let is_held_up = held_up >= LEAST_WAIT;
        let is_backing_off = backing_off >= LEAST_WAIT && backing_off >= all / 2.0;
        match () {
            () if self.is_rebuilding() => Some(Bottleneck::Rebuilding),
            () if is_backing_off => Some(Bottleneck::Backoff),
            () if is_held_up && self.stalled >= self.full / 2.0 => Some(Bottleneck::Head),
            () if is_held_up && self.taking < self.full => Some(Bottleneck::Window),
            () if self.busiest.0 < MOST || self.busiest.0 - self.at_work() < LEAST_UNEVEN => None,
            () if self.calls_each < FEW_EACH => Some(Bottleneck::TooFew),
            () => Some(Bottleneck::Uneven),
        }
    }

    /// What limited a run of few items for its producers: a part that a few items show as well, or that they were few.
    /// They were if a producer worked all the time while others had none.
    pub(super) fn limit_of_few(&self, limit: Bottleneck, totals: &Totals) -> Bottleneck {
        match limit {
            limit @ (Bottleneck::Source
            | Bottleneck::Consumer
            | Bottleneck::Rebuilding
            | Bottleneck::Backoff) => limit,
            _ if self.busiest.0 >= MOST && totals.producers.len() > 1 => Bottleneck::TooFew,
            _ => Bottleneck::Unknown,
        }
    }

    fn is_rebuilding(&self) -> bool {
        self.rebuilding >= LEAST_REBUILDING_TO_LIMIT
    }

    /// Leaves out the stages before and after, which have shares of their own.
    pub(super) fn without_neighbours(self) -> Self {
        let source = if self.origin == Origin::Iterator { self.source } else { 0.0 };
        let is_last = self.destination != Destination::NextStage;
        TimeShares { source, consumer: if is_last { self.consumer } else { 0.0 }, ..self }
    }

    /// The share of the time that producers worked or built states, on average.
    pub(super) fn at_work(&self) -> f64 {
        (self.producers + self.rebuilding + self.loading).min(1.0)
    }

    /// The share of the time with a full window.
    pub(super) fn full(&self) -> f64 {
        self.full
    }

    pub(super) fn source(&self) -> f64 {
        self.source
    }

    pub(super) fn consumer(&self) -> f64 {
        self.consumer
    }

    /// The working parts, busiest first. Of equals, the one downstream comes first, since the others wait for
    /// it.
    fn parts(&self) -> [(Bottleneck, f64); 3] {
        let mut parts = [
            (Bottleneck::Consumer, self.consumer),
            (Bottleneck::Producers, self.at_work()),
            (Bottleneck::Source, self.source),
        ];
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        parts
    }
}

/// The time in which the window was full and the producer had no item.
///
/// The producer notes what it lacks when it begins to wait, and the window may fill a moment later. So the result is at
/// least the time by which its waits and those of the source must overlap.
fn held_up(producer: &ProducerTotals, totals: &Totals) -> Duration {
    let both = totals.source_waiting + producer.waiting;
    producer.held_up.max(both.saturating_sub(totals.lasted))
}

/// The conclusion, if the counts of the run or its start decide without shares of its time.
pub(super) fn decided_early(totals: &Totals) -> Option<Conclusion> {
    if let Some(sentence) = nothing_was_done(totals) {
        return Some(Conclusion::without_advice(Bottleneck::Unknown, sentence));
    }
    let clause = early::start_up(totals).filter(|_| !has_ended_early(totals))?;
    let sentence = done_before(totals) + &capitalised(&format!("{clause}."));
    Some(Conclusion::without_advice(Bottleneck::StartUp, sentence))
}

/// Whether the run has worked on any item.
pub(super) fn has_worked(totals: &Totals) -> bool {
    worked(totals) > 0
}

/// Whether the run did not have all of its items: it failed, was cancelled or was stopped.
pub(super) fn has_ended_early(totals: &Totals) -> bool {
    let was_stopped =
        totals.account.cancelled > 0 || totals.account.unread.is_some_and(|it| it > 0);
    totals.error.is_some() || totals.cancelled || was_stopped
}

/// Whether the run mostly consisted of starting and ending threads.
pub(super) fn is_short(totals: &Totals) -> bool {
    totals.lasted < SHORTEST
}

/// What an earlier run had done, as a sentence before that about the rest.
pub(super) fn done_before(totals: &Totals) -> String {
    let done = totals.account.already_done;
    match done {
        0 => String::new(),
        _ => {
            let all = Many(done + worked(totals), "item");
            format!("An earlier run had already done {} of {all}. ", Count(done))
        }
    }
}

/// Whether the run had too few items for a share of each producer.
pub(super) fn has_few(totals: &Totals) -> bool {
    worked(totals) < FEWEST_EACH.saturating_mul(totals.producers.len() as u64)
}

pub(super) fn too_short(totals: &Totals) -> Conclusion {
    let ended = ended(totals).map_or(String::new(), |ended| format!(", and {ended}"));
    let (items, producers) = (Many(worked(totals), "item"), all_producers(totals));
    let lasted = Time(totals.lasted);
    let before = done_before(totals);
    let what = if before.is_empty() { "run" } else { "rest" };
    let sentence = format!(
        "{before}The {what} is too short to say what limited it: it had {items} for {producers} in {lasted}{ended}."
    );
    Conclusion::without_advice(Bottleneck::Unknown, sentence)
}

fn ended(totals: &Totals) -> Option<&'static str> {
    match (&totals.error, totals.cancelled) {
        (_, true) => Some("was cancelled"),
        (Some(_), false) => Some("failed"),
        (None, false) => None,
    }
}

fn nothing_was_done(totals: &Totals) -> Option<String> {
    let (account, worked) = (totals.account, worked(totals));
    let lasted = Time(totals.lasted);
    match ended(totals) {
        Some(ended) if worked + account.already_done == 0 => {
            Some(format!("The run {ended} after {lasted}, before any item was read."))
        }
        None if worked + account.already_done == 0 => Some(match account.unread {
            Some(unread @ 1..) => {
                let unread = Many(unread, "item");
                format!("No item was read: the run was ended before, with {unread} unread.")
            }
            _ => "No item was read: the input had none, or the run was ended before.".to_owned(),
        }),
        _ if worked == 0 => {
            let done = Many(account.already_done, "item");
            Some(format!("There was nothing to do: an earlier run had already done {done}."))
        }
        _ => None,
    }
}

pub(super) fn opening(totals: &Totals) -> String {
    match (&totals.error, totals.cancelled) {
        (_, true) => format!("Until it was cancelled after {}, ", Time(totals.lasted)),
        (Some(_), false) => format!("Until it failed after {}, ", Time(totals.lasted)),
        (None, false) => String::new(),
    }
}
