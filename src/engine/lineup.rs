//! The participants of a run of a pipeline.

use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;

use super::consume::NAME;
use super::joint::Work;
use super::link::{LinkKind, Relayed};
use super::run_session::Session;
use super::session::Engine;
use crate::backend::threads::handover::ceiling::{Ceiling, Weighed};
use crate::backend::threads::journal_writer::JournalWriter;
use crate::backend::threads::participants::{Participants, ResultReceiver};
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::Rebuilt;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::spawn;
use crate::error::{Error, Result};
use crate::observe::account::Account;
use crate::runner::Runner;

/// A link that is not started yet.
pub(super) struct Between {
    pub(super) work: Work,
    pub(super) stack_size: Option<usize>,
}

/// What a stage gets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inflow {
    /// The number of items, if it is known.
    pub(super) items: Option<u64>,
    /// Whether they have names or journal keys.
    pub(super) has_names: bool,
}

/// All participants of a run, in the order of the stages.
#[derive(Default)]
pub(crate) struct Lineup<'a> {
    /// What the next stage gets.
    pub(super) next: Inflow,
    /// What the stages behind the open expansions get, the outermost first.
    outer: Vec<Inflow>,
    /// The configurations of the stages after the first.
    pub(super) later_cfgs: Vec<Value>,
    /// The journal of the first stage, which the last one writes.
    pub(super) journal: Option<Arc<JournalWriter>>,
    pub(super) stages: Vec<Box<dyn Enlisted + 'a>>,
    runs: Vec<Arc<dyn Interrupt>>,
    /// The limit for the weights of all stages.
    most_weight: Option<u64>,
    weighed: Vec<Arc<dyn Weighed>>,
    pub(super) relays: Vec<Between>,
}

/// A stage with a run that no producer takes part in yet.
pub(super) trait Enlisted {
    /// Makes its token end all stages.
    fn watch<'a>(self: Box<Self>, all: &Arc<AllRuns>) -> Result<Box<dyn Stage + 'a>, Error>
    where
        Self: 'a;
}

/// A stage of a run in progress.
pub(super) trait Stage {
    /// Makes its producers take part.
    fn join(&mut self, rebuilt: Rebuilt) -> Result<(), Error>;

    fn participants(&self) -> &Arc<Participants>;

    /// Waits until the producers have left, and drops what is left.
    fn wind_up(&self);

    fn settle(self: Box<Self>, account: Account, pipeline: Option<Account>, error: Option<&Error>);

    /// Leaves the session to the engine.
    fn lend(self: Box<Self>);
}

/// The runs of all stages, which any of their tokens ends.
pub(super) struct AllRuns(Vec<Arc<dyn Interrupt>>);

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
}

impl Between {
    /// Takes part in the session of the stage before it, since it calls functions of the user.
    fn receiving(self, participants: &Arc<Participants>) -> Self {
        let (receiving, work) = (participants.receive(ResultReceiver::Link), self.work);
        let work = Box::new(move || {
            let _receiving = receiving;
            work()
        });
        Between { work, ..self }
    }

    pub(super) fn start(self) -> Result<JoinHandle<Relayed>, Error> {
        Ok(spawn(NAME.to_owned(), self.stack_size, self.work)?)
    }
}

impl<'a> Lineup<'a> {
    /// For `items` items, if their number is known.
    pub(super) fn new(items: Option<u64>, later_cfgs: Vec<Value>) -> Self {
        Lineup { next: Inflow { items, has_names: false }, later_cfgs, ..Lineup::default() }
    }

    /// How a later stage names items.
    pub(super) fn recording(&self) -> Recording {
        Recording { inherits_names: self.next.has_names, ..Recording::default() }
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

    pub(super) fn add<R: Runner + 'static>(&mut self, engine: &'a mut Engine<R>, run: Arc<Run<R>>) {
        self.next.has_names |= run.run_settings.has_names();
        self.runs.push(run.clone());
        self.weighed.push(run.clone());
        self.stages.push(Box::new(Waiting { engine, run }));
    }

    /// Limits the weights of all stages together, if there is a limit.
    pub(super) fn limit(&mut self, most_weight: Option<u64>) {
        self.most_weight = most_weight.into_iter().chain(self.most_weight).min();
    }

    /// Makes every token end all stages. A token used before does so at once.
    pub(super) fn watch(self) -> Result<Watched<'a>, Error> {
        if let Some(most) = self.most_weight {
            let ceiling = Arc::new(Ceiling::new(most));
            ceiling.is_for(self.weighed.iter().map(Arc::downgrade).collect());
            self.weighed.iter().for_each(|run| run.share(ceiling.clone()));
        }
        let all = Arc::new(AllRuns(self.runs));
        let stages = self.stages.into_iter().map(|stage| stage.watch(&all));
        let stages = stages.collect::<Result<Vec<_>, Error>>()?;
        let relays = self.relays.into_iter().zip(&stages);
        let relays = relays.map(|(relay, stage)| relay.receiving(stage.participants())).collect();
        Ok(Watched { stages, relays, all })
    }
}

/// The stages, and the links between them.
pub(super) struct Watched<'a> {
    pub(super) stages: Vec<Box<dyn Stage + 'a>>,
    pub(super) relays: Vec<Between>,
    pub(super) all: Arc<AllRuns>,
}

struct Waiting<'e, R: Runner> {
    engine: &'e mut Engine<R>,
    run: Arc<Run<R>>,
}

impl<R: Runner + 'static> Enlisted for Waiting<'_, R> {
    fn watch<'a>(self: Box<Self>, all: &Arc<AllRuns>) -> Result<Box<dyn Stage + 'a>, Error>
    where
        Self: 'a,
    {
        let Waiting { engine, run } = *self;
        let session = engine.watch(run, all)?;
        Ok(Box::new(Working { engine, session, all: all.clone() }))
    }
}

struct Working<'e, R: Runner> {
    engine: &'e mut Engine<R>,
    session: Session<R>,
    /// Keeps the runs registered with the token.
    all: Arc<AllRuns>,
}

impl<R: Runner + 'static> Stage for Working<'_, R> {
    fn join(&mut self, rebuilt: Rebuilt) -> Result<(), Error> {
        self.engine.join(&self.session, rebuilt)
    }

    fn participants(&self) -> &Arc<Participants> {
        &self.session.participants
    }

    fn wind_up(&self) {
        self.session.wind_up();
    }

    fn settle(self: Box<Self>, account: Account, pipeline: Option<Account>, error: Option<&Error>) {
        let Working { engine, session, all } = *self;
        engine.settle(session, account, pipeline, error);
        drop(all);
    }

    fn lend(self: Box<Self>) {
        let Working { engine, session, all } = *self;
        engine.lent = Some(Session { all: Some(all), ..session });
    }
}
