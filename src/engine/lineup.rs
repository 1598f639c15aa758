//! What a run of a line is made of, before it begins.

use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;

use super::consume::NAME;
use super::link::{LinkKind, Relayed, Work};
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::spawn::spawn;
use crate::error::{Error, Result};
use crate::producers::participants::{Participants, ResultReceiver};
use crate::run::Run;
use crate::run::handover::shared_budget::{Bounded, share_budget};
use crate::run::journal_writer::JournalWriter;
use crate::run::run_shape::RunKind;

/// The runs of a line and the links between them, in the order of the stages.
#[derive(Default)]
pub(crate) struct Lineup {
    /// Wakes the driver of all runs.
    pub(super) driver: Arc<DriverBell>,
    /// What the next stage gets.
    next: Inflow,
    /// What the stages behind the open expansions get, the outermost first.
    outer: Vec<Inflow>,
    /// The configurations of the stages after the first.
    pub(super) later_cfgs: Vec<Value>,
    /// The journal of the first stage, which the last one writes.
    pub(super) journal: Option<Arc<JournalWriter>>,
    runs: Vec<Arc<dyn Interrupt>>,
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
        self.runs.push(run.clone());
        self.bounded.push(run.clone());
    }

    /// The number of the stage that was added last, from 0.
    pub(super) fn last_stage(&self) -> usize {
        self.runs.len() - 1
    }

    /// Passes a link. Parts are of unknown number and have no names; behind them, parents go on as before.
    pub(super) fn cross(&mut self, kind: LinkKind) {
        match kind {
            LinkKind::Direct => {}
            LinkKind::Expands => self.outer.push(std::mem::take(&mut self.next)),
            LinkKind::Gathers => {
                self.next = self.outer.pop().expect("parts are gathered behind an expansion");
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
