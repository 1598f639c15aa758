//! The settings of a run, and the properties of an item, as the scheduler needs them.

use std::sync::Arc;
use std::time::Duration;

use super::deadlines::Timeouts;
use super::flow::Input;
use super::gpus::Gpus;
use super::priority::Priority;
use super::retry::{Backoff, OnError};
use super::time::RunTime;
use crate::batch::{Batching, Size};

/// The settings of one run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The number of places, with a producer each.
    pub producers: usize,
    /// The GPUs of each place; `None` if no place has any.
    pub places: Option<Arc<[Gpus]>>,
    /// The order in which results are consumed.
    pub order: Order,
    /// The largest number of items in flight.
    pub window: usize,
    /// `None`: items are leased one by one.
    pub batching: Option<Batching>,
    /// What happens to an item without a further attempt.
    pub on_error: OnError,
    /// The number of attempts after the first.
    pub retries: u32,
    /// The delay before a retry.
    pub backoff: Backoff,
    /// The number of consecutive failures after which a producer is suspected. `None`: never.
    pub quarantine_after: Option<usize>,
    /// The minimum time after which a slow item is copied. `None`: never.
    pub copy_after: Option<Duration>,
    /// The time limits of hooks and of the run.
    pub timeouts: Timeouts,
    /// The run fails below this number of live producers.
    pub min_producers: usize,
    /// Whether items may pass the scheduler by.
    pub bypass: Bypass,
    /// Whether more items may be offered.
    pub input: Input,
}

/// Whether items may pass the scheduler by: see [`adopt`](super::Scheduler::adopt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bypass {
    /// If no setting of the run needs every item to be leased.
    #[default]
    Allowed,
    /// The producers can work on leases only.
    Never,
}

/// The order in which the consumer sees the results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Order {
    /// The order of the input: 0, 1, 2, ...
    #[default]
    Input,
    /// The order in which results are finished. Results of different producers that are handed over
    /// together, since the consumer was busy, may swap.
    Completion,
}

/// The properties of an item.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    /// What it adds to a batch.
    pub size: Size,
    /// The time since which it waits.
    pub since: RunTime,
    /// Whether it goes before other items that wait.
    pub priority: Priority,
}
