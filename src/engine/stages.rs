//! A pipeline: one run through several engines.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::pipeline_totals::{self, Accounts, PipelineRun, SkippedInStage, StageEngine, accounts};
use super::session::Engine;
use crate::backend::threads::producers::cancelled_or;
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::{Rebuilt, RunKind};
use crate::backend::threads::taken::Taken;
use crate::base::Order;
use crate::engine::consume::{AbortAtEnd, Consumer};
use crate::engine::consuming::Consumed;
use crate::engine::feed::Source;
use crate::engine::joint::{Joint, Prepared};
use crate::engine::lineup::{Between, Lineup, Stage, Watched};
use crate::engine::link::{Earlier, NextItem, Relayed};
use crate::error::{Error, Result};
use crate::observe::account::Account;
use crate::observe::report::RunReport;
use crate::runner::{RunControl, Runner};

/// The engines of a pipeline, from that of `R` to that of `S`.
///
/// The types in between are erased. Each stage is linked to the next where both types are known, so passing
/// an item on needs no dynamic dispatch.
pub(crate) struct Stages<'h, R: Runner, S: Runner> {
    pub(super) before: Box<dyn Before<R, S> + 'h>,
    pub(super) last: &'h mut Engine<S>,
    pub(super) last_run: PipelineRun,
    /// The limit for the weights of these stages.
    pub(super) most_weight: Option<u64>,
}

/// The stages before that of `S`, starting with that of `R`.
pub(super) trait Before<R: Runner, S: Runner>: Send + Sync {
    /// Adds the engines of these stages, in their order.
    fn list<'a>(&'a self, engines: &mut Vec<&'a dyn StageEngine>);

    fn list_mut<'a>(&'a mut self, engines: &mut Vec<&'a mut dyn StageEngine>);

    /// Resets each engine for a run with `unread` inputs.
    fn reset(&mut self, unread: Option<u64>);

    /// Reports that the run ended with this error before any producer took part.
    fn refuse(&self, error: &Error);

    /// Creates a run of each stage.
    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Front<R, S>, Error>;
}

/// What the stage of `S` needs from the stages before it.
pub(super) struct Front<R: Runner, S: Runner> {
    pub(super) first: Arc<Run<R>>,
    pub(super) upstream: Arc<dyn RunControl>,
    /// Creates the link between them.
    pub(super) join: Box<dyn FnOnce(Arc<Run<S>>) -> Between>,
}

/// The stages from that of `R` to that of `S`, that one included.
pub(crate) trait UpTo<R: Runner, S: Runner>: Send + Sync {
    /// Adds the engines of these stages, in their order.
    fn list<'a>(&'a self, engines: &mut Vec<&'a dyn StageEngine>);

    fn list_mut<'a>(&'a mut self, engines: &mut Vec<&'a mut dyn StageEngine>);

    /// Resets each engine for a run with `unread` inputs.
    fn reset(&mut self, unread: Option<u64>);

    /// Reports that the run ended with this error before any producer took part.
    fn refuse(&self, error: &Error);

    /// Creates a run of each stage.
    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Reached<R, S>, Error>;
}

/// The runs of the first and of the last stage enlisted.
pub(crate) struct Reached<R: Runner, S: Runner> {
    pub(super) first: Arc<Run<R>>,
    pub(super) last: Earlier<S>,
    producers: usize,
    stack_size: Option<usize>,
}

/// Stages, and the link behind them.
struct Linked<'h, R: Runner, S: Runner, J> {
    stages: Box<dyn UpTo<R, S> + 'h>,
    joint: J,
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Stages<'h, R, S> {
    /// Links `last` behind these stages.
    pub(crate) fn linked<Q: Runner + 'static>(
        stages: Box<dyn UpTo<R, Q> + 'h>,
        joint: impl Joint<Q, S> + 'h,
        last: &'h mut Engine<S>,
    ) -> Self {
        let before = Box::new(Linked { stages, joint });
        Stages { before, last, last_run: PipelineRun::default(), most_weight: None }
    }

    /// Limits the weights of these stages together.
    pub(crate) fn limit(&mut self, most_weight: u64) {
        self.most_weight = Some(most_weight);
    }

    /// Feeds all of `source` to the first stage, and consumes the results of the last. `next` is the function
    /// that `source` was created with.
    pub(crate) fn run<I>(
        &mut self,
        source: Source<I, R::Input>,
        next: impl Fn(&mut I) -> Option<Result<R::Input>>,
    ) -> Result<S::Summary, Error> {
        self.before.reset(source.unread());
        self.last.reset(None);
        self.last_run = PipelineRun::idle(source.unread());
        self.try_run(source, next).unwrap_or_else(|error| {
            self.before.refuse(&error);
            Engine::refuse(self.last, &error);
            Err(error)
        })
    }

    /// Returns the result of the run. The outer error means that the run did not start.
    fn try_run<I>(
        &mut self,
        mut source: Source<I, R::Input>,
        next: impl Fn(&mut I) -> Option<Result<R::Input>>,
    ) -> Result<Result<S::Summary, Error>, Error> {
        let later_cfgs = pipeline_totals::check(&self.engines())?;
        let mut lineup = Lineup::new(source.unread(), later_cfgs);
        let Front { first, upstream, join } = self.before.enlist(&mut lineup)?;
        let recording = Recording { records: lineup.journal.clone(), ..lineup.recording() };
        let run =
            self.last.new_run(lineup.next.items, RunKind::Stream, Some(upstream), recording)?;
        lineup.relays.push(join(run.clone()));
        let consumer = self.last.consumer(run.clone());
        let stack_size = self.last.settings().stack_size;
        lineup.add(self.last, run.clone());
        lineup.limit(self.most_weight);

        let Watched { mut stages, relays, .. } = lineup.watch()?;
        let flowed = begin(&first, &run, &mut stages, Rebuilt::Before)
            .and_then(|()| flow(&run, relays, consumer, stack_size, || source.feed(&first, next)));
        run.abort();
        stages.iter().for_each(|stage| stage.wind_up());
        let given = NextItem { items: source.pulled(), unread: source.unread(), passed_on: None };
        let (result, relayed, taken, failures) = match flowed {
            Ok((Consumed { result, taken, failures }, relayed)) => {
                (result, relayed, taken, failures)
            }
            Err(error) => {
                (Err(error), vec![Relayed::default(); stages.len() - 1], Taken::default(), vec![])
            }
        };
        let Accounts { whole, stages: accounts } = accounts(given, &relayed, taken);
        let mut left = stages.len();
        for (stage, account) in stages.into_iter().zip(accounts) {
            left -= 1;
            let pipeline = Some(whole).filter(|_| left == 0);
            stage.settle(account, pipeline, result.as_ref().err());
        }
        self.last_run = PipelineRun::new(whole, &failures);
        self.last.keep(failures);
        Ok(result)
    }
}

impl<R: Runner, S: Runner> Stages<'_, R, S> {
    /// The number of stages.
    pub(crate) fn stages(&self) -> usize {
        let mut engines = Vec::new();
        self.before.list(&mut engines);
        engines.len() + 1
    }
}

impl<R: Runner + 'static, S: Runner + 'static> Stages<'_, R, S> {
    /// The account of the last run of all stages.
    pub(crate) fn account(&self) -> Account {
        self.last_run.account()
    }

    /// The report of the last run of all stages.
    pub(crate) fn report(&self) -> RunReport {
        self.last_run.report(&self.engines())
    }

    /// The items that the last run skipped: the first of them.
    pub(crate) fn failures(&self) -> Vec<SkippedInStage<'_>> {
        let orders: Vec<Order> = self.engines().iter().map(|stage| stage.order()).collect();
        self.last_run.failures(self.last.failures(), &orders)
    }

    /// The names of the stages that have one.
    pub(crate) fn names(&self) -> Vec<Option<&str>> {
        self.engines().into_iter().map(StageEngine::name).collect()
    }

    pub(super) fn engines(&self) -> Vec<&dyn StageEngine> {
        let mut engines = Vec::new();
        self.before.list(&mut engines);
        engines.push(&*self.last);
        engines
    }

    /// Fails in a process that was forked after the producers were started.
    pub(super) fn check_home(&self) -> Result<(), Error> {
        self.engines().iter().try_for_each(|engine| engine.check_home())
    }

    /// Leaves the run in progress to the parent, in a forked process. Returns whether this is one.
    pub(super) fn leave_run_to_parent(&mut self) -> bool {
        let is_in_fork = self.check_home().is_err();
        if is_in_fork {
            self.engines_mut().iter_mut().for_each(|engine| engine.leave_run_to_parent());
        }
        is_in_fork
    }

    pub(super) fn engines_mut(&mut self) -> Vec<&mut dyn StageEngine> {
        let mut engines = Vec::new();
        self.before.list_mut(&mut engines);
        engines.push(&mut *self.last);
        engines
    }
}

impl<R: Runner + 'static> UpTo<R, R> for &mut Engine<R> {
    fn list<'a>(&'a self, engines: &mut Vec<&'a dyn StageEngine>) {
        engines.push(&**self);
    }

    fn list_mut<'a>(&'a mut self, engines: &mut Vec<&'a mut dyn StageEngine>) {
        engines.push(&mut **self);
    }

    fn reset(&mut self, unread: Option<u64>) {
        Engine::reset(self, unread);
    }

    fn refuse(&self, error: &Error) {
        Engine::refuse(self, error);
    }

    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Reached<R, R>, Error> {
        lineup.journal = self.open_journal(std::mem::take(&mut lineup.later_cfgs))?;
        // A journal recognises items by the input of the first stage.
        lineup.next.has_names = lineup.journal.is_some();
        let recording = Recording { plans: lineup.journal.clone(), ..Recording::default() };
        let run = self.new_run(lineup.next.items, RunKind::Stream, None, recording)?;
        let reached = Reached::new(run.clone(), self, run.clone(), lineup.stages.len());
        lineup.add(self, run);
        Ok(reached)
    }
}

impl<R: Runner + 'static, S: Runner + 'static> UpTo<R, S> for Stages<'_, R, S> {
    fn list<'a>(&'a self, engines: &mut Vec<&'a dyn StageEngine>) {
        engines.extend(self.engines());
    }

    fn list_mut<'a>(&'a mut self, engines: &mut Vec<&'a mut dyn StageEngine>) {
        engines.extend(self.engines_mut());
    }

    fn reset(&mut self, unread: Option<u64>) {
        self.before.reset(unread);
        self.last.reset(None);
    }

    fn refuse(&self, error: &Error) {
        self.before.refuse(error);
        Engine::refuse(self.last, error);
    }

    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Reached<R, S>, Error> {
        let Front { first, upstream, join } = self.before.enlist(lineup)?;
        let recording = lineup.recording();
        let run =
            self.last.new_run(lineup.next.items, RunKind::Stream, Some(upstream), recording)?;
        lineup.relays.push(join(run.clone()));
        let reached = Reached::new(first, self.last, run.clone(), lineup.stages.len());
        lineup.add(self.last, run);
        lineup.limit(self.most_weight);
        Ok(reached)
    }
}

impl<R, S, T, J> Before<R, T> for Linked<'_, R, S, J>
where
    R: Runner,
    S: Runner,
    T: Runner + 'static,
    J: Joint<S, T>,
{
    fn list<'a>(&'a self, engines: &mut Vec<&'a dyn StageEngine>) {
        self.stages.list(engines);
    }

    fn list_mut<'a>(&'a mut self, engines: &mut Vec<&'a mut dyn StageEngine>) {
        self.stages.list_mut(engines);
    }

    fn reset(&mut self, unread: Option<u64>) {
        self.stages.reset(unread);
    }

    fn refuse(&self, error: &Error) {
        self.stages.refuse(error);
    }

    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Front<R, T>, Error> {
        let Reached { first, last, producers, stack_size } = self.stages.enlist(lineup)?;
        let Prepared { upstream, join } = self.joint.prepare(last, producers);
        let kind = self.joint.kind();
        lineup.cross(kind);
        let join = Box::new(move |to| {
            let work = join(to);
            Between { work: Box::new(move || Relayed { kind, ..work() }), stack_size }
        });
        Ok(Front { first, upstream, join })
    }
}

impl<R: Runner, S: Runner + 'static> Reached<R, S> {
    fn new(first: Arc<Run<R>>, engine: &Engine<S>, run: Arc<Run<S>>, stage: usize) -> Self {
        let settings = engine.settings();
        let last = Earlier { run, order: settings.order, window: engine.window(), stage };
        let (producers, stack_size) = (settings.devices.len(), settings.stack_size);
        Reached { first, last, producers, stack_size }
    }
}

/// Makes all producers of all stages take part. After a request made before the run, none is needed and no
/// state is rebuilt.
pub(super) fn begin<R: Runner, S: Runner>(
    first: &Run<R>,
    last: &Run<S>,
    stages: &mut [Box<dyn Stage + '_>],
    rebuilt: Rebuilt,
) -> Result<(), Error> {
    let joined = match first.handover.is_halted() {
        true => Ok(()),
        false => stages.iter_mut().try_for_each(|stage| stage.join(rebuilt)),
    };
    match last.is_cancelled() {
        true => cancelled_or(true, joined),
        false => joined,
    }
}

/// Runs the links and the consumer on their threads, while `feed` runs on this one.
fn flow<S: Runner + 'static>(
    last: &Run<S>,
    relays: Vec<Between>,
    consumer: Consumer<S>,
    stack_size: Option<usize>,
    feed: impl FnOnce(),
) -> Result<(Consumed<S::Summary>, Vec<Relayed>), Error> {
    // Also if a thread cannot be started: the started ones wait for the others.
    let over = AbortAtEnd(last);
    let mut threads = Vec::with_capacity(relays.len());
    let consumed = relays
        .into_iter()
        .try_for_each(|relay| relay.start().map(|thread| threads.push(thread)))
        .and_then(|()| consumer.start(stack_size))
        .map(|consuming| {
            if consuming.has_started() {
                feed();
            }
            consuming.join().map(|consumed| consumed.unwrap_or_else(|| Consumed::abandoned(last)))
        });
    drop(over);
    // A bug of ours must not be hidden. It ends the later stages in the same way, so the first panic says
    // most.
    let relayed: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    let relayed = relayed.into_iter().map(or_resume).collect();
    Ok((or_resume(consumed?), relayed))
}

pub(super) fn or_resume<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}
