//! Ends a run when a thread leaves it, above all if that thread dies of a bug of ours.

use crate::run::Run;

/// Aborts a run when dropped, so that all parties leave even if this thread dies of a bug of ours. They would wait
/// for what it was to deliver.
pub(crate) struct AbortGuard<'a, I, T>(&'a Run<I, T>);

impl<'a, I, T> AbortGuard<'a, I, T> {
    pub(crate) fn new(run: &'a Run<I, T>) -> Self {
        AbortGuard(run)
    }

    /// Lets the run go on without this thread.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<I, T> Drop for AbortGuard<'_, I, T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
