//! What the threads of a run have measured: its times and counts, of which conclusions are drawn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::batch_choice::BatchChoice;
use super::call_report::CallReport;
use super::copy_report::CopyReport;
use super::failure::Failure;
use super::split_report::SplitReport;
use super::time_kind::{HeldBackBy, TimeAccount, TimesAside};
use super::worker_report::WorkerReport;

/// The window of a service, which has none: its callers wait.
pub const NO_WINDOW: u64 = 0;

/// The cause of the time in which items waited for a retry, among the causes that held work back.
pub const BACKOFF: &str = "backoff";

/// The totals of a run. They are measured at waits only, which costs nothing for an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Totals {
    /// The items, counted by outcome.
    pub account: Account,
    /// The items of the whole pipeline, counted by outcome, if the run was its last stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Account>,
    /// From beginning to end.
    pub lasted: Duration,
    /// The time that the producers took to get ready before the first run of a pool; zero for its later runs.
    #[serde(default)]
    pub start_up: Duration,
    /// The duration of `consumer_init`, before any item was read.
    #[serde(default)]
    pub consumer_init: Duration,
    /// The time on all processors that the process took meanwhile; zero if it is not known.
    #[doc(hidden)]
    #[serde(default)]
    pub computing: Duration,
    /// The error that ended the run early, as text with its causes; `None` if nothing did.
    pub error: Option<String>,
    /// That error by its parts: its hook, item, place and causes.
    #[serde(default)]
    pub ended_by: Option<Failure>,
    /// Whether that error was a cancel.
    pub cancelled: bool,
    /// The size of the window at the end.
    pub window: u64,
    /// The number of items to which the window may grow by itself behind a slow item; 0 if its size was set.
    #[serde(default)]
    pub window_limit: u64,
    /// The bound on the [memory](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window_memory) of
    /// items in flight, in bytes, if it kept items back.
    #[serde(default)]
    pub window_memory: Option<u64>,
    /// The memory that the process may have, in bytes, if that bound kept items back.
    #[doc(hidden)]
    #[serde(default)]
    pub memory: Option<u64>,
    /// The producers, in the order of their numbers.
    pub producers: Vec<ProducerTotals>,
    /// The kind of source.
    #[serde(default)]
    pub origin: Origin,
    /// The kind of consumer.
    #[serde(default)]
    pub destination: Destination,
    /// The time spent in the source's `next()`.
    pub source_working: Duration,
    /// The time in which what was read got its key, was measured or was looked up in the journal. It is not part of
    /// `source_working`.
    #[serde(default)]
    pub source_naming: Duration,
    /// The time in which the source was not asked, since the window was full.
    pub source_waiting: Duration,
    /// The time in which the consumer was busy; for
    /// [`Outputs`](https://docs.rs/gangline/latest/gangline/struct.Outputs.html), the time between calls of `next`.
    pub consumer_working: Duration,
    /// The time in which the consumer's thread wrote the journal, with `consumer_flush`. It is not part of
    /// `consumer_working`.
    #[serde(default)]
    pub journal_writing: Duration,
    /// The time in which the consumer waited with no result ready.
    pub consumer_waiting: Duration,
    /// The time in which it waited for one item while results of later items were ready.
    pub head_stalled: Duration,
    /// The items that it waited for the longest, with the times, the worst first. At most 20.
    pub worst_heads: Vec<(u64, Duration)>,
    /// Whether the consumer's thread was abandoned, since it exceeded a time limit.
    #[serde(default)]
    pub consumer_abandoned: bool,
    /// The batches that were split.
    #[serde(default)]
    pub splits: SplitReport,
    /// The calls, if the run was that of a service.
    #[serde(default)]
    pub calls: Option<CallReport>,
    /// The copies of slow items.
    #[serde(default)]
    pub copies: CopyReport,
    /// The time for which each cause held work back, of all producers together: see
    /// [`ProducerContext::count_as`](https://docs.rs/gangline/latest/gangline/struct.ProducerContext.html#method.count_as).
    #[serde(default)]
    pub held_back_by: HeldBackBy,
}

/// The kind of source of a run's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The caller's iterator.
    #[default]
    Iterator,
    /// The stage before, in a pipeline.
    StageBefore,
}

/// The kind of destination of a run's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Destination {
    /// The hooks of the consumer.
    #[default]
    Consumer,
    /// The caller of an [`Outputs`](https://docs.rs/gangline/latest/gangline/struct.Outputs.html).
    Outputs,
    /// The caller of outputs. Another thread pulls the input, or it is a stream.
    FedOutputs,
    /// The next stage, in a pipeline.
    NextStage,
}

/// The totals of one producer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProducerTotals {
    /// Its place, as text. In a cluster, the host of its worker and the number of its seat: `node1/0`; empty if no
    /// worker has had the seat.
    pub place: String,
    /// The number of items it finished, successfully or not.
    pub items: u64,
    /// The number of attempts at items that failed on it.
    pub failed: u64,
    /// The duration of its last `producer_init`.
    pub init: Duration,
    /// The time of the run in which it got its first state, with
    /// [`init_in_run`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.init_in_run). It is part of
    /// neither `working` nor `waiting`.
    #[serde(default)]
    pub loading: Duration,
    /// How often it lost its state to a panic of a hook, or to the end of its child process.
    #[serde(default)]
    pub states_lost: u64,
    /// How often it called `producer_init` again to rebuild a lost state.
    #[serde(default)]
    pub rebuilds: u64,
    /// The time that these calls took. It is part of neither `working` nor `waiting`.
    #[serde(default)]
    pub rebuilding: Duration,
    /// The time in which it worked on items, or looked for them.
    pub working: Duration,
    /// The time in which it waited for an item.
    pub waiting: Duration,
    /// The time within calls of hooks that was no work. It is part of neither `working` nor `waiting`.
    #[serde(default)]
    pub aside: TimesAside,
    /// The part of `waiting` in which the window was full, so that no item was read.
    #[serde(default)]
    pub held_up: Duration,
    /// The part of `waiting` in which all items ready for it waited for a
    /// [backoff](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.backoff).
    #[serde(default)]
    pub backing_off: Duration,
    /// The size of the largest batch that fits in its device's memory, if it ran out of it.
    pub batch_ceiling: Option<u64>,
    /// The batch size that was chosen, if sizes are.
    #[serde(default)]
    pub batch_size: Option<BatchChoice>,
    /// The reason why it was quarantined, if it was.
    pub quarantined: Option<String>,
    /// Whether its thread was abandoned.
    pub abandoned: bool,
    /// How often its state was
    /// [recycled](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.recycle_after).
    #[serde(default)]
    pub recycles: u64,
    /// The time that this took. It is part of neither `working` nor `waiting`.
    #[serde(default)]
    pub recycling: Duration,
    /// How often another producer was started in its place. Items and times are of all of them.
    #[serde(default)]
    pub replacements: u64,
    /// Its worker, unless its hooks run in this process.
    #[serde(default)]
    pub worker: Option<WorkerReport>,
}

impl ProducerTotals {
    /// Its time in the run, by kind.
    pub fn times(&self) -> TimeAccount {
        let TimesAside { loading, held_back, waiting, journal, dead } = self.aside;
        let no_item = self.waiting.saturating_sub(self.held_up + self.backing_off);
        TimeAccount {
            work: self.working,
            loading: self.loading + self.rebuilding + self.recycling + loading,
            held_back: self.backing_off + held_back,
            input: no_item + waiting,
            order: self.held_up,
            journal,
            dead,
        }
    }

    /// Whether it is a seat of a cluster that no worker has had.
    pub(super) fn is_vacant(&self) -> bool {
        self.place.is_empty()
    }
}
