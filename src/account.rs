//! What became of the items of a run.

use serde::{Deserialize, Serialize};

/// What became of the items of a run or stream.
///
/// Every item pulled from the input is exactly one of ok, failed, already_done or cancelled, also when
/// the run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Account {
    /// Items for which `consumer_work` returned `Ok`, or which a stream yielded.
    pub ok: u64,
    /// Items whose error stood. An item whose input failed counts here.
    pub failed: u64,
    /// Items left out on purpose, without being worked on: an earlier run with the same
    /// [journal](crate::Builder::journal) was done with them.
    pub already_done: u64,
    /// Items that were pulled and then dropped, because the run was cancelled, stopped or failed at
    /// another item.
    pub cancelled: u64,
    /// Items that were never pulled: a number only where the input's `size_hint` is exact.
    pub unread: Option<u64>,
}

impl Account {
    /// The account of a run that pulled `pulled` items.
    pub(crate) fn new(
        pulled: u64,
        ok: u64,
        failed: u64,
        already_done: u64,
        unread: Option<u64>,
    ) -> Self {
        let others = pulled.checked_sub(ok + failed + already_done);
        let cancelled = others.expect("an item is accounted once");
        Account { ok, failed, already_done, cancelled, unread }
    }
}
