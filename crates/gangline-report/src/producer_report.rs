//! The part of a report about one producer and its worker.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use crate::batch_choice::BatchChoice;
use crate::seconds;
use crate::time_kind::TimeAccount;

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
    /// The part of `waiting` in which all items ready for it waited for a
    /// [backoff](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.backoff).
    #[serde(with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub backing_off: Duration,
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
    /// How often it was started again, or another in its place: see
    /// [`replace_lost`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.replace_lost). Items and
    /// times are of all of them.
    pub replacements: u64,
    /// Its worker. `None` if its hooks run in this process, and before the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerReport>,
}

/// The worker in which the hooks of one producer ran, and what it cost to reach it.
///
/// With `Builder::processes`, it is a child process. With `Builder::cluster`, it is a worker on any machine, and its
/// producer is its seat. All figures are those of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The name of its machine; `None` if it is the one of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The id of its process; of several, that of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How many producers it has. In a cluster, the times of its row are the mean of theirs.
    pub producers: u64,
    /// How often another worker took the place of one that had ended.
    pub restarts: u64,
    /// How many workers of this place were lost, in a cluster: their lease ended, or they lost their producers.
    pub losses: u64,
    /// Why the last worker of this place was lost; `None` if it took part to the end, or left in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// How many items came back from it before a hook began them: it had ended, another producer had nothing to do, or
    /// the run was over. In a cluster, items that the broker had to deliver to it again count too.
    pub returned: u64,
    /// How long the worker had items while no hook ran: from the later of sending an item and the answer to the one
    /// before, to its own answer, without the time in the hook. Items that failed do not count. Of a worker with
    /// several producers, it is the sum of theirs.
    #[serde(with = "seconds")]
    pub wire_wait: Duration,
    /// The bytes that were sent to it.
    pub bytes_down: u64,
    /// The bytes that it sent.
    pub bytes_up: u64,
}

impl ProducerReport {
    pub(super) fn is_lost(&self) -> bool {
        let has_worker = self.worker.as_ref().is_none_or(|worker| worker.lost.is_none());
        self.quarantined.is_some() || self.abandoned || !has_worker
    }

    /// The time in which it got its first state in the run, or its hook loaded something.
    pub(super) fn loading(&self) -> Duration {
        self.times.loading.saturating_sub(self.rebuilding + self.recycling)
    }
}

/// The share of `whole` that `of` is, from 0 to 1.
pub fn share(of: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (of.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}
