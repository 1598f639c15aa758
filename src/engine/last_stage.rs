//! The last stage of a pipeline that gives its outputs to the caller.

use std::sync::Arc;
use std::time::Instant;

use super::collector::Collector;
use super::streaming::{Look, Yield};
use crate::backend::threads::no_output::{Effect, FailedItem, NoOutput};
use crate::backend::threads::run::Run;
use crate::backend::threads::taken::{Failure, Taken};
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::error::Error;
use crate::observe::event::Destination;
use crate::runner::Runner;
use crate::scheduler::window::Window;

/// The last stage of a pipeline that gives its outputs to the caller, and the counts of what the caller has taken.
pub(super) struct LastStage<S: Runner> {
    pub(super) run: Arc<Run<S>>,
    pub(super) collector: Collector<S::Output>,
    /// The number of its items, once it is known.
    pub(super) total: Option<u64>,
    pub(super) taken: Taken,
    /// The number of errors that the caller has, those of items that failed in earlier stages too.
    errors: u64,
}

impl<S: Runner> LastStage<S> {
    pub(super) fn new(
        run: Arc<Run<S>>,
        order: Order,
        window: Window,
        destination: Destination,
    ) -> Self {
        run.handover.stats.goes_to(destination);
        let collector = Collector::new(&run.handover, order, window, Instant::now());
        LastStage { run, collector, total: None, taken: Taken::default(), errors: 0 }
    }

    /// Counts the result that the caller had as consumed. Returns whether it had one.
    pub(super) fn take_back(&mut self) -> bool {
        self.collector.take_back(&self.run.handover)
    }

    /// Looks for the next step, without waiting. The caller has taken no result, or it was
    /// [taken back](Self::take_back).
    pub(super) fn look(&mut self) -> Look<S::Output> {
        if self.run.is_cancelled() {
            return Look::Ready(Yield::Last(Error::Cancelled {}));
        }
        if let Some(error) = self.run.take_fatal_error() {
            return Look::Ready(Yield::Last(self.fail_with(error)));
        }
        while let Some((seq, outcome)) = self.collector.pop() {
            if self.run.is_pointless(seq, &outcome) {
                drop_quietly(outcome);
                self.collector.done(&self.run.handover);
                continue;
            }
            self.run.remove_name(seq);
            self.collector.lend();
            match outcome {
                Ok(output) => {
                    self.taken.ok += 1;
                    self.tell();
                    return Look::Ready(Yield::Output(output));
                }
                Err(none) => {
                    let NoOutput::Failed(failed) = *none else {
                        unreachable!("outputs have no journal, and their parts are gathered");
                    };
                    self.errors += 1;
                    self.tell();
                    return Look::Ready(self.meet(seq, failed));
                }
            }
        }
        self.total = self.total.or_else(|| self.run.handover.total());
        if self.total == Some(self.collector.consumed()) {
            // Looked at again: a cancel of all stages ends the input of the last after its own cancel.
            return match self.run.is_cancelled() {
                true => Look::Ready(Yield::Last(Error::Cancelled {})),
                false => self.give_up_at_end().map_or(Look::Over, Look::Ready),
            };
        }
        self.collector.settle(&self.run.handover);
        Look::Missing
    }

    /// What the caller has taken of the items of the input.
    #[cfg(feature = "futures")]
    pub(super) fn taken_of_all(&self) -> Taken {
        Taken { skipped: self.errors, failure: None, ..self.taken }
    }

    /// Publishes the counts.
    fn tell(&self) {
        self.run.event_log.delivered(self.taken.ok, self.taken.ok + self.errors);
    }

    /// Handles a failed item in its turn.
    fn meet(&mut self, seq: u64, failed: FailedItem) -> Yield<S::Output> {
        self.run.failure_delivered(&failed);
        if failed.effect == Effect::Ends {
            self.taken.failure = Some(Failure { seq, items: failed.items() });
            return Yield::Last(failed.error);
        }
        self.taken.skipped += failed.items();
        let (skipped, items) = (self.taken.skipped, self.taken.items());
        let policy = self.run.policy();
        match policy.gives_up_at(skipped, items) {
            true => Yield::Last(policy.too_many(skipped, items, Some(failed.error))),
            false => Yield::Skipped(failed.error),
        }
    }

    /// Ends with an error that was not met in its turn.
    fn fail_with(&mut self, error: Error) -> Error {
        self.taken.failure = Some(Failure::ending(&self.taken, &error));
        error
    }

    /// At most once: the error of too many failures ends the stream.
    fn give_up_at_end(&self) -> Option<Yield<S::Output>> {
        let (skipped, items) = (self.taken.skipped, self.taken.items());
        let policy = self.run.policy();
        policy
            .gives_up_at_end(skipped, items)
            .then(|| Yield::Last(policy.too_many(skipped, items, None)))
    }
}
