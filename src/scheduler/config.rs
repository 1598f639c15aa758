//! What the scheduler of a run is told at its start, and with each item.

use std::sync::Arc;
use std::time::Duration;

use super::deadlines::Timeouts;
use super::time::RunTime;
use crate::base::Order;
use crate::batch::{Batching, Size};
use crate::device::Place;
use crate::policy::{Backoff, OnError};

/// The settings of one run.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) producers: usize,
    /// Where each producer is; `None` where no two share a GPU.
    pub(crate) places: Option<Arc<[Place]>>,
    pub(crate) order: Order,
    pub(crate) window: usize,
    /// `None`: items are leased one by one.
    pub(crate) batching: Option<Batching>,
    pub(crate) on_error: OnError,
    /// How many attempts an item has after the first.
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    /// After how many consecutive failures a producer is suspected. `None`: never.
    pub(crate) quarantine_after: Option<usize>,
    /// The least time after which a slow item is copied. `None`: never.
    pub(crate) copy_after: Option<Duration>,
    pub(crate) timeouts: Timeouts,
    pub(crate) min_producers: usize,
}

/// What the scheduler knows of an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) size: Size,
    /// Since when it waits.
    pub(crate) since: RunTime,
}

/// Whether more input may be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    MayCome,
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
