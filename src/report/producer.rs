//! What one producer came to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use super::seconds;
use crate::event::ProducerTotals;

/// What one producer came to.
///
/// A producer never waits for the consumer: where that is behind, the window is full, the source is not
/// asked, and the producer finds nothing. So that is in `waiting`, and
/// [`source_waiting`](super::RunReport::source_waiting) says how much of it there can be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProducerReport {
    /// Its place, as text: `cuda:0+cuda:1`.
    pub place: String,
    /// How many items it was done with, well or not.
    pub items: u64,
    /// How many attempts at items failed on it.
    pub failed: u64,
    /// The share of the run, from 0 to 1, that it worked.
    pub busy: f64,
    /// How long it worked on items, or looked for them.
    #[serde(with = "seconds")]
    pub working: Duration,
    /// How long it waited with no item there for it.
    #[serde(with = "seconds")]
    pub waiting: Duration,
    /// How long its last `producer_init` took.
    #[serde(with = "seconds")]
    pub init: Duration,
    /// How long it worked on items, each. `None` without item events, and for producers from the 256th on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latencies>,
    /// The extent of the largest batch that its device has memory for, if it ran out of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_ceiling: Option<u64>,
    /// Why it takes no more items, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Whether its thread was abandoned, since it did not return in time.
    pub abandoned: bool,
}

impl ProducerReport {
    pub(super) fn new(totals: &ProducerTotals, lasted: Duration) -> Self {
        ProducerReport {
            place: totals.place.clone(),
            items: totals.items,
            failed: totals.failed,
            busy: share(totals.working, lasted),
            working: totals.working,
            waiting: totals.waiting,
            init: totals.init,
            latency: None,
            batch_ceiling: totals.batch_ceiling,
            quarantined: totals.quarantined.clone(),
            abandoned: totals.abandoned,
        }
    }
}

/// Which share of a time another is, from 0 to 1.
pub(super) fn share(of: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (of.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}
