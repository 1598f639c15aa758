//! The end rules of a run: what is skipped, what ends the run, what is reported, and the counts for the account.
//!
//! Each receiver of results follows them: the consumer, the link to the next stage, and the caller of outputs.

use crate::error::Error;
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::run::no_output::{CountingStage, Effect, FailedItem};
use crate::run::run_state::RunState;
use crate::run::taken::{RunFailure, Taken};

/// The results that a receiver has taken, by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reckoning {
    pub(super) taken: Taken,
    /// The number of items that failed in an earlier stage, which counts them.
    failed_earlier: u64,
    /// The number of items that an earlier run has done, and the first stage counts.
    done_earlier: u64,
    receiver: ReceiverKind,
}

/// Which receiver takes the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ReceiverKind {
    /// The link to the next stage.
    #[default]
    Link,
    /// The consumer, or the caller of outputs. Observers of its stage see the items of the whole input.
    Last,
}

/// Why a receiver takes nothing more.
pub(super) enum ReceiverEnd {
    Complete,
    /// The next stage, or the caller, wants no more.
    Unwanted,
    Cancelled,
    Failed(Error),
}

impl Reckoning {
    pub(super) fn new(receiver: ReceiverKind) -> Self {
        Reckoning { receiver, ..Reckoning::default() }
    }

    /// Publishes the counts.
    pub(super) fn publish(&self, run: &RunState) {
        let Taken { ok, already_done, .. } = self.taken;
        let earlier = self.failed_earlier + self.done_earlier;
        run.event_log.delivered(ok, ok + self.taken.skipped + already_done + earlier);
    }

    /// Counts an item that an earlier run has done.
    pub(super) fn done(&mut self, run: &RunState, counted_by: CountingStage) {
        match counted_by {
            CountingStage::This => self.taken.already_done += 1,
            CountingStage::Earlier => {
                self.done_earlier += 1;
                self.tell_earlier(run, None);
            }
        }
        self.publish(run);
    }

    /// Counts and reports an item that failed, in its turn.
    pub(super) fn fail(&mut self, run: &RunState, seq: u64, failed: &FailedItem) {
        match failed.is_own() {
            true => run.failure_delivered(failed),
            false => {
                self.failed_earlier += 1;
                self.tell_earlier(run, Some(&failed.error));
            }
        }
        match failed.effect {
            Effect::Ends => self.taken.failure = Some(RunFailure { seq, items: failed.items() }),
            Effect::Skipped => {
                self.taken.skipped += failed.items();
                self.publish(run);
            }
        }
    }

    /// Whether the last failure was one more than the policy allows. A run that was stopped ends without an error.
    pub(super) fn gives_up(&self, run: &RunState) -> bool {
        run.policy().gives_up_at(self.taken.skipped, self.taken.items()) && !run.is_stopped()
    }

    /// Ends the run at `seq` because more items were skipped than allowed. They are counted already.
    pub(super) fn too_many(&mut self, run: &RunState, seq: u64, last: Option<Error>) -> Error {
        self.taken.failure = Some(RunFailure { seq, items: 0 });
        run.policy().too_many(self.taken.skipped, self.taken.items(), last)
    }

    /// Takes the error that ends the run and that no result carries, if there is one.
    pub(super) fn take_fatal_error(&mut self, run: &RunState, seq: u64) -> Option<Error> {
        let error = run.has_fatal_error().then(|| run.take_fatal_error()).flatten()?;
        self.taken.failure = Some(RunFailure { seq, items: error.items().len() as u64 });
        Some(match error.items().first() {
            // The parts' own indices say nothing to the caller.
            Some(&part) if !matches!(error, Error::TooFewProducers { .. }) => {
                run.named_part(part, error)
            }
            _ => error,
        })
    }

    /// Why there are no more results. `total` is the number of items, as far as it is known. `last` takes out the last
    /// failure, for the error of too many.
    pub(super) fn end(
        &mut self,
        run: &RunState,
        consumed: u64,
        total: Option<u64>,
        last: impl FnOnce() -> Option<Error>,
    ) -> ReceiverEnd {
        // A cancel also ends a guarded input, which looks like the end of all items. So it is checked first.
        if run.is_cancelled() {
            return ReceiverEnd::Cancelled;
        }
        if let Some(error) = self.take_fatal_error(run, consumed) {
            return ReceiverEnd::Failed(error);
        }
        // It was taken before, when this receiver was abandoned in a hook that has now returned.
        if run.has_fatal_error() {
            return ReceiverEnd::Cancelled;
        }
        let is_complete = total == Some(consumed);
        let gives_up = run.policy().gives_up_at_end(self.taken.skipped, self.taken.items());
        match gives_up && is_complete && !run.is_stopped() {
            true => ReceiverEnd::Failed(self.too_many(run, consumed, last())),
            false if is_complete => ReceiverEnd::Complete,
            false => ReceiverEnd::Unwanted,
        }
    }

    /// The results of all items of the input, for the account of a run that its caller gives up.
    pub(super) fn taken_of_all(&self) -> Taken {
        Taken { skipped: self.taken.skipped + self.failed_earlier, ..self.taken }
    }

    /// Tells observers of the last stage of an item that ended in an earlier one, which has reported it.
    fn tell_earlier(&self, run: &RunState, error: Option<&Error>) {
        if self.receiver == ReceiverKind::Last && run.event_log.is_observed() {
            let failure = error.map(EventLog::failure);
            run.event_log.tell(Event::ItemEndedEarlier { failure });
        }
    }
}
