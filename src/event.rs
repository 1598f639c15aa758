//! What happens in a run, as values. Times are arguments: nothing here has a clock.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::failure::Failure;
use crate::order::Order;

/// Something that happened in a run.
///
/// Items are named by their index in the input, producers by their number, both from 0. An event says
/// nothing of when it happened: [`Observer::observe`] is told that beside it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A run or stream began.
    #[non_exhaustive]
    RunStarted {
        /// How many items there are, where the input's `size_hint` is exact.
        items: Option<u64>,
        /// The order in which results are consumed.
        order: Order,
        /// The places of the producers, as text, in the order of their numbers: `cuda:0+cuda:1`.
        producers: Vec<String>,
        /// The [devices used](crate::Devices::fallbacks) in the place of others that are not there.
        fallbacks: Vec<String>,
    },
    /// A producer's state is there. Told at the start of each run of every producer that has one, and again
    /// when one was made anew after a panic.
    #[non_exhaustive]
    ProducerReady {
        /// The producer.
        producer: usize,
        /// How long `producer_init` took.
        took: Duration,
    },
    /// A producer began with an item.
    #[non_exhaustive]
    ItemStarted {
        /// The item.
        item: u64,
        /// Its key, if [keys](crate::Builder::key) were asked for.
        key: Option<Arc<str>>,
        /// The producer.
        producer: usize,
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// A producer is done with an item, well or not. Items of a batch begin and end together.
    #[non_exhaustive]
    ItemFinished {
        /// The item.
        item: u64,
        /// The producer.
        producer: usize,
    },
    /// So many more items were consumed: `consumer_work` returned `Ok` for them, or a stream yielded them.
    #[non_exhaustive]
    ItemsConsumed {
        /// How many.
        items: u64,
    },
    /// An attempt at an item failed, and there will be another.
    #[non_exhaustive]
    ItemRetried {
        /// What it failed with.
        failure: Arc<Failure>,
    },
    /// An item failed, and its error stands.
    #[non_exhaustive]
    ItemFailed {
        /// What it failed with.
        failure: Arc<Failure>,
    },
    /// An item was left out, since an earlier run was done with it.
    #[non_exhaustive]
    ItemAlreadyDone {
        /// The item.
        item: u64,
    },
    /// The source was not asked for more, since as many items as the window holds were out.
    #[non_exhaustive]
    WindowFull {
        /// How long, up to now.
        lasted: Duration,
    },
    /// The consumer waited for one item, with results of later ones there.
    #[non_exhaustive]
    HeadOfLineBlocked {
        /// The item that it waited for.
        item: u64,
        /// How long, up to now.
        lasted: Duration,
    },
    /// A producer takes no more items: its device failed.
    #[non_exhaustive]
    ProducerQuarantined {
        /// The producer.
        producer: usize,
        /// Why.
        reason: Arc<str>,
    },
    /// A producer that did not return in time was written off. Its thread is abandoned.
    #[non_exhaustive]
    ProducerAbandoned {
        /// The producer.
        producer: usize,
    },
    /// So many events were left out, since observers did not keep up: `ItemStarted` and `ItemFinished`, and of all
    /// others what came while 65,536 of them were waiting to be told. `RunEnded` never is.
    #[non_exhaustive]
    EventsLost {
        /// How many.
        events: u64,
    },
    /// The run is over: the last event of it.
    #[non_exhaustive]
    RunEnded {
        /// What it came to.
        totals: Arc<Totals>,
    },
}

/// What a run came to, measured where somebody waits, so that it costs nothing for an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Totals {
    /// What became of the items.
    pub account: Account,
    /// From beginning to end.
    pub lasted: Duration,
    /// What ended the run before its input was consumed, as text with its causes; `None` if nothing did.
    pub error: Option<String>,
    /// Whether that was a cancel.
    pub cancelled: bool,
    /// How many items the window held at the end.
    pub window: u64,
    /// The producers, in the order of their numbers.
    pub producers: Vec<ProducerTotals>,
    /// What the source is.
    #[serde(default)]
    pub origin: Origin,
    /// What the consumer is.
    #[serde(default)]
    pub destination: Destination,
    /// How long the source was asked for items, its own time among it.
    pub source_working: Duration,
    /// How long the source was not asked, since the window was full.
    pub source_waiting: Duration,
    /// How long the consumer had something to do: of a stream, how long nobody asked it for results.
    pub consumer_working: Duration,
    /// How long the consumer waited with nothing there.
    pub consumer_waiting: Duration,
    /// How long it waited for one item, with results of later ones there.
    pub head_stalled: Duration,
    /// The items that it waited for the longest, and how long: the first is the worst. At most 20.
    pub worst_heads: Vec<(u64, Duration)>,
    /// Whether the consumer's thread was abandoned, since it did not return in time.
    #[serde(default)]
    pub consumer_abandoned: bool,
}

/// Where the items of a run come from.
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

/// Where the results of a run go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Destination {
    /// The hooks of the consumer.
    #[default]
    Consumer,
    /// Whoever asks a stream for them.
    Outputs,
    /// The next stage, in a pipeline.
    NextStage,
}

/// What one producer came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProducerTotals {
    /// Its place, as text.
    pub place: String,
    /// How many items it was done with, well or not.
    pub items: u64,
    /// How many attempts at items failed on it.
    pub failed: u64,
    /// How long its last `producer_init` took.
    pub init: Duration,
    /// How long it worked on items, or looked for them.
    pub working: Duration,
    /// How long it waited with no item there for it.
    pub waiting: Duration,
    /// Of that, how long the window was full: no item was read.
    #[serde(default)]
    pub held_up: Duration,
    /// Of that, how long there were items to try again, but [later](crate::Builder::backoff).
    #[serde(default)]
    pub backing_off: Duration,
    /// The extent of the largest batch that its device has memory for, if it ran out of it.
    pub batch_ceiling: Option<u64>,
    /// Why it takes no more items, if so.
    pub quarantined: Option<String>,
    /// Whether its thread was abandoned.
    pub abandoned: bool,
}

/// Sees what happens in runs. Made for [`Builder::observer`](crate::Builder::observer).
///
/// All events of a run are told on one thread, in the order of their times as far as that is known:
/// events of different producers that are within 50 ms of each other may be told in either order. They
/// are told within about 50 ms of happening. A panic is caught, and the observer is told no more.
pub trait Observer: Send {
    /// Something happened, so long after the beginning of the run.
    fn observe(&mut self, at: Duration, event: &Event);

    /// It is so long after the beginning of the run. Told about every 100 ms while a run lasts, so that what
    /// is shown of it can move while nothing happens. Does nothing by default.
    fn tick(&mut self, at: Duration) {
        let _ = at;
    }
}

impl<F: FnMut(Duration, &Event) + Send> Observer for F {
    fn observe(&mut self, at: Duration, event: &Event) {
        self(at, event);
    }
}
