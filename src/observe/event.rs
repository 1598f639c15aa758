//! The events of a run, as values. Times are arguments: nothing here has a clock.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::batch_choice::BatchChoice;
use super::failure::Failure;
use super::report::split_report::SplitReport;
use super::worker_report::WorkerReport;
use crate::base::Order;

/// Something that happened in a run.
///
/// Items are identified by their index in the input, producers by their number, both from 0. The time of an
/// event is passed beside it: see [`Observer::observe`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A run or an [`Outputs`](crate::Outputs) began.
    #[non_exhaustive]
    RunStarted {
        /// The number of items, if the input's `size_hint` is exact. In a pipeline all stages have the
        /// input of the first.
        items: Option<u64>,
        /// The order in which results are consumed.
        order: Order,
        /// The places of the producers, as text, in the order of their numbers: `cuda:0+cuda:1`. In a cluster,
        /// producers are seats, and empty until [`WorkerJoined`](Event::WorkerJoined) gives them a place.
        producers: Vec<String>,
        /// The [fallbacks](crate::Devices::fallbacks) in use.
        fallbacks: Vec<String>,
    },
    /// A producer's state is ready. Sent at the start of each run for every producer that has one, and
    /// again after a state was rebuilt or recycled.
    #[non_exhaustive]
    ProducerReady {
        /// The producer.
        producer: usize,
        /// The duration of `producer_init`.
        took: Duration,
        /// Whether `producer_init` was called again because the state was lost.
        is_rebuilt: bool,
    },
    /// A producer began with an item.
    #[non_exhaustive]
    ItemStarted {
        /// The item.
        item: u64,
        /// Its key, if [keys](crate::Builder::key) are in use.
        key: Option<Arc<str>>,
        /// The producer.
        producer: usize,
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// A producer has finished an item, successfully or not. Items of a batch begin and end together.
    #[non_exhaustive]
    ItemFinished {
        /// The item.
        item: u64,
        /// The producer.
        producer: usize,
    },
    /// More items were read from the input, came from the stage before, or were offered to a service.
    #[non_exhaustive]
    ItemsRead {
        /// Their number.
        items: u64,
    },
    /// More items are done: a producer succeeded at them. Their results may wait for the result of an earlier
    /// item before they are consumed.
    #[non_exhaustive]
    ItemsDone {
        /// Their number.
        items: u64,
    },
    /// More items were delivered: the consumer took their result or met their failure, or an earlier run had
    /// done them.
    #[non_exhaustive]
    ItemsDelivered {
        /// Their number.
        items: u64,
    },
    /// More items were consumed: `consumer_work` returned `Ok` for them, or [`Outputs`](crate::Outputs)
    /// yielded them.
    #[non_exhaustive]
    ItemsConsumed {
        /// Their number.
        items: u64,
    },
    /// An attempt at an item failed, and the item will be retried.
    #[non_exhaustive]
    ItemRetried {
        /// The failure.
        failure: Arc<Failure>,
    },
    /// An item failed for good: its last attempt has ended. If the run ends early and the failure is not
    /// delivered, the account counts the item as cancelled.
    #[non_exhaustive]
    ItemFailed {
        /// The failure.
        failure: Arc<Failure>,
    },
    /// An item was not worked on, since an earlier run had done it.
    #[non_exhaustive]
    ItemAlreadyDone {
        /// The item.
        item: u64,
    },
    /// An item does not reach the last stage of a pipeline. Only the observers of that stage get this event,
    /// once the consumer has come to the item.
    #[non_exhaustive]
    ItemEndedEarlier {
        /// How it failed in an earlier stage; `None` if an earlier run had done it.
        failure: Option<Arc<Failure>>,
    },
    /// The window is full: no more input is read.
    #[non_exhaustive]
    WindowFull {
        /// How long, up to now.
        lasted: Duration,
    },
    /// The consumer waits for one item while results of later items are ready.
    #[non_exhaustive]
    HeadOfLineBlocked {
        /// The item that it waits for.
        item: u64,
        /// How long, up to now.
        lasted: Duration,
    },
    /// A producer takes no more items: its device failed.
    #[non_exhaustive]
    ProducerQuarantined {
        /// The producer.
        producer: usize,
        /// The reason.
        reason: Arc<str>,
    },
    /// A worker of a cluster takes part, also at the start of each run: see
    /// `Builder::cluster`.
    #[non_exhaustive]
    WorkerJoined {
        /// The number of its seat among the producers.
        producer: usize,
        /// The name of its machine.
        host: Arc<str>,
        /// The place of the worker: its host and the number of its seat, `node1/0`.
        place: Arc<str>,
    },
    /// A worker of a cluster takes part no more.
    #[non_exhaustive]
    WorkerLeft {
        /// The number of its seat among the producers.
        producer: usize,
        /// Why it was lost; `None` if it left in order.
        lost: Option<Arc<str>>,
    },
    /// A producer exceeded its time limit. Its thread is abandoned.
    #[non_exhaustive]
    ProducerAbandoned {
        /// The producer.
        producer: usize,
    },
    /// A producer has ended its state and built a new one: see
    /// [`recycle_after`](crate::Builder::recycle_after).
    #[non_exhaustive]
    ProducerRecycled {
        /// The producer.
        producer: usize,
        /// The duration of both hooks.
        took: Duration,
    },
    /// Another producer is started in the place of one that was lost: see
    /// [`replace_lost`](crate::Builder::replace_lost).
    #[non_exhaustive]
    ProducerReplaced {
        /// The number of both.
        producer: usize,
    },
    /// Events were dropped, since observers did not keep up. They are `ItemStarted` and `ItemFinished`
    /// events, and any others that happened while 65,536 were queued. `RunEnded` is never dropped.
    #[non_exhaustive]
    EventsLost {
        /// Their number.
        events: u64,
    },
    /// The run is over: the last event of it.
    #[non_exhaustive]
    RunEnded {
        /// The totals of the run.
        totals: Arc<Totals>,
    },
}

impl Event {
    /// Passes the event on to `tracing`: failures as warnings, retries and rebuilt states at the level `info`, the
    /// beginning and the end of a run at `debug`. Lost producers are logged where they are noted.
    pub(super) fn trace(&self) {
        match self {
            Event::ItemFailed { failure } => {
                let (item, key, producer) =
                    (failure.item, failure.key.as_deref(), failure.producer);
                let (device, attempt) = (failure.device.as_deref(), failure.attempts);
                tracing::warn!(item, key, producer, device, attempt, error = %failure, "an item failed");
            }
            Event::ItemRetried { failure } => {
                let (item, key, producer) =
                    (failure.item, failure.key.as_deref(), failure.producer);
                let (device, attempt) = (failure.device.as_deref(), failure.attempts);
                tracing::info!(
                    item, key, producer, device, attempt, error = %failure, "an item is retried"
                );
            }
            Event::ProducerReady { producer, took, is_rebuilt: true } => {
                tracing::info!(producer = producer, took = ?took, "a producer rebuilt its state");
            }
            Event::ProducerReplaced { producer } => {
                tracing::info!(
                    producer = producer,
                    "another producer takes the place of a lost one"
                );
            }
            Event::RunStarted { items, producers, .. } => {
                tracing::debug!(items = *items, producers = producers.len(), "a run starts");
            }
            Event::RunEnded { totals } => {
                let account = totals.account;
                tracing::debug!(
                    ok = account.ok,
                    failed = account.failed,
                    lasted = ?totals.lasted,
                    error = totals.error.as_deref(),
                    "a run has ended"
                );
            }
            _ => {}
        }
    }
}

/// The window of a service, which has none: its callers wait.
pub(crate) const NO_WINDOW: u64 = 0;

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
    #[serde(default)]
    pub(crate) computing: Duration,
    /// The error that ended the run early, as text with its causes; `None` if nothing did.
    pub error: Option<String>,
    /// Whether that error was a cancel.
    pub cancelled: bool,
    /// The size of the window at the end.
    pub window: u64,
    /// The number of items to which the window may grow by itself behind a slow item; 0 if its size was set.
    #[serde(default)]
    pub window_limit: u64,
    /// The bound on the [memory](crate::Builder::window_memory) of items in flight, in bytes, if it kept items back.
    #[serde(default)]
    pub window_memory: Option<u64>,
    /// The memory that the process may have, in bytes, if that bound kept items back.
    #[serde(default)]
    pub(crate) memory: Option<u64>,
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
    /// The time in which the source was not asked, since the window was full.
    pub source_waiting: Duration,
    /// The time in which the consumer was busy; for [`Outputs`](crate::Outputs), the time between calls of
    /// `next`.
    pub consumer_working: Duration,
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
    /// The caller of an [`Outputs`](crate::Outputs).
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
    /// The time of the run in which it got its first state, with [`init_in_run`](crate::Builder::init_in_run). It is part of
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
    /// Of that, the time in which the window was full, so that no item was read.
    #[serde(default)]
    pub held_up: Duration,
    /// Of that, the time in which all items ready for it waited for a [backoff](crate::Builder::backoff).
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
    /// How often its state was [recycled](crate::Builder::recycle_after).
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
    /// Whether it is a seat of a cluster that no worker has had.
    pub(crate) fn is_vacant(&self) -> bool {
        self.place.is_empty()
    }
}

/// Receives the events of runs: see [`Builder::observer`](crate::Builder::observer).
///
/// All events of a run are delivered on one thread, in the order of their times. Events of different
/// producers that are within 50 ms of each other may swap. Each is delivered within about 50 ms. If the
/// observer panics, the panic is caught and the observer gets no more events.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use gangline::event::{Event, Observer};
/// use gangline::{OrderedRunner, each};
///
/// /// Sends the index of each item that fails, while the run goes on.
/// struct Alarm(mpsc::Sender<Option<u64>>);
///
/// impl Observer for Alarm {
///     fn observe(&mut self, _: Duration, event: &Event) {
///         if let Event::ItemFailed { failure, .. } = event {
///             let _ = self.0.send(failure.item);
///         }
///     }
/// }
///
/// let (alarm, alarms) = mpsc::channel();
/// let roots = each(|x: i64| x.checked_isqrt().ok_or_else(|| "negative".into()));
/// let mut pool = OrderedRunner::builder(roots).devices(1).observer(Alarm(alarm)).build()?;
/// pool.run([4, -1]).unwrap_err();
/// assert_eq!(alarms.recv()?, Some(1));
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub trait Observer: Send {
    /// Handles an event, which happened at `at` after the beginning of the run.
    fn observe(&mut self, at: Duration, event: &Event);

    /// Called about every 100 ms while a run lasts, so that a display can move while nothing happens. `at`
    /// is the time since the beginning of the run. The default does nothing.
    fn tick(&mut self, at: Duration) {
        let _ = at;
    }
}

impl<F: FnMut(Duration, &Event) + Send> Observer for F {
    fn observe(&mut self, at: Duration, event: &Event) {
        self(at, event);
    }
}
