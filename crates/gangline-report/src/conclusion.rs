//! What limited a run, as data: a kind with its numbers, and what to change. `wording` makes sentences of it.
//!
//! Times are in seconds, and shares are of the time of the run.

use serde::{Deserialize, Serialize};

use super::account::Ending;
pub use super::advice::{Advice, PlaceKind};
pub use super::formats::Percent;
use super::vocabulary::{Vocabulary, Words};

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
    /// A limit that held work back, such as `--load`, or what a hook [counts] so.
    ///
    /// [counts]: https://docs.rs/gangline/latest/gangline/event/fn.count_as.html
    HeldBack,
    /// The journal: outputs waited until it was on the disk.
    Journal,
    /// A lost worker: its items waited until that was known.
    LostWorker,
}

/// What a report says about the limit of its run, each part once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conclusion {
    /// The items that an earlier run had done, and those of both runs.
    pub earlier: Option<(u64, u64)>,
    /// How the run ended, if it failed or was cancelled.
    pub ended: Option<Ending>,
    pub lasted: f64,
    /// The stage that this is about, in a pipeline.
    pub stage: Option<StagePlace>,
    pub team: Team,
    /// `None` if there was no run.
    pub limit: Option<Limit>,
    /// The second busiest part, if it is about as busy.
    pub second: Option<BusyPart>,
    /// What to change, the best first.
    pub advice: Vec<Advice>,
    /// What waiting for the head of the line cost, if something else limited the run.
    pub head: Option<HeadCost>,
    pub gain: Option<WindowGain>,
    /// The part of the window that running jobs take. An option of the program is about the rest.
    pub running: u64,
    /// What ended a run of the program.
    pub halted: Option<Halted>,
    /// The lists that the program's workers got.
    pub lists: Option<ListSizes>,
}

/// A stage of a pipeline: its name and its number, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePlace {
    pub name: String,
    pub number: usize,
    pub all: usize,
}

/// The producers that a conclusion is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    pub all: u64,
    pub lost: u64,
    pub place: TeamPlace,
}

/// Where the producers of a run are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeamPlace {
    #[default]
    Threads,
    /// In child processes.
    Processes,
    Cluster,
}

/// The kind of limit of a run, with its numbers.
///
/// `NothingToDo`: an earlier run had done all items. `Rebuilding` has the states that were lost, and the calls of
/// `producer_init` that made others. `Loading` is that of producers in the run. If no single part limited a run, `Mixed`
/// has the parts of a run, and `MixedStages` those of all stages of a pipeline, the busiest first. `WorkerStarts` is the
/// start of the program's warm workers, as a share of the slots' work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Limit {
    InProgress,
    NothingRead { unread: u64 },
    NothingToDo,
    TooShort { items: u64 },
    Source { busy: Percent, starved: Percent },
    StageBefore { idle: Percent, starved: Percent },
    Producers { busy: Percent, rebuilding: Percent },
    Recycling { busy: Percent, rebuilding: Percent, states: u64 },
    Rebuilding { busy: Percent, rebuilding: Percent, states: u64, calls: u64 },
    Consumer { busy: Percent, full: Percent },
    Caller { form: CallerForm, busy: Percent },
    NextStage { idle: Percent },
    Window { full: Percent, held_up: Percent },
    WindowMemory { full: Percent, held_up: Percent },
    Backoff { waiting: Percent },
    Head(HeadCost),
    Uneven { producer: usize, place: String, busy: Percent, mean: Percent },
    Mixed { parts: Vec<BusyPart>, rebuilding: Percent, full: Percent },
    MixedCalls { busy: Percent, rebuilding: Percent },
    MixedStages { parts: Vec<BusyPart> },
    Splits { split: u64, batches: u64, calls: u64, error: String },
    TooFew { items: u64, calls: u64, busy: Percent },
    StartUp { took: f64 },
    Loading { share: Percent },
    ConsumerStart { took: f64 },
    WorkerStarts { share: Percent },
    HeldBack { by: String, held: f64, busy: Percent },
    Journal { consumer: Percent, producers: Percent },
    LostWorker { dead: f64, share: Percent },
}

/// The form of the outputs that a caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallerForm {
    Outputs,
    Fed,
}

/// A part of a run that works: the share of the time, and in a pipeline the name of its stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BusyPart {
    pub part: PartKind,
    pub share: Percent,
    pub stage: Option<String>,
}

/// The kind of a part that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Source,
    StageBefore,
    Producers,
    Consumer,
    Caller(CallerForm),
    NextStage,
}

/// What waiting for the head of the line cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadCost {
    pub waited: f64,
    /// The item that was waited for the longest, and for how long.
    pub worst: Option<(u64, f64)>,
    /// The time of producers that this cost, and its share.
    pub lost: f64,
    pub share: Percent,
    pub advice: Vec<Advice>,
}

/// What a larger window would have gained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowGain {
    pub window: u64,
    pub lasted: f64,
}

/// The rule and the job after which the program ended a run, and the jobs that failed and were ended with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    pub rule: String,
    pub job: u64,
    pub failed: u64,
    pub ended: u64,
}

/// The number and the sizes of the lists of jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSizes {
    pub lists: u64,
    pub jobs: u64,
    pub largest: u64,
}

impl Limit {
    /// The part of the run that this limit is about.
    pub(super) fn bottleneck(&self) -> Bottleneck {
        use Limit::*;
        match self {
            InProgress | NothingRead { .. } | NothingToDo | TooShort { .. } => Bottleneck::Unknown,
            Source { .. } | StageBefore { .. } => Bottleneck::Source,
            Producers { .. } => Bottleneck::Producers,
            Recycling { .. } | Rebuilding { .. } => Bottleneck::Rebuilding,
            Consumer { .. } | Caller { .. } | NextStage { .. } => Bottleneck::Consumer,
            Window { .. } | WindowMemory { .. } => Bottleneck::Window,
            Backoff { .. } => Bottleneck::Backoff,
            Head(_) => Bottleneck::Head,
            Uneven { .. } => Bottleneck::Uneven,
            Mixed { .. } | MixedCalls { .. } | MixedStages { .. } => Bottleneck::Mixed,
            Splits { .. } => Bottleneck::Splits,
            TooFew { .. } => Bottleneck::TooFew,
            StartUp { .. } | Loading { .. } | ConsumerStart { .. } | WorkerStarts { .. } => {
                Bottleneck::StartUp
            }
            HeldBack { .. } => Bottleneck::HeldBack,
            Journal { .. } => Bottleneck::Journal,
            LostWorker { .. } => Bottleneck::LostWorker,
        }
    }
}

impl Conclusion {
    /// The words about the run.
    pub(super) fn words(&self, vocabulary: Vocabulary) -> &'static Words {
        match self.team.place {
            TeamPlace::Cluster => vocabulary.words_in_cluster(),
            TeamPlace::Threads | TeamPlace::Processes => vocabulary.words(),
        }
    }

    /// The part of the run that limited it.
    pub fn bottleneck(&self) -> Bottleneck {
        self.limit.as_ref().map_or(Bottleneck::Unknown, Limit::bottleneck)
    }

    /// What waiting for the head of the line cost.
    pub fn heads(&mut self) -> impl Iterator<Item = &mut HeadCost> {
        let of_limit = match &mut self.limit {
            Some(Limit::Head(head)) => Some(head),
            _ => None,
        };
        of_limit.into_iter().chain(&mut self.head)
    }

    /// The advice for the limit, then that for the head of the line.
    pub(super) fn all_advice(&self) -> impl Iterator<Item = &Advice> {
        let of_limit = match &self.limit {
            Some(Limit::Head(head)) => &head.advice,
            _ => &self.advice,
        };
        of_limit.iter().chain(self.head.iter().flat_map(|head| &head.advice))
    }
}
