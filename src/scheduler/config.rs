//! The settings of a run, and the properties of an item, as the scheduler needs them.

use std::sync::Arc;
use std::time::Duration;

use super::deadlines::Timeouts;
use super::gpus::Gpus;
use super::retry::{Backoff, OnError};
use super::time::RunTime;
use crate::base::Order;
use crate::scheduler::batch::{Batching, Size};

/// The settings of one run.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The number of places, with a producer each.
    pub(crate) producers: usize,
    /// The number of producers that may replace lost ones.
    pub(crate) spares: usize,
    /// The GPUs of each place; `None` if no place has any.
    pub(crate) places: Option<Arc<[Gpus]>>,
    pub(crate) order: Order,
    pub(crate) window: usize,
    /// `None`: items are leased one by one.
    pub(crate) batching: Option<Batching>,
    pub(crate) on_error: OnError,
    /// The number of attempts after the first.
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    /// The number of consecutive failures after which a producer is suspected. `None`: never.
    pub(crate) quarantine_after: Option<usize>,
    /// The minimum time after which a slow item is copied. `None`: never.
    pub(crate) copy_after: Option<Duration>,
    pub(crate) timeouts: Timeouts,
    pub(crate) min_producers: usize,
    pub(crate) bypass: Bypass,
    pub(crate) input: Input,
}

/// Whether items may pass the scheduler by: see [`adopt`](super::Scheduler::adopt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Bypass {
    /// If no setting of the run needs every item to be leased.
    #[default]
    Allowed,
    /// The producers can work on leases only.
    Never,
}

/// The properties of an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) size: Size,
    /// The time since which it waits.
    pub(crate) since: RunTime,
}

/// Whether more items may be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    MayCome,
    /// By callers, each of whom may wait for the result of its last item. So no batch can count on more.
    Calls,
    Ended,
}

/// What the feeder or the consumer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Activity {
    #[default]
    Working,
    /// The feeder waits for permits; the consumer waits for results.
    Waiting,
}
