//! The words of advice, and how settings are written.

use serde_json::Value;

use crate::advice::{Advice, AdvisedSetting, PlaceKind};
use crate::conclusion::{Conclusion, TeamPlace};
use crate::formats::{Bytes, Many};
use crate::vocabulary::{Vocabulary, WORKERS, Words};

/// A conclusion with the words that it is to have.
pub(super) struct Wording<'a> {
    pub(super) conclusion: &'a Conclusion,
    pub(super) vocabulary: Vocabulary,
    pub(super) words: Words,
}

impl<'a> Wording<'a> {
    pub(super) fn new(conclusion: &'a Conclusion, vocabulary: Vocabulary) -> Self {
        let words = match (vocabulary, conclusion.team.place) {
            (Vocabulary::Items, TeamPlace::Cluster) => WORKERS,
            _ => *vocabulary.words(),
        };
        Wording { conclusion, vocabulary, words }
    }
}

/// Returns the advice as a clause: `; a, b, or c`. What a vocabulary has no words for is omitted.
pub(super) fn listed(advice: &[Advice], to: &Wording<'_>) -> String {
    let mut clauses: Vec<String> = advice.iter().filter_map(|it| to.advice(it)).collect();
    match (clauses.pop(), clauses.is_empty()) {
        (None, _) => String::new(),
        (Some(only), true) => format!("; {only}"),
        (Some(last), false) => format!("; {}, or {last}", clauses.join(", ")),
    }
}

/// Returns the settings that a conclusion advises, as JSON has them.
pub(crate) fn settings(conclusion: &Conclusion, vocabulary: Vocabulary) -> Vec<AdvisedSetting> {
    let to = Wording::new(conclusion, vocabulary);
    let settings = conclusion.all_advice().filter_map(|advice| to.named_setting(advice));
    let settings = settings.map(|(setting, value)| AdvisedSetting {
        setting: setting.to_owned(),
        value: Some(value).filter(|value| !value.is_null()),
    });
    settings.collect()
}

/// Writes a setting as in code or on the command line, without backquotes.
pub(crate) fn write(vocabulary: Vocabulary, setting: &str, value: &str) -> String {
    match vocabulary {
        Vocabulary::Items => format!("{setting}({value})"),
        Vocabulary::Jobs => format!("{setting} {value}"),
        Vocabulary::Workers => format!("{setting}={value}"),
    }
}

/// The name of a setting in a vocabulary, for its name in the library.
pub(crate) fn named(vocabulary: Vocabulary, name: &'static str) -> &'static str {
    match (vocabulary, name) {
        (Vocabulary::Jobs, "devices") => "-j",
        (Vocabulary::Workers, "devices") => "workers",
        (Vocabulary::Jobs, "window") => "--window",
        (Vocabulary::Jobs, "batch") => "--batch",
        (Vocabulary::Jobs, "retries") => "--retries",
        _ => name,
    }
}

impl Wording<'_> {
    pub(super) fn setting_of_window(&self, items: u64) -> String {
        self.setting(&Advice::Window { items }).unwrap_or_default()
    }

    /// The name and the value of a setting, if the vocabulary has it.
    fn named_setting(&self, advice: &Advice) -> Option<(&'static str, Value)> {
        use Vocabulary::{Items, Jobs, Workers};
        let own = |name| named(self.vocabulary, name);
        Some(match (*advice, self.vocabulary) {
            (Advice::MoreProducers { to, places: PlaceKind::Devices }, Jobs) => {
                ("--per-gpu", to?.into())
            }
            (Advice::MoreProducers { to, .. }, _) => (own("devices"), to?.into()),
            (Advice::Window { items }, _) => {
                (own("window"), items.saturating_sub(self.conclusion.running).into())
            }
            (Advice::WindowMemory { bytes, .. }, Items) => ("window_memory", bytes.into()),
            (
                Advice::LargerBatch { items }
                | Advice::SmallerBatch { items }
                | Advice::FitMemory { batch: items },
                _,
            ) => (own("batch"), items.into()),
            (Advice::AutoBatch, Items) => ("auto_batch", Value::Null),
            (Advice::AutoBatch, _) => (own("batch"), "auto".into()),
            (Advice::RecycleAfter { items }, Items) => ("recycle_after", items.into()),
            (Advice::CompletionOrder, Items) => ("completion_order", Value::Null),
            (Advice::CompletionOrder, Jobs) => ("--no-keep-order", Value::Null),
            (Advice::CompletionOrder, Workers) => ("order", "completion".into()),
            (Advice::Speculate, Items) => ("speculate", Value::Null),
            _ => return None,
        })
    }

    /// A setting as it is written, in backquotes.
    fn setting(&self, advice: &Advice) -> Option<String> {
        let (name, value) = self.named_setting(advice)?;
        Some(match (self.vocabulary, name, &value) {
            (Vocabulary::Items, "auto_batch", _) => "`batch(Batch::auto())`".to_owned(),
            (Vocabulary::Items, "completion_order", _) => "`UnorderedRunner`".to_owned(),
            (Vocabulary::Items, "speculate", _) => "`speculate()`".to_owned(),
            (Vocabulary::Items, "batch", size) => format!("`batch(Batch::up_to({size}))`"),
            (_, _, Value::Null) => format!("`{name}`"),
            (Vocabulary::Jobs, _, Value::String(value)) => format!("`{name} {value}`"),
            (vocabulary, ..) => format!("`{}`", write(vocabulary, name, &value.to_string())),
        })
    }

    /// One imperative. `None` if the vocabulary has no words for it.
    fn advice(&self, advice: &Advice) -> Option<String> {
        let Words { items, producer, hook, batches, .. } = self.words;
        let is_program = self.vocabulary == Vocabulary::Jobs;
        let setting = self.setting(advice);
        Some(match *advice {
            Advice::WhyItemsFail { share: None } => format!("find out why {items} fail"),
            Advice::WhyItemsFail { share: Some(share) } => {
                format!("find out why {items} fail ({share} of the attempts failed)")
            }
            Advice::FitMemory { batch } => format!(
                "their memory has room for {batches} of at most {batch}, so use {} or make {items} smaller",
                setting?
            ),
            Advice::FasterHook { cores } => format!(
                "make the {hook} faster or use more or faster machines, since this one computed on all of its {}",
                Many(cores, "core")
            ),
            Advice::MoreProducers { to, places } => self.more_producers(to, places, setting),
            Advice::AutoBatch => format!("let the run choose the size of {batches} ({})", setting?),
            Advice::LargerBatch { .. } => format!("try larger {batches} ({})", setting?),
            Advice::SmallerBatch { .. } => format!("use smaller {batches} ({})", setting?),
            Advice::Window { .. } => format!("use {} if memory has room for its results", setting?),
            Advice::WindowMemory { memory: Some(all), .. } if setting.is_some() => {
                format!(
                    "use {}, half of the {} of this machine, but not more",
                    setting?,
                    Bytes(all)
                )
            }
            Advice::WindowMemory { .. } => {
                format!("use {}", setting.unwrap_or_else(|| "a larger `window`".to_owned()))
            }
            Advice::SmallerItems { memory } => {
                let all = memory.map(|all| format!(", since this one has {}", Bytes(all)));
                let all = all.unwrap_or_default();
                format!("make {items} or results smaller, or use a machine with more memory{all}")
            }
            Advice::CompletionOrder if is_program => {
                format!("print outputs as jobs end ({})", setting?)
            }
            Advice::CompletionOrder => format!("take results as they come ({})", setting?),
            Advice::Speculate => {
                format!(
                    "let a second {producer} copy {items} that are slow by chance ({})",
                    setting?
                )
            }
            Advice::RecycleAfter { .. } => {
                let setting = setting.map(|it| format!(" ({it})")).unwrap_or_default();
                format!("recycle them less often{setting}")
            }
            _ => {
                return self
                    .of_stage(advice)
                    .or_else(|| self.of_all(advice))
                    .or_else(|| self.of_vocabulary(advice));
            }
        })
    }

    fn more_producers(
        &self,
        to: Option<u64>,
        places: PlaceKind,
        setting: Option<String>,
    ) -> String {
        let Words { producers, source, consumer, .. } = self.words;
        let most = match (to, setting, places) {
            (Some(_), Some(setting), PlaceKind::Cpus) => Some(setting),
            (Some(most), ..) => Some(format!("{most} of them")),
            (None, ..) => None,
        };
        let most = match most {
            Some(most) => format!(" (the {source} and the {consumer} keep up with {most})"),
            None if self.vocabulary == Vocabulary::Jobs => " (`-j`, `--per-gpu`)".to_owned(),
            None => String::new(),
        };
        format!("use more {producers}{most} or faster devices")
    }

    /// Where to look if more producers would only wait.
    fn of_stage(&self, advice: &Advice) -> Option<String> {
        const WORK: &str = " (move work that needs no order to `producer_work`)";
        const PACKAGE: &str = " (move work that needs no order to `work`)";
        let moved = if self.vocabulary == Vocabulary::Workers { PACKAGE } else { WORK };
        let (what, moved, here) = match (advice, self.vocabulary) {
            (Advice::LessInSource | Advice::LessInSourceMoreInWork, Vocabulary::Jobs) => {
                ("read them from a file, or make the program before the pipe faster", "", "")
            }
            (Advice::LessInSource, _) => ("do less in the iterator", "", ""),
            (Advice::LessInSourceMoreInWork, _) => ("do less in the iterator", moved, ""),
            (Advice::LessInConsumer, Vocabulary::Items) => {
                ("do less in `consumer_work`", moved, "")
            }
            (Advice::LessInConsumer, Vocabulary::Jobs) => (
                "write them to a file, or keep them with `--results` and send standard output to /dev/null",
                "",
                "",
            ),
            (Advice::LessInConsumer, Vocabulary::Workers) => {
                ("do less in the loop over the records", moved, "")
            }
            (Advice::LessBetweenResults, _) => {
                ("do less between one result and the next", moved, "")
            }
            (Advice::StageBefore | Advice::NextStage, _) => {
                ("see what limits that stage", "", " here")
            }
            _ => return None,
        };
        let producers = self.words.producers;
        Some(format!("{what}{moved}, since more {producers}{here} would only wait"))
    }

    /// Advice in the same words for all.
    fn of_all(&self, advice: &Advice) -> Option<String> {
        let Words { items, init, .. } = self.words;
        Some(match advice {
            Advice::FasterInit => format!("make {init} faster"),
            Advice::LongItemsFirst => format!("put long {items} first"),
            Advice::SplitItem => "split it into parts".to_owned(),
            Advice::SplitItems => "split them into parts".to_owned(),
            Advice::MoreItems => format!("put more {items} into one run"),
            Advice::WorkersBefore => "start the workers before it".to_owned(),
            Advice::ConsumerInitBefore => {
                "do its work before the run, or make it faster".to_owned()
            }
            Advice::WarmWorkers => "use `--warm` if the program takes long to start".to_owned(),
            Advice::JobLists => "use `--batch` if the worker takes lists".to_owned(),
            Advice::WhyWorkersEnd => {
                "find out why workers end if they were started again".to_owned()
            }
            Advice::LimitAsNeeded => {
                format!("loosen it if the machine has room for more {items} at once")
            }
            Advice::FasterDisk => "put it on a faster disk".to_owned(),
            Advice::WhyWorkersAreLost => {
                "find out why it was lost, or use a shorter `lease_time`".to_owned()
            }
            _ => return None,
        })
    }

    /// Advice without numbers, for the library, the program and the package.
    fn of_vocabulary(&self, advice: &Advice) -> Option<String> {
        let Words { items, producers, .. } = self.words;
        let each =
            |texts: [&str; 3]| texts.map(|it| Some(it.to_owned()).filter(|it| !it.is_empty()));
        let place = self.conclusion.team.place;
        let larger = "if parts are slow in turns, use a larger ";
        let [library, program, package] = match advice {
            Advice::Batches => each([
                "use `batch` if a device is faster with many items at once",
                "",
                "use `batch=\"auto\"` if a device is faster with many items at once",
            ]),
            Advice::WhyStatesAreLost => each([
                match place {
                    TeamPlace::Threads => {
                        "find out why the hook panics, return an error instead (which keeps the state)"
                    }
                    _ => {
                        "find out why hooks panic, crash or take too long (an error keeps the state)"
                    }
                },
                "find out why workers end",
                "find out why `work` or its process ends, or takes too long",
            ]),
            Advice::LargerWindow | Advice::LargerWindowMemory => {
                let own =
                    if *advice == Advice::LargerWindow { "window(n)" } else { "window_memory" };
                [own, "--window", "window"].map(|it| Some(format!("{larger}`{it}`")))
            }
            Advice::ShorterBackoff => ["backoff", "--retry-delay", "retry_delay"]
                .map(|it| Some(format!("make `{it}` shorter"))),
            Advice::OnePool => {
                let one =
                    format!("use one pool for more runs or {items} (it keeps its {producers})");
                [Some(one.clone()), Some("put more jobs into one run".to_owned()), Some(one)]
            }
            Advice::BetterBatches => each([
                "have `producer_work_batch` work on several items, or return an `Err` for the bad ones alone, since \
                 larger batches would only be split more often",
                "send smaller lists (`--batch`), or have the worker answer a bad input with an error of its own",
                "have `work` work on several items, or return an exception for the bad ones alone, since larger lists \
                 would only be split more often",
            ]),
            _ => return None,
        };
        match self.vocabulary {
            Vocabulary::Items => library,
            Vocabulary::Jobs => program,
            Vocabulary::Workers => package,
        }
    }
}
