//! The end of an item that a worker has taken: the answer of its service, as it goes to the coordinator.

use std::time::Duration;

use crate::backend::cluster::hosting::Answer;
use crate::backend::cluster::wire::Outcome;
use crate::base::Hook;
use crate::error::Crash;

/// The end of an item in this worker.
pub(super) enum Verdict {
    Outcome {
        outcome: Outcome,
        /// The encoded output.
        output: Vec<u8>,
        /// The time from the beginning of its hook.
        busy: Duration,
    },
    /// This worker has no producers any more, for this reason.
    NoProducers(String),
}

impl Verdict {
    /// The verdict of an item without an output that was in no hook, or was given up.
    pub(super) fn without_hook(outcome: Outcome) -> Self {
        Verdict::Outcome { outcome, output: vec![], busy: Duration::ZERO }
    }

    pub(super) fn of(answer: Answer, busy: Duration) -> Self {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let (outcome, output) = match answer {
            Answer::Output(bytes) => (Outcome::Output, bytes),
            Answer::Failed { failure, device } => (Outcome::Failed { failure, device }, vec![]),
            Answer::TimedOut { hook, limit, device } => {
                let (is_init, nanos) = (hook == Hook::ProducerInit, nanos(limit));
                (Outcome::TimedOut { is_init, nanos, device }, vec![])
            }
            Answer::Crashed { crash, device } => {
                let Crash { signal, status, stderr } = crash;
                (Outcome::Crashed { signal, status, stderr, device }, vec![])
            }
            Answer::Ended(reason) => return Verdict::NoProducers(reason),
        };
        Verdict::Outcome { outcome, output, busy }
    }
}
