//! The result of a run, as its consumer reports it.

use crate::backend::threads::run::Run;
use crate::backend::threads::taken::{Failure, Taken};
use crate::base::panic::drop_quietly;
use crate::error::Error;
use crate::runner::Runner;

/// The result of a run, as the consumer reports it.
pub(crate) struct Consumed<S> {
    pub(crate) result: Result<S, Error>,
    pub(crate) taken: Taken,
    /// The skipped items: the first [`MOST_FAILURES`].
    pub(crate) failures: Vec<SkippedItem>,
}

/// An item that was skipped, in this stage or an earlier one.
pub(crate) struct SkippedItem {
    pub(crate) error: Error,
    /// The number of stages between the one where it failed and the consumer's.
    pub(crate) passed_on: usize,
    /// Its index in the input, if items keep their identity through the stages.
    pub(crate) input: Option<u64>,
}

/// The maximum number of errors kept of a run, so that a million bad items do not fill the memory.
pub(crate) const MOST_FAILURES: usize = 10_000;

impl<S> Consumed<S> {
    /// Drops the result of an abandoned consumer.
    pub(super) fn discard(self) {
        drop_quietly(self.result);
        self.failures.into_iter().for_each(|skipped| drop_quietly(skipped.error));
    }

    /// Stands in for the result of an abandoned consumer.
    pub(crate) fn abandoned<R: Runner>(run: &Run<R>) -> Self {
        run.handover.stats.leave_consumer_behind();
        let taken = run.tally.get();
        // `None` if the consumer had taken the error before its hook got stuck.
        let error = run.take_fatal_error().unwrap_or_else(|| Error::RunTimedOut {
            limit: run.run_settings.limits.run.expect("only that limit leaves a consumer behind"),
        });
        let failure = taken.failure.or_else(|| Some(Failure::ending(&taken, &error)));
        Consumed { result: Err(error), taken: Taken { failure, ..taken }, failures: vec![] }
    }
}
