//! The bottleneck of a run, decided from shares of its time.

mod advice;
mod limits;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::advice::{FEWEST_EACH, calls, of_splits, worked};
use super::account::Ending;
use super::advice::Advice;
use super::conclusion::{Bottleneck, Conclusion, Limit, Percent, TeamPlace};
use super::head_cost;
use super::live_producers::{held_up, mean, team};
use super::producer_report::share;
use super::run_report::RunReport;
use crate::account::{Destination, Origin};
use crate::run_report::{BACKOFF, NO_WINDOW};

/// The shortest run with a bottleneck. A shorter one consists mostly of starting and ending threads.
const SHORTEST: Duration = Duration::from_millis(10);

/// The share of a run from which `consumer_init`, or the `producer_init` of the producers in it, limits it.
const LEAST_START: f64 = 0.2;

/// The share of the time from which a part that works sets the pace of the run.
pub(super) const MOST: f64 = 0.75;

/// The share of the time from which a wait counts. Without such a wait, the run would gain a tenth.
pub(super) const LEAST_WAIT: f64 = 0.1;

/// The lead of the busiest producer over the mean from which work is uneven, as a share of the time.
const LEAST_UNEVEN: f64 = 0.1;

/// The share of the time from which rebuilding states limits a run.
const LEAST_REBUILDING_TO_LIMIT: f64 = 0.2;

/// The largest difference of two shares that may swap places in the next run.
pub(super) const CLOSE: f64 = 0.1;

/// The calls of the hook per producer below which a run with an uneven end had too few items.
const FEW_EACH: f64 = 4.0;

/// Decides what limited a run.
pub(super) fn decide(run: &RunReport) -> Conclusion {
    if let Some(early) = decided_early(run) {
        return early;
    }
    let shares = TimeShares::of(run);
    let bottleneck = shares.limit(run);
    // Other parts, if they limited the run, did so in spite of the splits.
    let splits = match bottleneck {
        Bottleneck::Producers | Bottleneck::Mixed | Bottleneck::Unknown => of_splits(&run.splits),
        _ => None,
    };
    match (splits, bottleneck) {
        (Some((limit, advice)), _) => {
            Conclusion { limit: Some(limit), advice: vec![advice], ..Conclusion::begun(run) }
                .and_head(run)
        }
        (None, Bottleneck::Unknown) => too_short(run),
        (None, _) => Conclusion::of(bottleneck, &shares, run),
    }
}

impl Conclusion {
    /// What is known without the limit: how the run began and ended, and its producers.
    pub(super) fn begun(run: &RunReport) -> Self {
        let done = run.account.already_done;
        Conclusion {
            earlier: (done > 0).then(|| (done, done + worked(run))),
            ended: ended(run),
            lasted: run.lasted.as_secs_f64(),
            team: team(run),
            ..Conclusion::default()
        }
    }

    /// The limit with its numbers, and what to change.
    pub(super) fn of(bottleneck: Bottleneck, shares: &TimeShares, run: &RunReport) -> Self {
        let (limit, advice) = shares.concluded(bottleneck, run);
        let second = shares.second(bottleneck);
        Conclusion { limit: Some(limit), second, advice, ..Conclusion::begun(run) }.and_head(run)
    }

    /// Adds what the head of the line cost, unless the limit has advice for the window.
    fn and_head(mut self, run: &RunReport) -> Self {
        let is_said = matches!(
            self.bottleneck(),
            Bottleneck::Head | Bottleneck::Window | Bottleneck::Backoff
        );
        if !is_said && head_cost::matters(run) {
            let mut head = head_cost::cost(run);
            head.advice.retain(|advice| !self.advice.contains(advice));
            self.head = Some(head);
        }
        self
    }
}

/// Shares of the time of a run, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TimeShares {
    origin: Origin,
    destination: Destination,
    pub(super) source: f64,
    /// Time with a full window.
    pub(super) full: f64,
    /// Time that producers worked, on average.
    producers: f64,
    /// Time that producers rebuilt lost or recycled states, on average.
    rebuilding: f64,
    /// Time that producers built their first states, on average.
    loading: f64,
    aside: AsideShares,
    /// The share of the busiest producer, and its number.
    busiest: (f64, usize),
    starved: StarvedShares,
    pub(super) consumer: f64,
    /// The time of the consumer, or of the next stage of a pipeline.
    taking: f64,
    /// Time that the head of line was blocked.
    stalled: f64,
    /// The calls of the hook, for each producer.
    calls_each: f64,
}

/// Time that was neither work nor a wait for items, as a share of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct AsideShares {
    /// That for which the setting that held back most did so, of all producers together.
    held_back: f64,
    /// That in which producers wrote outputs for a journal, on average.
    journal: f64,
    /// That in which the consumer's thread wrote the journal.
    written: f64,
    /// That in which lost workers were taken for live ones, on average.
    dead: f64,
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
    pub(super) fn of(run: &RunReport) -> Self {
        let share = |time| share(time, run.lasted);
        let working = run.producers.iter().map(|producer| share(producer.working));
        let busiest = working.zip(0..).max_by(|one, other| one.0.total_cmp(&other.0));
        TimeShares {
            origin: run.origin,
            destination: run.destination,
            source: share(run.source_working),
            full: share(run.source_waiting),
            producers: mean(run, |producer| producer.working),
            busiest: busiest.unwrap_or_default(),
            rebuilding: mean(run, |producer| producer.rebuilding + producer.recycling),
            loading: mean(run, |producer| producer.loading()),
            aside: AsideShares {
                held_back: share(held_most(run).map_or(Duration::ZERO, |it| it.1)),
                journal: mean(run, |producer| producer.times.journal),
                written: share(run.journal_writing),
                dead: mean(run, |producer| producer.times.dead),
            },
            starved: StarvedShares {
                all: mean(run, |producer| producer.waiting),
                held_up: mean(run, |producer| held_up(producer, run)),
                backing_off: mean(run, |producer| producer.backing_off),
            },
            consumer: share(run.consumer_working),
            taking: share(run.consumer_working + run.journal_writing),
            stalled: share(run.head_stalled),
            calls_each: calls(run) as f64 / run.producers.len().max(1) as f64,
        }
    }

    /// The bottleneck of a run that may have been short, or may have had few items. Then chance decides what took the most
    /// time.
    fn limit(&self, run: &RunReport) -> Bottleneck {
        match () {
            () if is_short(run) => Bottleneck::Unknown,
            () if !has_few(run) => self.bottleneck(),
            () if has_ended_early(run) || run.window == NO_WINDOW => Bottleneck::Unknown,
            () => self.limit_of_few(self.bottleneck(), run),
        }
    }

    /// The busiest part if it sets the pace, or else the reason why producers wait.
    fn bottleneck(&self) -> Bottleneck {
        let (busiest, share) = self.parts()[0];
        match () {
            () if self.aside.written >= self.consumer && self.taking >= MOST => Bottleneck::Journal,
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
        let AsideShares { held_back, journal, dead, .. } = self.aside;
        let idle = 1.0 - self.at_work();
        let is_held_back = held_back >= LEAST_WAIT && held_back >= idle / 2.0 && idle >= LEAST_WAIT;
        match () {
            () if self.is_rebuilding() => Some(Bottleneck::Rebuilding),
            () if dead >= LEAST_WAIT => Some(Bottleneck::LostWorker),
            () if journal >= LEAST_WAIT => Some(Bottleneck::Journal),
            () if is_held_back => Some(Bottleneck::HeldBack),
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
    pub(super) fn limit_of_few(&self, limit: Bottleneck, run: &RunReport) -> Bottleneck {
        match limit {
            limit @ (Bottleneck::Source
            | Bottleneck::Consumer
            | Bottleneck::Rebuilding
            | Bottleneck::HeldBack
            | Bottleneck::Journal
            | Bottleneck::LostWorker
            | Bottleneck::Backoff) => limit,
            _ if self.busiest.0 >= MOST && run.producers.len() > 1 => Bottleneck::TooFew,
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

/// What held work back for the longest, and for how long: of all producers together. The delay of retries is a kind of its
/// own.
pub(super) fn held_most(run: &RunReport) -> Option<(&str, Duration)> {
    let causes = run.held_back_by.iter().filter(|(cause, _)| *cause != BACKOFF);
    causes.map(|(cause, held)| (cause.as_str(), *held)).max_by_key(|it| it.1)
}

/// The conclusion, if the counts of the run or its start decide without shares of its time.
pub(super) fn decided_early(run: &RunReport) -> Option<Conclusion> {
    if worked(run) > 0 {
        // A hook that fails for most batches is to be mended first.
        let is_split = of_splits(&run.splits).is_some();
        let (limit, advice) = start_up(run).filter(|_| !has_ended_early(run) && !is_split)?;
        return Some(Conclusion { limit: Some(limit), advice, ..Conclusion::begun(run) });
    }
    let limit = match (run.account.already_done, ended(run)) {
        (1.., _) => Limit::NothingToDo,
        (0, _) => Limit::NothingRead { unread: run.account.unread.unwrap_or(0) },
    };
    Some(Conclusion { limit: Some(limit), ..Conclusion::begun(run) })
}

/// Getting ready, if that limited the run, and what to change.
fn start_up(run: &RunReport) -> Option<(Limit, Vec<Advice>)> {
    let RunReport { lasted, start_up, consumer_init, .. } = run;
    let is_long = |time: &Duration, least: Duration| *time >= SHORTEST && *time >= least;
    if is_long(start_up, *lasted) {
        let sooner = match Conclusion::begun(run).team.place {
            TeamPlace::Cluster => Advice::WorkersBefore,
            TeamPlace::Threads | TeamPlace::Processes => Advice::FasterInit,
        };
        return Some((
            Limit::StartUp { took: start_up.as_secs_f64() },
            vec![Advice::OnePool, sooner],
        ));
    }
    let loading = mean(run, |producer| producer.loading());
    if loading >= LEAST_START && *lasted >= SHORTEST {
        return Some((
            Limit::Loading { share: Percent(loading) },
            vec![Advice::OnePool, Advice::FasterInit],
        ));
    }
    is_long(consumer_init, lasted.mul_f64(LEAST_START)).then(|| {
        (
            Limit::ConsumerStart { took: consumer_init.as_secs_f64() },
            vec![Advice::ConsumerInitBefore],
        )
    })
}

/// Whether the run has worked on any item.
pub(super) fn has_worked(run: &RunReport) -> bool {
    worked(run) > 0
}

/// Whether the run did not have all of its items: it failed, was cancelled or was stopped.
pub(super) fn has_ended_early(run: &RunReport) -> bool {
    let was_stopped = run.account.cancelled > 0 || run.account.unread.is_some_and(|it| it > 0);
    ended(run).is_some() || was_stopped
}

/// Whether the run mostly consisted of starting and ending threads.
pub(super) fn is_short(run: &RunReport) -> bool {
    run.lasted < SHORTEST
}

/// Whether the run had too few items for a share of each producer.
pub(super) fn has_few(run: &RunReport) -> bool {
    worked(run) < FEWEST_EACH.saturating_mul(run.producers.len() as u64)
}

pub(super) fn too_short(run: &RunReport) -> Conclusion {
    let limit = Some(Limit::TooShort { items: worked(run) });
    Conclusion { limit, ..Conclusion::begun(run) }
}

fn ended(run: &RunReport) -> Option<Ending> {
    Some(run.ending).filter(|ending| matches!(ending, Ending::Cancelled | Ending::Failed))
}
