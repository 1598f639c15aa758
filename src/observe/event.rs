//! The events of a run, as values. Times are arguments: nothing here has a clock.

use std::sync::Arc;
use std::time::Duration;

use gangline_report::{Account, Failure, Recorder, RunReport, SpentIn, SpentTime};
#[doc(inline)]
pub use gangline_report::{Destination, Origin, TimeKind};

use crate::base::Order;
pub use crate::concurrency::time_aside::count_as;

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
    /// A hook has counted its time up to now as no work: see [`count_as`].
    #[non_exhaustive]
    HookPaused {
        /// The producer.
        producer: usize,
        /// What the time went to.
        kind: TimeKind,
        /// Its length.
        took: Duration,
    },
    /// A producer has waited up to now, for at least 1 ms and for another reason than a lack of input.
    #[non_exhaustive]
    ProducerWaited {
        /// The producer.
        producer: usize,
        /// What the time went to.
        kind: TimeKind,
        /// Its length.
        took: Duration,
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
        /// How long it had given no sign of life by then, if it was lost for that.
        silent: Duration,
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
    /// Another producer is started in the place of one that was lost, before the run, or a `producer_init` that failed is
    /// called again: see [`replace_lost`](crate::Builder::replace_lost).
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
        /// What the threads of the run measured: its report without what events tell.
        totals: Arc<RunReport>,
        /// The items of the whole pipeline, counted by outcome, if the run was its last stage.
        pipeline: Option<Account>,
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
                    "a producer is started again, or another in the place of a lost one"
                );
            }
            Event::RunStarted { items, producers, .. } => {
                tracing::debug!(items = *items, producers = producers.len(), "a run starts");
            }
            Event::RunEnded { totals, .. } => {
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

    /// Records the event for the report of its run.
    pub(super) fn record(&self, at: Duration, recorder: &mut Recorder) {
        match self {
            Event::RunStarted { items, order, producers, fallbacks } => {
                recorder.begin(*items, *order, producers, fallbacks);
            }
            Event::ItemStarted { item, key, producer, attempt } => {
                recorder.item_started(at, *producer, *item, key.clone(), *attempt);
            }
            Event::ItemFinished { item, producer } => recorder.item_finished(at, *producer, *item),
            Event::HookPaused { producer, kind, took } => {
                let spent = SpentTime { kind: *kind, took: *took, place: SpentIn::Hook };
                recorder.time_spent(at, *producer, spent);
            }
            Event::ProducerWaited { producer, kind, took } => {
                let spent = SpentTime { kind: *kind, took: *took, place: SpentIn::Wait };
                recorder.time_spent(at, *producer, spent);
            }
            Event::ItemsDone { items } => recorder.items_done(at, *items),
            Event::ItemsConsumed { items } => recorder.items_consumed(at, *items),
            Event::ProducerReady { producer, took, is_rebuilt } => {
                recorder.ready(at, *producer, *took, *is_rebuilt);
            }
            Event::ItemRetried { failure } => recorder.retried(at, failure),
            Event::ItemFailed { failure } => recorder.failed_at_consumer(at, failure),
            Event::ItemAlreadyDone { .. } => recorder.already_done(at),
            Event::WorkerJoined { producer, place, .. } => {
                recorder.worker_joined(at, *producer, place);
            }
            Event::WorkerLeft { producer, lost: Some(why), silent } => {
                recorder.worker_lost(at, *producer, why, *silent);
            }
            Event::HeadOfLineBlocked { item, lasted } => recorder.head_stalled(at, *item, *lasted),
            Event::ProducerQuarantined { producer, reason } => {
                recorder.quarantined(at, *producer, reason);
            }
            Event::ProducerAbandoned { producer } => recorder.abandoned(at, *producer),
            Event::ProducerRecycled { producer, took } => recorder.recycled(at, *producer, *took),
            Event::ProducerReplaced { producer } => recorder.replaced(at, *producer),
            Event::EventsLost { events } => recorder.events_lost(at, *events),
            Event::RunEnded { totals, .. } => recorder.end(at, totals),
            // The total is known at the end of the run. The report of a stage is about its own items.
            Event::ItemsRead { .. }
            | Event::WindowFull { .. }
            | Event::ItemEndedEarlier { .. }
            | Event::ItemsDelivered { .. }
            | Event::WorkerLeft { lost: None, .. } => recorder.pass(at),
        }
    }
}

/// The name of a seat in a cluster, for a worker on this host: its place in events and reports.
pub(crate) fn seat_name(host: &str, seat: usize) -> String {
    format!("{host}/{seat}")
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
