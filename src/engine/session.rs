//! A run that producers take part in, from their joining to its end.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::threads::deadline_thread::DeadlineThread;
use crate::backend::threads::handover::WakeReason;
use crate::backend::threads::participants::Participants;
use crate::backend::threads::run::Run;
use crate::concurrency::cancel::{CancelWatch, Interrupt, SeenRequests};
use crate::observe::observing::Observing;
use crate::runner::Runner;

/// A run in which producers take part.
pub(super) struct Session<R: Runner> {
    pub(super) run: Arc<Run<R>>,
    pub(super) participants: Arc<Participants>,
    /// Locked only by the thread that ends the session.
    pub(super) deadline_thread: Mutex<Option<DeadlineThread>>,
    pub(super) observing: Option<Observing>,
    /// `None` before the run is registered with its token.
    pub(super) watch: Option<CancelWatch>,
    /// The runs of all stages. `None` for a service.
    pub(super) all: Option<Arc<dyn Interrupt>>,
}

/// The remains of a session that is over.
pub(super) struct Over<R: Runner> {
    pub(super) run: Arc<Run<R>>,
    pub(super) observing: Option<Observing>,
    pub(super) seen: Option<SeenRequests>,
}

impl<R: Runner> Session<R> {
    pub(super) fn new(run: Arc<Run<R>>) -> Self {
        let participants = Participants::new(run.handover.lanes(), run.driver().clone());
        let deadline_thread = Mutex::new(None);
        Session { run, participants, deadline_thread, observing: None, watch: None, all: None }
    }

    /// Aborts the run. If it was leaked or given up, that ends all stages, with a reason for the links and the consumer,
    /// which take an abort without one for a bug.
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
    pub(super) fn end(&self) {
        self.abort();
        self.participants.end(|producer| self.run.handover.dispatch.is_detached(producer));
        self.discard();
    }

    /// Aborts the run. Returns whether no thread takes part in it any more. Those that do ring the driver's bell when
    /// they leave.
    #[cfg(feature = "futures")]
    pub(super) fn has_ended(&self) -> bool {
        // Not again: it rings the bell.
        if !self.is_aborted() {
            self.abort();
        }
        self.participants.have_ended(|producer| self.run.handover.dispatch.is_detached(producer))
    }

    /// Aborts the run and drops what is left, without waiting for hooks.
    pub(super) fn discard(&self) {
        self.abort();
        drop(self.deadline_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.run.discard();
    }

    pub(super) fn over(self) -> Over<R> {
        let seen = self.watch.map(CancelWatch::spend);
        Over { run: self.run, observing: self.observing, seen }
    }
}
