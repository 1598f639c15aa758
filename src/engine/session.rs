//! The session of a run, from the joining of its producers to its end, and the lineup of runs before they begin.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

use super::link::{LinkKind, Relayed, Work};
use crate::base::Order;
use crate::concurrency::cancel::{CancelWatch, Interrupt, SeenRequests};
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::spawn::spawn;
use crate::error::{Error, Result};
use crate::observe::observing::Observing;
use crate::producers::deadline_thread::DeadlineThread;
use crate::producers::participants::{Participants, ResultReceiver};
use crate::run::Run;
use crate::run::handover::shared_budget::{Bounded, share_budget};
use crate::run::journal_writer::JournalWriter;
use crate::run::run_shape::RunKind;

/// The name of the consumer's thread, and of each thread between two stages.
pub(super) const NAME: &str = "gangline-c";

/// A run in which producers take part.
pub(super) struct Session<I, T> {
    pub(super) run: Arc<Run<I, T>>,
    pub(super) participants: Arc<Participants>,
    /// Locked only by the thread that ends the session.
    pub(super) deadline_thread: Mutex<Option<DeadlineThread>>,
    pub(super) observing: Option<Observing>,
    /// `None` before the run is registered with its token.
    pub(super) watch: Option<CancelWatch>,
    /// The runs of all stages. `None` before the run is registered with its token.
    pub(super) all: Option<Arc<dyn Interrupt>>,
}

/// The remains of a session that is over.
pub(super) struct Over<I, T> {
    pub(super) run: Arc<Run<I, T>>,
    pub(super) observing: Option<Observing>,
    pub(super) seen: Option<SeenRequests>,
}

impl<I, T> Session<I, T> {
    pub(super) fn new(run: Arc<Run<I, T>>) -> Self {
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

/// The runs of a line and the links between them, in the order of the stages.
#[derive(Default)]
pub(crate) struct Lineup {
    /// Wakes the driver of all runs.
    pub(super) driver: Arc<DriverBell>,
    /// What the next stage gets.
    next: Inflow,
    /// What the stage behind the open expansion gets.
    gathered: Option<Inflow>,
    /// The configurations of the stages after the first.
    pub(super) later_cfgs: Vec<Value>,
    /// The journal of the first stage, which the last one writes.
    pub(super) journal: Option<Arc<JournalWriter>>,
    runs: Vec<Arc<dyn Interrupt>>,
    /// Whether one of them passes items on in another order.
    is_reordered: bool,
    bounded: Vec<Arc<dyn Bounded>>,
    pub(super) links: Vec<LinkThread>,
}

/// What a stage gets.
#[derive(Debug, Clone, Copy, Default)]
struct Inflow {
    /// The number of items, if it is known.
    items: Option<u64>,
    /// Whether they have names or journal keys.
    has_names: bool,
}

/// The place of a stage in its line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinePlace {
    /// Another stage follows.
    Before,
    Last(RunKind),
}

/// The runs of all stages, which any of their tokens ends.
pub(crate) struct AllRuns(Vec<Arc<dyn Interrupt>>);

/// A link that is not started yet.
pub(super) struct LinkThread {
    work: Work,
    stack_size: Option<usize>,
}

impl Lineup {
    /// For `items` items, if their number is known.
    pub(super) fn new(items: Option<u64>, later_cfgs: Vec<Value>) -> Self {
        Lineup { next: Inflow { items, has_names: false }, later_cfgs, ..Lineup::default() }
    }

    /// The number of items that the next stage gets, if it is known.
    pub(super) fn items(&self) -> Option<u64> {
        self.next.items
    }

    /// Whether the items that the next stage gets have names or journal keys.
    pub(super) fn has_names(&self) -> bool {
        self.next.has_names
    }

    /// Adds the run of the next stage.
    pub(super) fn add<I: Send + 'static, T: Send + 'static>(&mut self, run: &Arc<Run<I, T>>) {
        // A journal recognises items by the input of the first stage.
        self.next.has_names |= self.runs.is_empty() && self.journal.is_some();
        self.next.has_names |= run.run_settings.has_names();
        self.is_reordered |= run.order() == Order::Completion;
        self.runs.push(run.clone());
        self.bounded.push(run.clone());
    }

    /// The number of the next stage, from 0, and whether a stage before it passes items on in another order.
    pub(super) fn next_place(&self) -> (usize, bool) {
        (self.runs.len(), self.is_reordered)
    }

    /// The number of the stage that was added last, from 0.
    pub(super) fn last_stage(&self) -> usize {
        self.runs.len() - 1
    }

    /// Passes a link. Parts are of unknown number and have no names; behind them, parents go on as before.
    pub(super) fn cross(&mut self, kind: LinkKind) {
        match kind {
            LinkKind::Direct => {}
            LinkKind::Expands => self.gathered = Some(std::mem::take(&mut self.next)),
            LinkKind::Gathers => {
                self.next = self.gathered.take().expect("parts are gathered behind an expansion");
            }
        }
    }

    /// The runs of all stages, with their memory bounded.
    pub(super) fn all(&mut self) -> Arc<AllRuns> {
        share_budget(&self.bounded);
        Arc::new(AllRuns(std::mem::take(&mut self.runs)))
    }
}

impl LinkThread {
    /// A link behind the session with these participants. It takes part in it, since it calls functions of the user.
    pub(super) fn new(
        kind: LinkKind,
        work: Work,
        participants: &Arc<Participants>,
        stack_size: Option<usize>,
    ) -> Self {
        let receiving = participants.receive(ResultReceiver::Link);
        let work = Box::new(move || {
            let _receiving = receiving;
            Relayed { kind, ..work() }
        });
        LinkThread { work, stack_size }
    }

    pub(super) fn start(self) -> Result<JoinHandle<Relayed>, Error> {
        Ok(spawn(NAME.to_owned(), self.stack_size, self.work)?)
    }
}

impl Interrupt for AllRuns {
    /// In reverse: to a stage whose input ended before its own cancel, the run would look complete.
    fn cancel(&self) {
        self.0.iter().rev().for_each(|run| run.cancel());
    }

    /// The items in flight pass through the later stages, which read no input.
    fn drain(&self) {
        if let Some((first, later)) = self.0.split_first() {
            first.drain();
            later.iter().for_each(|run| run.end_backoff());
        }
    }

    /// Whether all are. The first may be aborted by an error that waits for its turn in a later stage.
    fn is_aborted(&self) -> bool {
        self.0.iter().all(|run| run.is_aborted())
    }
}
