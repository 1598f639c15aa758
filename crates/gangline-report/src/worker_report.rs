//! The part of a report about the worker of one producer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seconds;

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
