//! A run that producers take part in, from their joining to its end.

use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "futures")]
use std::task::Waker;

use crate::backend::threads::deadline_thread::DeadlineThread;
use crate::backend::threads::handover::WakeReason;
use crate::backend::threads::participants::Participants;
use crate::backend::threads::run::Run;
use crate::concurrency::cancel::{CancelWatch, Interrupt, SeenRequests};
use crate::engine::consuming::SkippedItem;
use crate::observe::account::Account;
use crate::observe::observing::Observing;
use crate::runner::Runner;

/// A run in which producers take part.
pub(super) struct Session<R: Runner> {
    pub(super) run: Arc<Run<R>>,
    pub(super) participants: Arc<Participants>,
    /// Locked only by the thread that ends the session.
    pub(super) deadline_thread: Mutex<Option<DeadlineThread>>,
    pub(super) observing: Option<Observing>,
    pub(super) watch: CancelWatch,
    /// All stages of the pipeline that this is lent for.
    pub(super) all: Option<Arc<dyn Interrupt>>,
}

/// The remains of a session that is over.
pub(super) struct Over<R: Runner> {
    pub(super) run: Arc<Run<R>>,
    pub(super) observing: Option<Observing>,
    pub(super) seen: SeenRequests,
}

/// The remains of a stream that its caller has left.
pub(super) struct Left<R: Runner> {
    pub(super) session: Session<R>,
    pub(super) account: Account,
    /// The errors of skipped items that the caller has not seen.
    pub(super) failures: Vec<SkippedItem>,
}

impl<R: Runner> Session<R> {
    pub(super) fn end(self) -> Over<R> {
        self.wind_up();
        self.over()
    }

    /// Aborts the run. Where a pipeline was leaked or given up, that ends all stages, with a reason for the links
    /// and the consumer, which take an abort without one for a bug.
    pub(super) fn abort(&self) {
        match &self.all {
            Some(all) if !self.is_aborted() => all.cancel(),
            _ => self.run.abort(),
        }
    }

    fn is_aborted(&self) -> bool {
        self.run.handover.wake_reason() == WakeReason::Aborted
    }

    /// Aborts the run, waits until no thread takes part, and drops what is left.
    pub(super) fn wind_up(&self) {
        self.abort();
        self.participants.end(|producer| self.run.handover.dispatch.is_detached(producer));
        self.stop_deadline_thread();
        self.run.discard();
    }

    /// Aborts the run. Returns whether no producer takes part in it any more; if some do, keeps `waker` until they
    /// have left.
    #[cfg(feature = "futures")]
    pub(super) fn have_left(&self, waker: &Waker) -> bool {
        // Not again: it wakes the task.
        if !self.is_aborted() {
            self.abort();
        }
        let is_detached = |producer| self.run.handover.dispatch.is_detached(producer);
        self.participants.have_ended(is_detached, waker)
    }

    /// Stops the deadline thread, after the last wait for a hook.
    fn stop_deadline_thread(&self) {
        drop(self.deadline_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(super) fn discard(self) -> Over<R> {
        self.abort();
        self.stop_deadline_thread();
        self.run.discard();
        self.over()
    }

    pub(super) fn over(self) -> Over<R> {
        Over { run: self.run, observing: self.observing, seen: self.watch.spend() }
    }
}
