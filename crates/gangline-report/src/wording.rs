//! The words of a conclusion, in each vocabulary. `sentences.txt` has the sentences.

mod advice;
mod failures;
mod template;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

pub(super) use self::advice::{named, settings, write};
pub(super) use self::failures::name_failures;
use self::template::{field, fields, filled, secs, text_of};
use super::RunReport;
use super::account::Ending;
use super::conclusion::{
    Bottleneck, BusyPart, CallerForm, Conclusion, Halted, HeadCost, Limit, ListSizes, PartKind,
    Percent, Team, TeamPlace,
};
use super::formats::{Count, Many, Time, capitalised};
use super::split_report::counts;
use super::vocabulary::{Vocabulary, Words};

/// The share of the time from which a part of what a journal took is mentioned.
const LEAST_JOURNAL: f64 = 0.01;

/// The share of the time from which rebuilding is mentioned.
const LEAST_REBUILDING: f64 = 0.05;

/// A conclusion with the words that it is to have.
struct Wording<'a> {
    conclusion: &'a Conclusion,
    vocabulary: Vocabulary,
    words: Words,
}

/// Returns a conclusion as sentences.
pub(super) fn text(conclusion: &Conclusion, vocabulary: Vocabulary) -> String {
    Wording::new(conclusion, vocabulary).text()
}

/// Names what limited a run: `the producers`.
pub(super) fn limit(report: &RunReport) -> String {
    Wording::new(&report.findings, report.vocabulary).bottleneck(report.bottleneck)
}

/// What other settings would have made of a run.
pub(super) fn prediction(with: &str, lasted: Duration, recorded: Duration) -> String {
    format!("{with} this run would have taken {}, not {}", Time(lasted), Time(recorded))
}

impl<'a> Wording<'a> {
    fn new(conclusion: &'a Conclusion, vocabulary: Vocabulary) -> Self {
        let words = *conclusion.words(vocabulary);
        Wording { conclusion, vocabulary, words }
    }

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

    /// Fills the text of a name, if the vocabulary has one.
    fn say(&self, name: &str, fields: &Value) -> Option<String> {
        filled(text_of(name, self.vocabulary)?, &|gap| match gap.split_once(':') {
            Some((name, form)) => field(fields, name, form, &self.words),
            None => self.word(gap),
        })
    }

    /// The words of a gap that are no number of a limit.
    fn word(&self, gap: &str) -> Option<String> {
        let Conclusion { earlier, ended, lasted, team, .. } = self.conclusion;
        Some(match gap {
            "team" => self.producers(),
            "all_producers" => self.all_producers(),
            "lasted" => Time(secs(*lasted)).to_string(),
            "ended" => said_of((*ended)?).to_owned(),
            "done" => Many(earlier.map_or(0, |it| it.0), self.words.item).to_string(),
            // Conditions without words of their own.
            "earlier" => return earlier.map(|_| String::new()),
            "threads" => return (team.place == TeamPlace::Threads).then(String::new),
            noun => self.words.noun(noun)?.to_owned(),
        })
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
        let Conclusion { ended, limit, stage, lasted, .. } = self.conclusion;
        let limit = limit.as_ref()?;
        let fields = self.fields(limit);
        let kind = fields["kind"].as_str().unwrap_or_default();
        if let Some(said) = self.say(&format!("said.{kind}"), &fields) {
            return Some(said);
        }
        let opening = ended
            .map(|ended| format!("until it {} after {}, ", said_of(ended), Time(secs(*lasted))));
        let place = stage.as_ref().map(|it| {
            let position = format!("stage {} of {}", it.number, it.all);
            match it.name == format!("stage {}", it.number) {
                true => format!("in {position} "),
                false => format!("in {:?} ({position}) ", it.name),
            }
        });
        let subject = self.say(&format!("subject.{kind}"), &fields);
        let subject = subject.unwrap_or_else(|| self.bottleneck(limit.bottleneck()));
        let numbers = self.say(&format!("limit.{kind}"), &fields).unwrap_or_default();
        let start = opening.into_iter().chain(place).collect::<String>();
        let end = match limit {
            Limit::Head(_) => String::new(),
            _ => self.second() + &self.listed(&self.conclusion.advice),
        };
        Some(capitalised(&format!(
            "{start}{subject} limited the run: {numbers}{end}{}.",
            self.lost()
        )))
    }

    /// The numbers of a limit, and the words that are made of them. It lacks what is not worth mentioning.
    fn fields(&self, limit: &Limit) -> Value {
        let mut fields = fields(limit);
        fields["rebuilt"] = match fields["rebuilding"].as_f64() {
            Some(share) if share >= LEAST_REBUILDING => share.into(),
            _ => Value::Null,
        };
        match limit {
            Limit::NothingRead { unread: 0 } => fields["unread"] = Value::Null,
            Limit::Caller { form, .. } => {
                fields["part"] = self.part(PartKind::Caller(*form), None).into();
            }
            Limit::Head(head) => return self.head_fields(head),
            Limit::Mixed { parts, rebuilding, .. } => {
                fields["parts"] = self.shares(parts, *rebuilding).into();
            }
            Limit::MixedStages { parts } => {
                let parts: Vec<_> = parts.iter().map(|it| self.busy_part(it)).collect();
                fields["parts"] = parts.join(", ").into();
            }
            Limit::Splits { split, batches, calls, .. } => {
                fields["counts"] = counts(&self.words, *split, *batches, *calls).into();
            }
            Limit::TooFew { items, calls, .. } if calls >= items => fields["calls"] = Value::Null,
            Limit::Journal { consumer, producers } => {
                for (name, share) in [("consumer", consumer), ("producers", producers)] {
                    if share.0 < LEAST_JOURNAL {
                        fields[name] = Value::Null;
                    }
                }
            }
            _ => {}
        }
        fields
    }

    fn bottleneck(&self, bottleneck: Bottleneck) -> String {
        let name = fields(&bottleneck);
        let name = name.as_str().unwrap_or_default();
        self.say(&format!("bottleneck.{name}"), &Value::Null).unwrap_or_default()
    }

    fn part(&self, part: PartKind, stage: Option<&String>) -> String {
        let name = match (part, stage) {
            (PartKind::Producers, Some(stage)) => {
                return format!("the {} of {stage:?}", self.words.producers);
            }
            (PartKind::Producers, None) => "producers",
            (PartKind::Source, _) => "source",
            (PartKind::StageBefore, _) => "stage_before",
            (PartKind::Consumer, _) => "consumer",
            (PartKind::Caller(CallerForm::Outputs), _) => "outputs",
            (PartKind::Caller(CallerForm::Fed), _) => "fed",
            (PartKind::NextStage, _) => "next_stage",
        };
        self.say(&format!("part.{name}"), &Value::Null).unwrap_or_default()
    }

    fn busy_part(&self, BusyPart { part, share, stage }: &BusyPart) -> String {
        format!("{} ({share})", self.part(*part, stage.as_ref()))
    }

    fn second(&self) -> String {
        let second = self.conclusion.second.as_ref();
        second
            .map_or_else(String::new, |it| format!(", closely followed by {}", self.busy_part(it)))
    }

    /// The parts with their shares of the time.
    fn shares(&self, parts: &[BusyPart], rebuilding: Percent) -> String {
        let share = |(at, BusyPart { part, share, .. }): (usize, &BusyPart)| {
            let name = self.part(*part, None);
            match (at, part) {
                (0, _) => format!("{name} {} {share} of the time", self.words.took),
                (_, PartKind::Producers) if rebuilding.0 >= LEAST_REBUILDING => {
                    format!("{name} {share} (and rebuilt states for {rebuilding})")
                }
                _ => format!("{name} {share}"),
            }
        };
        parts.iter().enumerate().map(share).collect::<Vec<_>>().join(", ")
    }

    /// What waiting for the head of the line cost, and what to change.
    fn head(&self, head: &HeadCost) -> String {
        self.say("limit.head", &self.head_fields(head)).unwrap_or_default()
    }

    fn head_fields(&self, head: &HeadCost) -> Value {
        let mut fields = fields(head);
        fields["kind"] = "head".into();
        if let Some((item, lasted)) = head.worst {
            (fields["worst_item"], fields["worst_time"]) = (item.into(), lasted.into());
        }
        fields["advised"] = self.listed(&head.advice).into();
        fields
    }

    fn all_producers(&self) -> String {
        Many(self.conclusion.team.all, self.words.producer).to_string()
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

fn said_of(ended: Ending) -> &'static str {
    if ended == Ending::Cancelled { "was cancelled" } else { "failed" }
}

fn halted_by(Halted { rule, job, failed, ended }: &Halted) -> String {
    format!("Ended by --halt {rule} after job {job}: {failed} failed, {ended} ended with the run.")
}

fn got_lists(ListSizes { lists, jobs, largest }: ListSizes) -> String {
    let mean = jobs as f64 / lists.max(1) as f64;
    format!("Workers got {lists} lists, of {mean:.1} jobs on average and {largest} at most.")
}
