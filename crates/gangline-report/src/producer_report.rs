//! The part of a report about one producer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use crate::batch_choice::BatchChoice;
use crate::seconds;
use crate::time_kind::TimeAccount;
use crate::totals::ProducerTotals;
use crate::worker_report::WorkerReport;

/// Items, times and failures of one producer.
///
/// A producer never waits for the consumer itself. If the consumer is slow, the window is full, the feeder
/// stops asking the source, and the producer finds no item. That time is part of `waiting`;
/// [`source_waiting`](super::RunReport::source_waiting) is an upper bound of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProducerReport {
    /// The name of its stage, in the report of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Its place as text: `cuda:0+cuda:1`. In a cluster, the host of its worker and the number of its seat: `node1/0`.
    pub place: String,
    /// How many items it finished, whether they succeeded or failed.
    pub items: u64,
    /// How many attempts failed on it.
    pub failed: u64,
    /// The share of the run that it worked, from 0 to 1.
    pub busy: f64,
    /// How long it worked on items or looked for them. In a cluster, as its worker measured it.
    #[serde(with = "seconds")]
    pub working: Duration,
    /// How long it waited without an item. In a cluster, since its worker joined.
    #[serde(with = "seconds")]
    pub waiting: Duration,
    /// Its time in the run, by kind.
    pub times: TimeAccount,
    /// How often it lost its state to a panic of a hook, or to the end of its child process.
    pub states_lost: u64,
    /// How often it called `producer_init` again to rebuild a lost state.
    pub rebuilds: u64,
    /// How long these calls took. It is part of neither `working` nor `waiting`.
    #[serde(with = "seconds")]
    pub rebuilding: Duration,
    /// How long its last `producer_init` took.
    #[serde(with = "seconds")]
    pub init: Duration,
    /// Latency of its items. `None` without item events, and for producers from the 256th on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latencies>,
    /// The largest batch that fits into its device's memory, if it ran out of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_ceiling: Option<u64>,
    /// The batch size that was chosen for it, with [`Batch::auto`](gangline_scheduler::batch::Batch::auto). Not known in a cluster, where
    /// the workers form batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<BatchChoice>,
    /// Why it was quarantined, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Whether its thread was abandoned because it did not return in time.
    pub abandoned: bool,
    /// How often its state was ended and built anew: see
    /// [`recycle_after`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.recycle_after).
    pub recycles: u64,
    /// How long that took, `producer_end` and `producer_init`. It is part of neither `working` nor `waiting`.
    #[serde(with = "seconds")]
    pub recycling: Duration,
    /// How often another producer was started in its place: see
    /// [`replace_lost`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.replace_lost). Items and
    /// times are of all of them.
    pub replacements: u64,
    /// Its worker. `None` if its hooks run in this process, and before the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerReport>,
}

impl ProducerReport {
    pub(super) fn is_lost(&self) -> bool {
        let has_worker = self.worker.as_ref().is_none_or(|worker| worker.lost.is_none());
        self.quarantined.is_some() || self.abandoned || !has_worker
    }

    /// The row of a producer in a run that lasted this long.
    #[doc(hidden)]
    pub fn new(totals: &ProducerTotals, lasted: Duration) -> Self {
        ProducerReport {
            stage: None,
            place: totals.place.clone(),
            items: totals.items,
            failed: totals.failed,
            busy: share(totals.working, lasted),
            working: totals.working,
            waiting: totals.waiting,
            times: totals.times(),
            states_lost: totals.states_lost,
            rebuilds: totals.rebuilds,
            rebuilding: totals.rebuilding,
            init: totals.init,
            latency: None,
            batch_ceiling: totals.batch_ceiling,
            batch_size: totals.batch_size.clone(),
            quarantined: totals.quarantined.clone(),
            abandoned: totals.abandoned,
            recycles: totals.recycles,
            recycling: totals.recycling,
            replacements: totals.replacements,
            worker: totals.worker.clone(),
        }
    }
}

/// The share of `whole` that `of` is, from 0 to 1.
pub(super) fn share(of: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (of.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}
