//! A run that producers take part in, from their joining to its end.

use std::sync::{Arc, Mutex, PoisonError};

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::cancel::{CancelWatch, Interrupt, SeenRequests};
use crate::observe::account::Account;
use crate::observe::observing::Observing;
use crate::producers::deadline_thread::DeadlineThread;
use crate::producers::participants::Participants;
use crate::run::Run;
use crate::run::taken::Taken;

/// A run in which producers take part.
pub(super) struct Session<I, T> {
    pub(super) run: Arc<Run<I, T>>,
    pub(super) participants: Arc<Participants>,
    /// Locked only by the thread that ends the session.
    pub(super) deadline_thread: Mutex<Option<DeadlineThread>>,
    pub(super) observing: Option<Observing>,
    /// `None` before the run is registered with its token.
    pub(super) watch: Option<CancelWatch>,
    /// Of the line, if this is its only stage.
    pub(super) counts: Arc<LiveCounts>,
    /// The runs of all stages. `None` for a service.
    pub(super) all: Option<Arc<dyn Interrupt>>,
}

/// The counts of a run in progress, which stay readable if the caller leaks its handle. A driver writes them.
#[derive(Debug, Default)]
pub(super) struct LiveCounts {
    pulled: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
    already_done: AtomicU64,
}

/// The remains of a session that is over.
pub(super) struct Over<I, T> {
    pub(super) run: Arc<Run<I, T>>,
    pub(super) observing: Option<Observing>,
    pub(super) seen: Option<SeenRequests>,
}

impl LiveCounts {
    pub(super) fn set(&self, pulled: u64, taken: Taken) {
        self.pulled.store(pulled, Ordering::Relaxed);
        self.ok.store(taken.ok, Ordering::Relaxed);
        self.failed.store(taken.failed(), Ordering::Relaxed);
        self.already_done.store(taken.already_done, Ordering::Relaxed);
    }

    /// The account so far, if `unread` items were left at the start.
    pub(super) fn account(&self, unread: Option<u64>) -> Account {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (ok, failed, done) = (get(&self.ok), get(&self.failed), get(&self.already_done));
        let pulled = get(&self.pulled).max(ok + failed + done);
        let unread = unread.map(|all| all.saturating_sub(pulled));
        Account::new(pulled, ok, failed, done, unread)
    }
}

impl<I, T> Session<I, T> {
    pub(super) fn new(run: Arc<Run<I, T>>) -> Self {
        let participants = Participants::new(run.handover.lanes(), run.driver().clone());
        let deadline_thread = Mutex::new(None);
        let counts = Arc::default();
        Session {
            run,
            participants,
            deadline_thread,
            observing: None,
            watch: None,
            counts,
            all: None,
        }
    }

    /// Aborts the run. If it was leaked or given up, that ends all stages, with a reason for the links and the consumer,
    /// which take an abort without one for a bug.
    pub(super) fn abort(&self) {
        match &self.all {
            Some(all) if !self.is_aborted() => all.cancel(),
            _ => self.run.abort(),
        }
    }

    /// Whether all stages are aborted.
    fn is_aborted(&self) -> bool {
        match &self.all {
            Some(all) => all.is_aborted(),
            None => self.run.handover.is_aborted(),
        }
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

    pub(super) fn over(self) -> Over<I, T> {
        let seen = self.watch.map(CancelWatch::spend);
        Over { run: self.run, observing: self.observing, seen }
    }
}
