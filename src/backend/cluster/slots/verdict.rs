//! The end of an item that a worker has taken: the answer of its service, as it goes to the coordinator.

use std::time::{Duration, Instant};

use async_nats::jetstream;

use crate::backend::cluster::hosting::{TaskAnswer, Timeout};
use crate::backend::cluster::wire::{ItemResult, WorkerOutcome};
use crate::base::Hook;
use crate::error::Crash;

/// An item with its result, which waits for the others of its group.
pub(super) struct FinishedItem {
    pub(super) result: ItemResult,
    /// The encoded output.
    pub(super) output: Vec<u8>,
    pub(super) message: jetstream::Message,
}

/// The largest number of bytes of a group of results. A larger one would hold up what follows.
pub(super) const GROUP: usize = 64 << 10;

/// The end of an item in this worker.
pub(super) enum SlotVerdict {
    Outcome {
        outcome: WorkerOutcome,
        /// The encoded output.
        output: Vec<u8>,
        /// The time from the beginning of its hook.
        busy: Duration,
    },
    /// The hook has taken too long, and now this worker has no producers any more.
    LastTimeout { outcome: WorkerOutcome, reason: String },
    /// This worker has no producers any more, and no hook has answered for the item.
    NoProducers { reason: String },
}

impl SlotVerdict {
    /// The verdict of an item without an output that was in no hook, or was given up.
    pub(super) fn without_hook(outcome: WorkerOutcome) -> Self {
        SlotVerdict::Outcome { outcome, output: vec![], busy: Duration::ZERO }
    }

    /// That of an item by its answer. `begun` says since when a hook had it.
    pub(super) fn of(answer: TaskAnswer, begun: Option<Instant>) -> Self {
        let (outcome, output) = match answer {
            TaskAnswer::Output(bytes) => (WorkerOutcome::Output, bytes),
            TaskAnswer::Failed { failure, device } => {
                (WorkerOutcome::Failed { failure, device }, vec![])
            }
            TaskAnswer::TimedOut(timeout) => (timed_out(timeout, false), vec![]),
            TaskAnswer::Crashed { crash, device } => {
                let Crash { signal, status, stderr } = crash;
                (WorkerOutcome::Crashed { signal, status, stderr, device }, vec![])
            }
            TaskAnswer::Ended { reason, timeout } => {
                // If a hook had the item, it was the last one, or in its batch.
                return match timeout.filter(|_| begun.is_some()) {
                    Some(it) => SlotVerdict::LastTimeout { outcome: timed_out(it, true), reason },
                    None => SlotVerdict::NoProducers { reason },
                };
            }
        };
        let busy = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        SlotVerdict::Outcome { outcome, output, busy }
    }
}

fn timed_out(Timeout { hook, limit, device }: Timeout, ends_worker: bool) -> WorkerOutcome {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    WorkerOutcome::TimedOut { is_init: hook == Hook::ProducerInit, nanos, device, ends_worker }
}
