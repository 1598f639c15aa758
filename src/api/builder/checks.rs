//! What [`build`](Builder::build) refuses.

use gangline_scheduler::Backoff;

use super::Builder;
use crate::api::pool::OrderKind;
use crate::error::{BuildError, Error};
use crate::runner::{BatchHook, Runner};

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Checks that these values are consistent with each other and with `producers`.
    pub(super) fn check_survival(&self, producers: usize) -> Result<(), Error> {
        if let Some(share) = self.policy.max_failures.and_then(|most| most.bad_share()) {
            return Err(BuildError::Share { share }.into());
        }
        if self.policy.max_failures.is_some() && !self.policy.may_skip() {
            return Err(BuildError::NoneSkipped {}.into());
        }
        if self.policy.quarantine_after == Some(0) {
            return Err(BuildError::QuarantineAfter {}.into());
        }
        if let Some(least) =
            self.policy.min_producers.filter(|least| !(1..=producers).contains(least))
        {
            return Err(BuildError::MinProducers { least, producers }.into());
        }
        let Backoff { first, most } = self.policy.backoff;
        if first > most {
            return Err(BuildError::Backoff { first, most }.into());
        }
        match self.limits.zero() {
            Some(limit) => Err(BuildError::ZeroTimeout { limit }.into()),
            None => Ok(()),
        }
    }

    /// Checks that these values are allowed.
    pub(super) fn check_lifespan(&self) -> Result<(), Error> {
        match self.recycle_after {
            Some(0) => Err(BuildError::RecycleAfter {}.into()),
            _ => Ok(()),
        }
    }

    /// Checks the rule of batches against the runner and the window.
    pub(super) fn check_batch(&self) -> Result<(), BuildError> {
        if self.batch.is_some_and(|batch| batch.most() == 0) {
            return Err(BuildError::Batch {});
        }
        if self.batch.is_some() && self.runner.batch_hook() == BatchHook::Missing {
            return Err(BuildError::SingleItems {});
        }
        let waits = self.batch.and_then(|batch| Some((batch.wait()?, batch.chosen_latency()?)));
        if let Some((wait, latency)) = waits.filter(|(wait, latency)| wait >= latency) {
            return Err(BuildError::Latency { latency, wait });
        }
        let given = self.batch.filter(|batch| !batch.is_chosen());
        let least = given.map_or(1, |batch| batch.most());
        match self.window.filter(|&window| window < least) {
            Some(window) => Err(BuildError::Window { window, least }),
            None => Ok(()),
        }
    }
}
