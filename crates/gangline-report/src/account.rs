//! Where the items of a run come from and go to, how it ended, and its items by outcome.

use serde::{Deserialize, Serialize};

/// The items of a run, counted by outcome.
///
/// Every item pulled from the input is exactly one of ok, failed, already_done or cancelled, also if the
/// run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Account {
    /// Items for which `consumer_work` returned `Ok`, or that
    /// [`Outputs`](https://docs.rs/gangline/latest/gangline/struct.Outputs.html) yielded.
    pub ok: u64,
    /// Items that failed, and were not saved by a retry. An item with a failed input counts here.
    pub failed: u64,
    /// Items that were not worked on, since an earlier run with the same
    /// [journal](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.journal) had done them.
    pub already_done: u64,
    /// Items that were pulled and then dropped, because the run was cancelled, stopped or failed at
    /// another item.
    pub cancelled: u64,
    /// Items that were never pulled: known only if the input's `size_hint` is exact.
    pub unread: Option<u64>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The run is in progress, or there has been none.
    #[default]
    InProgress,
    /// All input was consumed, or the consumer or a
    /// [token](https://docs.rs/gangline/latest/gangline/struct.CancelToken.html#method.drain) asked for an early end.
    Finished,
    /// An error ended the run.
    Failed,
    /// The run was cancelled.
    Cancelled,
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
    /// The caller of an [`Outputs`](https://docs.rs/gangline/latest/gangline/struct.Outputs.html).
    Outputs,
    /// The caller of outputs. Another thread pulls the input, or it is a stream.
    FedOutputs,
    /// The next stage, in a pipeline.
    NextStage,
}

impl Account {
    /// The account of a run that pulled `pulled` items.
    #[doc(hidden)]
    pub fn new(pulled: u64, ok: u64, failed: u64, already_done: u64, unread: Option<u64>) -> Self {
        let others = pulled.checked_sub(ok + failed + already_done);
        let cancelled = others.expect("every item is counted once");
        Account { ok, failed, already_done, cancelled, unread }
    }
}
