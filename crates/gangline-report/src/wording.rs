//! The words of a conclusion, in each vocabulary.

mod advice;
mod failures;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::advice::{Wording, listed};
pub(super) use self::advice::{named, settings, write};
pub(super) use self::failures::name_failures;
use super::account::Ending;
use super::conclusion::{
    Bottleneck, BusyPart, CallerForm, Conclusion, Halted, HeadCost, Limit, ListSizes, PartKind,
    Percent, Team, TeamPlace,
};
use super::formats::{Count, LONGEST_TEXT, Many, Time, capitalised, clipped};
use super::split_report::counts;
use super::vocabulary::{Vocabulary, Words};

/// The share of the time from which a part of what a journal took is mentioned.
const LEAST_JOURNAL: f64 = 0.01;

/// The share of the time from which rebuilding is mentioned.
const LEAST_REBUILDING: f64 = 0.05;

/// Returns a conclusion as sentences.
pub(super) fn text(conclusion: &Conclusion, vocabulary: Vocabulary) -> String {
    Wording::new(conclusion, vocabulary).text()
}

/// Names what limited a run: `the producers`.
pub(super) fn limit(bottleneck: Bottleneck, words: &Words) -> String {
    match bottleneck {
        Bottleneck::Unknown => "something unknown".to_owned(),
        Bottleneck::Source => words.reading.to_owned(),
        Bottleneck::Producers => format!("the {}", words.working),
        Bottleneck::Rebuilding => "rebuilding states".to_owned(),
        Bottleneck::Consumer => words.taking.to_owned(),
        Bottleneck::Window => format!("the {}", words.window),
        Bottleneck::Backoff => format!("the {} before retries", words.backoff),
        Bottleneck::Head => "the order".to_owned(),
        Bottleneck::Uneven => "uneven work".to_owned(),
        Bottleneck::Mixed => "no single part".to_owned(),
        Bottleneck::Splits => format!("split {}", words.batches),
        Bottleneck::TooFew => format!("too few {}", words.items),
        Bottleneck::StartUp => "start-up".to_owned(),
        Bottleneck::HeldBack => format!("what held {} back", words.items),
        Bottleneck::Journal => "the journal".to_owned(),
        Bottleneck::LostWorker => "a lost worker".to_owned(),
    }
}

/// What other settings would have made of a run.
pub(super) fn prediction(with: &str, lasted: Duration, recorded: Duration) -> String {
    format!("{with} this run would have taken {}, not {}", Time(lasted), Time(recorded))
}

impl Wording<'_> {
    fn text(&self) -> String {
        let Conclusion { head, gain, halted, lists, lasted, .. } = self.conclusion;
        let sentences = [
            halted.as_ref().map(halted_by),
            self.earlier(),
            self.limit(),
            head.as_ref().map(|head| capitalised(&format!("{}.", self.head(head)))),
            gain.map(|gain| {
                let with = format!("With {}", self.setting_of_window(gain.window));
                prediction(&with, secs(gain.lasted), secs(*lasted)) + "."
            }),
            lists.map(got_lists),
        ];
        sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn earlier(&self) -> Option<String> {
        // The sentence about a run that had nothing to do says it too.
        let is_said = matches!(self.conclusion.limit, Some(Limit::NothingToDo));
        let (done, all) = self.conclusion.earlier.filter(|_| !is_said)?;
        let all = Many(all, self.words.item);
        Some(format!("An earlier run had already done {} of {all}.", Count(done)))
    }

    /// The sentence about the limit.
    fn limit(&self) -> Option<String> {
        let Conclusion { ended, earlier, stage, .. } = self.conclusion;
        let (item, lasted) = (self.words.item, Time(secs(self.conclusion.lasted)));
        let ended = ended.map(|ended| match ended {
            Ending::Cancelled => "was cancelled",
            _ => "failed",
        });
        Some(match (self.conclusion.limit.as_ref()?, ended) {
            (Limit::InProgress, _) => {
                "The run is in progress: its bottleneck is known at the end.".to_owned()
            }
            (Limit::NothingRead { .. }, Some(ended)) => {
                format!("The run {ended} after {lasted}, before any {item} was read.")
            }
            (Limit::NothingRead { unread: 0 }, None) => {
                format!("No {item} was read: the input had none, or the run was ended before.")
            }
            (Limit::NothingRead { unread }, None) => {
                let unread = Many(*unread, item);
                format!("No {item} was read: the run was ended before, with {unread} unread.")
            }
            (Limit::NothingToDo, _) => {
                let done = Many(earlier.map_or(0, |it| it.0), item);
                format!("There was nothing to do: an earlier run had already done {done}.")
            }
            (Limit::TooShort { items }, ended) => {
                let (what, items) =
                    (if earlier.is_some() { "rest" } else { "run" }, Many(*items, item));
                let (team, ended) = (self.all_producers(), ended.map(|it| format!(", and {it}")));
                let ended = ended.unwrap_or_default();
                format!(
                    "The {what} is too short to say what limited it: it had {items} for {team} in {lasted}{ended}."
                )
            }
            (limit, ended) => {
                let opening = ended.map(|ended| format!("until it {ended} after {lasted}, "));
                let place = stage.as_ref().map(|it| {
                    let position = format!("stage {} of {}", it.number, it.all);
                    match it.name == format!("stage {}", it.number) {
                        true => format!("in {position} "),
                        false => format!("in {:?} ({position}) ", it.name),
                    }
                });
                let start = opening.into_iter().chain(place).collect::<String>();
                capitalised(&format!("{start}{}{}.", self.clause(limit), self.lost()))
            }
        })
    }

    /// Names the limit and its numbers, the second busiest part, and what to change.
    fn clause(&self, limit: &Limit) -> String {
        let subject = self.subject(limit);
        if let Limit::Head(head) = limit {
            return format!("{subject} limited the run: {}", self.head(head));
        }
        let second = self.conclusion.second.as_ref().map(|it| {
            format!(
                ", closely followed by {} ({})",
                self.part(it.part, it.stage.as_ref()),
                it.share
            )
        });
        let (second, advice) = (second.unwrap_or_default(), listed(&self.conclusion.advice, self));
        format!("{subject} limited the run: {}{second}{advice}", self.numbers(limit))
    }

    /// Names what limited the run.
    fn subject(&self, limit: &Limit) -> String {
        match limit {
            Limit::StageBefore { .. } => self.part(PartKind::StageBefore, None),
            Limit::Caller { form, .. } => self.part(PartKind::Caller(*form), None),
            Limit::NextStage { .. } => self.part(PartKind::NextStage, None),
            Limit::Recycling { .. } => "rebuilding recycled states".to_owned(),
            Limit::Rebuilding { .. } => "rebuilding lost states".to_owned(),
            Limit::WindowMemory { .. } => format!("the memory of the {}", self.words.window),
            Limit::ConsumerStart { .. } => format!("starting the {}", self.words.consumer),
            Limit::WorkerStarts { .. } => "the start of the warm workers".to_owned(),
            Limit::HeldBack { by, .. } => format!("`{by}`"),
            limit => self::limit(limit.bottleneck(), &self.words),
        }
    }

    fn part(&self, part: PartKind, stage: Option<&String>) -> String {
        let name = match (part, stage, self.vocabulary) {
            (PartKind::Producers, Some(stage), _) => {
                return format!("the {} of {stage:?}", self.words.producers);
            }
            (PartKind::Producers, None, _) => return format!("the {}", self.words.working),
            (PartKind::Source, ..) => self.words.reading,
            (PartKind::StageBefore, ..) => "the stage before",
            (PartKind::NextStage, ..) => "the next stage",
            (PartKind::Caller(CallerForm::Outputs), _, Vocabulary::Items) => {
                "the caller of `outputs`"
            }
            (PartKind::Caller(CallerForm::Fed), _, Vocabulary::Items) => {
                "the caller of the outputs"
            }
            (PartKind::Caller(_) | PartKind::Consumer, ..) => self.words.taking,
        };
        name.to_owned()
    }

    fn numbers(&self, limit: &Limit) -> String {
        let Words { producer, producers, items, window, init, took, .. } = self.words;
        let team = self.producers();
        match limit {
            Limit::Source { busy, starved } => {
                format!(
                    "it {took} {busy} of the time, while {team} found nothing for {starved} of it"
                )
            }
            Limit::StageBefore { idle, starved } => format!(
                "it delivered nothing for {idle} of the time, while {team} found nothing for {starved} of it"
            ),
            Limit::Producers { busy, rebuilding } => {
                format!("{team} worked {busy} of the time{}", and_rebuilt(*rebuilding))
            }
            Limit::Recycling { busy, rebuilding, .. }
            | Limit::Rebuilding { busy, rebuilding, .. } => {
                let why = self.why_rebuilt(limit);
                format!(
                    "{team} worked {busy} of the time and ran {init} again for {rebuilding} ({why})"
                )
            }
            Limit::Consumer { busy, full } => {
                format!("it {took} {busy} of the time, and the {window} was full for {full}")
            }
            Limit::Caller { busy, .. } => {
                format!("it was at work on something else {busy} of the time")
            }
            Limit::NextStage { idle } => format!("it took no results for {idle} of the time"),
            Limit::Window { full, held_up } | Limit::WindowMemory { full, held_up } => {
                format!(
                    "it was full for {full} of the time, and kept {team} waiting for {held_up} of it"
                )
            }
            Limit::Backoff { waiting } => {
                format!("{team} had only {items} that waited for a retry for {waiting} of the time")
            }
            Limit::Uneven { producer: number, place, busy, mean } => format!(
                "{producer} {number} ({place}) worked {busy} of the time, and {team} {mean} on average"
            ),
            Limit::Mixed { parts, rebuilding, full } => {
                let parts = self.shares(parts, *rebuilding);
                format!("{parts}, and the {window} was full for {full}")
            }
            Limit::MixedCalls { busy, rebuilding } => {
                let rebuilt = and_rebuilt(*rebuilding);
                format!(
                    "the {producers} worked {busy} of the time{rebuilt}, and waited for calls or retries in the rest"
                )
            }
            limit => self.counted(limit),
        }
    }

    /// The numbers of limits that have counts or times.
    fn counted(&self, limit: &Limit) -> String {
        let Words { item, items, producers, call, .. } = self.words;
        let (lasted, time) = (Time(secs(self.conclusion.lasted)), |took: &f64| Time(secs(*took)));
        match limit {
            Limit::MixedStages { parts } => {
                let part = |it: &BusyPart| {
                    format!("{} ({})", self.part(it.part, it.stage.as_ref()), it.share)
                };
                let parts: Vec<_> = parts.iter().map(part).collect();
                format!("at work were, busiest first: {}", parts.join(", "))
            }
            Limit::Splits { split, batches, calls, error } => {
                let counts = counts(&self.words, *split, *batches, *calls);
                format!("{counts}, with the error {:?}", clipped(error, LONGEST_TEXT))
            }
            Limit::TooFew { items, calls, busy } => {
                let (team, all) = (self.all_producers(), Many(*items, item));
                let batches = (calls < items).then(|| format!(" in {}", Many(*calls, call)));
                let batches = batches.unwrap_or_default();
                format!("it had {all}{batches} for {team}, which worked {busy} of the time")
            }
            Limit::StartUp { took } => {
                format!("the {producers} took {} to get ready for a run of {lasted}", time(took))
            }
            Limit::Loading { share } => {
                format!("the {producers} took {share} of it on average to get ready")
            }
            Limit::ConsumerStart { took } => {
                let took = time(took);
                format!(
                    "`consumer_init` took {took} of {lasted}, and no {item} is read before it returns"
                )
            }
            Limit::WorkerStarts { share } => {
                format!("it took {share} of the time of the {producers}")
            }
            Limit::HeldBack { held, busy, .. } => {
                let held = time(held);
                format!(
                    "it held {items} back for {held} of {lasted}, and the {producers} worked {busy} of the time"
                )
            }
            Limit::Journal { consumer, producers } => self.journal(*consumer, *producers),
            Limit::LostWorker { dead, share } => {
                let dead = time(dead);
                format!(
                    "its {items} waited {dead} ({share} of the time of all) until the loss was known"
                )
            }
            _ => String::new(),
        }
    }

    /// What a journal cost: the time of the consumer's thread, and that of the producers.
    fn journal(&self, consumer: Percent, own: Percent) -> String {
        let taken = format!("no output was taken for {consumer} of the time");
        let wrote = format!("the {} wrote outputs for {own} of the time", self.words.producers);
        let parts = [(consumer, taken), (own, wrote)].into_iter();
        let parts = parts.filter(|(share, _)| share.0 >= LEAST_JOURNAL).map(|(_, text)| text);
        format!("while it was written, {}", parts.collect::<Vec<_>>().join(", and "))
    }

    /// The parts with their shares of the time.
    fn shares(&self, parts: &[BusyPart], rebuilding: Percent) -> String {
        let share = |(at, BusyPart { part, share, .. }): (usize, &BusyPart)| {
            let name = self.part(*part, None);
            match (at, part) {
                (0, _) => format!("{name} {} {share} of the time", self.words.took),
                (_, PartKind::Producers) => format!("{name} {share}{}", and_rebuilt(rebuilding)),
                _ => format!("{name} {share}"),
            }
        };
        parts.iter().enumerate().map(share).collect::<Vec<_>>().join(", ")
    }

    fn why_rebuilt(&self, limit: &Limit) -> String {
        match (limit, self.conclusion.team.place) {
            (Limit::Recycling { states: 1, .. }, _) => "1 state was recycled".to_owned(),
            (Limit::Recycling { states, .. }, _) => {
                format!("{} were recycled", Many(*states, "state"))
            }
            (Limit::Rebuilding { states, calls, .. }, place) => {
                // An end of a process may be a crash or a timeout.
                let causes = match place {
                    TeamPlace::Threads => "panics",
                    TeamPlace::Processes | TeamPlace::Cluster => "panics, crashes or timeouts",
                };
                format!("{}, since {causes} lost {}", Many(*calls, "call"), Many(*states, "state"))
            }
            _ => String::new(),
        }
    }

    /// What waiting for the head of the line cost, and what to change.
    fn head(&self, head: &HeadCost) -> String {
        let Words { item, producer, .. } = self.words;
        let worst = head
            .worst
            .map(|(number, lasted)| format!(", {} of it for {item} {number}", Time(secs(lasted))));
        let (waited, lost) = (Time(secs(head.waited)), Time(secs(head.lost)));
        format!(
            "results waited {waited} for the head of the line{}, which cost {lost} of {producer} time ({}){}",
            worst.unwrap_or_default(),
            head.share,
            listed(&head.advice, self)
        )
    }

    fn all_producers(&self) -> Many {
        Many(self.conclusion.team.all, self.words.producer)
    }

    /// Names the producers that averages are taken over.
    fn producers(&self) -> String {
        let Words { producer: one, producers: many, .. } = self.words;
        let Team { all, lost, .. } = self.conclusion.team;
        match all.saturating_sub(lost) {
            // If every producer was lost, averages are over all.
            0 if all > 1 => format!("the {all} {many}"),
            0 => format!("the {one}"),
            1 if lost == 0 => format!("the {one}"),
            1 => format!("the remaining {one}"),
            left if lost == 0 => format!("the {left} {many}"),
            left => format!("the {left} remaining {many}"),
        }
    }

    fn lost(&self) -> String {
        let were = if self.conclusion.team.lost == 1 { "was" } else { "were" };
        match self.conclusion.team.lost {
            0 => String::new(),
            lost => format!("; {lost} of {} {were} lost during the run", self.all_producers()),
        }
    }
}

fn halted_by(Halted { rule, job, failed, ended }: &Halted) -> String {
    format!("Ended by --halt {rule} after job {job}: {failed} failed, {ended} ended with the run.")
}

fn got_lists(ListSizes { lists, jobs, largest }: ListSizes) -> String {
    let mean = jobs as f64 / lists.max(1) as f64;
    format!("Workers got {lists} lists, of {mean:.1} jobs on average and {largest} at most.")
}

/// Mentions the time for rebuilding states, if it matters.
fn and_rebuilt(share: Percent) -> String {
    match share.0 >= LEAST_REBUILDING {
        true => format!(" (and rebuilt states for {share})"),
        false => String::new(),
    }
}

/// A time of a report that may have been written by hand.
fn secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
