//! The answer of a service for an item, as the coordinator gets it.

use gangline::Hook;
use gangline::error::Crash;

use crate::hosting::{TaskAnswer, Timeout};
use crate::services::reason_of;
use crate::wire;
use crate::wire::WorkerOutcome;

/// What the answer of a service leads to.
pub(super) struct AnswerEffect {
    /// `None` if no hook has answered for the item, which goes to another worker.
    pub(super) outcome: Option<WorkerOutcome>,
    /// The encoded output.
    pub(super) output: Vec<u8>,
    /// Why this worker has no producers any more.
    pub(super) lost: Option<String>,
}

impl AnswerEffect {
    /// The effect of an answer for an item. `is_begun` says whether a hook had it.
    pub(super) fn of(answer: TaskAnswer, is_begun: bool) -> Self {
        let (outcome, output, lost) = match answer {
            TaskAnswer::Output(bytes) => (Some(WorkerOutcome::Output), bytes, None),
            TaskAnswer::Failed { failure, device } => {
                (Some(WorkerOutcome::Failed { failure, device }), vec![], None)
            }
            TaskAnswer::TimedOut(timeout) => (Some(timed_out(timeout, false)), vec![], None),
            TaskAnswer::Crashed { crash, device } => {
                let Crash { signal, status, stderr, .. } = crash;
                let outcome = WorkerOutcome::Crashed { signal, status, stderr, device };
                (Some(outcome), vec![], None)
            }
            // If a hook had the item, it was the last one, or in its batch.
            TaskAnswer::Ended { reason, timeout } => {
                let timeout = timeout.filter(|_| is_begun);
                (timeout.map(|it| timed_out(it, true)), vec![], Some(reason))
            }
        };
        AnswerEffect { outcome, output, lost }
    }
}

fn timed_out(Timeout { hook, limit, device }: Timeout, ends_worker: bool) -> WorkerOutcome {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    WorkerOutcome::TimedOut { is_init: hook == Hook::ProducerInit, nanos, device, ends_worker }
}

/// The outcome, with a shorter text if it is too large for a message.
pub(super) fn fitting(outcome: WorkerOutcome, most: usize) -> WorkerOutcome {
    let bytes = wire::encode(&outcome).len();
    if bytes <= most {
        return outcome;
    }
    let said = match &outcome {
        WorkerOutcome::Failed { failure, .. } => reason_of(failure),
        WorkerOutcome::Crashed { stderr, .. } => stderr.clone(),
        _ => String::new(),
    };
    let shown: String = said.chars().take(most / 8).collect();
    let text = format!(
        "{shown} ... (the error has {bytes} bytes, and a message of the broker at most {most} for it)"
    );
    WorkerOutcome::error(text)
}
