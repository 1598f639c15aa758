//! Ends a run when a thread leaves it, above all if that thread dies of a bug of ours.

use crate::run::Run;
use crate::runner::Runner;

/// Aborts a run when dropped, so that all parties leave even if this thread dies of a bug of ours. They would wait
/// for what it was to deliver.
pub(crate) struct AbortGuard<'a, R: Runner>(&'a Run<R>);

impl<'a, R: Runner> AbortGuard<'a, R> {
    pub(crate) fn new(run: &'a Run<R>) -> Self {
        AbortGuard(run)
    }

    /// Lets the run go on without this thread.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<R: Runner> Drop for AbortGuard<'_, R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
