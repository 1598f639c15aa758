//! A pipeline: one run through several engines.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::pipeline_totals::{self, PipelineRun, SkippedInStage, StageEngine};
use super::run_session::Session;
use super::session::Engine;
use crate::backend::threads::journal_writer::JournalWriter;
use crate::backend::threads::producers::cancelled_or;
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::{Rebuilt, RunKind};
use crate::backend::threads::taken::Taken;
use crate::base::Order;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::spawn;
use crate::engine::consume::{AbortAtEnd, Consumer, NAME};
use crate::engine::consuming::Consumed;
use crate::engine::feed::Source;
use crate::engine::link::{NextItem, Relayed, StageLink};
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

/// A link that is not started yet.
pub(super) struct Between {
    work: Box<dyn FnOnce() -> Relayed + Send>,
    stack_size: Option<usize>,
}

/// All participants of a run, in the order of the stages.
#[derive(Default)]
pub(super) struct Lineup<'a> {
    /// The number of items of the next stage, if it is known.
    pub(super) items: Option<u64>,
    /// The configurations of the stages after the first.
    later_cfgs: Vec<Value>,
    /// The journal of the first stage, which the last one writes.
    journal: Option<Arc<JournalWriter>>,
    /// Whether the next stage gets items with names or journal keys.
    has_names: bool,
    stages: Vec<Box<dyn Enlisted + 'a>>,
    runs: Vec<Arc<dyn Interrupt>>,
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
    fn join(&mut self) -> Result<(), Error>;

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

    /// Drains the first stage only: the items in flight pass through all others.
    fn drain(&self) {
        if let Some(first) = self.0.first() {
            first.drain();
        }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Stages<'h, R, S> {
    pub(crate) fn new(first: &'h mut Engine<R>, last: &'h mut Engine<S>) -> Self
    where
        S: Runner<Input = R::Output>,
    {
        Stages { before: Box::new(first), last, last_run: PipelineRun::default() }
    }

    pub(crate) fn then<T>(self, next: &'h mut Engine<T>) -> Stages<'h, R, T>
    where
        T: Runner<Input = S::Output> + 'static,
    {
        Stages { before: Box::new(self), last: next, last_run: PipelineRun::default() }
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
        let run = self.last.new_run(lineup.items, RunKind::Stream, Some(upstream), recording)?;
        lineup.relays.push(join(run.clone()));
        let consumer = self.last.consumer(run.clone());
        let stack_size = self.last.settings().stack_size;
        lineup.add(self.last, run.clone());

        let Watched { mut stages, relays, .. } = lineup.watch()?;
        let flowed = begin(&first, &run, &mut stages)
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
        let accounts = accounts(given, &relayed, taken);
        let mut left = stages.len();
        for (stage, account) in stages.into_iter().zip(&accounts) {
            left -= 1;
            let pipeline = pipeline_totals::whole(&accounts).filter(|_| left == 0);
            stage.settle(*account, pipeline, result.as_ref().err());
        }
        self.last_run = PipelineRun::new(accounts, &failures);
        self.last.keep(failures);
        Ok(result)
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

    pub(super) fn engines_mut(&mut self) -> Vec<&mut dyn StageEngine> {
        let mut engines = Vec::new();
        self.before.list_mut(&mut engines);
        engines.push(&mut *self.last);
        engines
    }
}

impl<R, S> Before<R, S> for &mut Engine<R>
where
    R: Runner + 'static,
    S: Runner<Input = R::Output> + 'static,
{
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

    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Front<R, S>, Error> {
        lineup.journal = self.open_journal(std::mem::take(&mut lineup.later_cfgs))?;
        let recording = Recording { plans: lineup.journal.clone(), ..Recording::default() };
        let run = self.new_run(lineup.items, RunKind::Stream, None, recording)?;
        let join = joint(self, run.clone());
        lineup.add(self, run.clone());
        Ok(Front { first: run.clone(), upstream: run, join })
    }
}

impl<R, S, T> Before<R, T> for Stages<'_, R, S>
where
    R: Runner + 'static,
    S: Runner + 'static,
    T: Runner<Input = S::Output> + 'static,
{
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

    fn enlist<'a>(&'a mut self, lineup: &mut Lineup<'a>) -> Result<Front<R, T>, Error> {
        let Front { first, upstream, join } = self.before.enlist(lineup)?;
        let recording = lineup.recording();
        let run = self.last.new_run(lineup.items, RunKind::Stream, Some(upstream), recording)?;
        lineup.relays.push(join(run.clone()));
        let join = joint(self.last, run.clone());
        lineup.add(self.last, run.clone());
        Ok(Front { first, upstream: run, join })
    }
}

/// Returns the function that links a run of `engine` to one of the next stage.
fn joint<R, S>(engine: &Engine<R>, run: Arc<Run<R>>) -> Box<dyn FnOnce(Arc<Run<S>>) -> Between>
where
    R: Runner + 'static,
    S: Runner<Input = R::Output> + 'static,
{
    let (order, stack_size) = (engine.settings().order, engine.settings().stack_size);
    let window = engine.window();
    Box::new(move |to| {
        let relay = StageLink::new(run, order, window, to);
        Between { work: Box::new(move || relay.run()), stack_size }
    })
}

impl Between {
    pub(super) fn start(self) -> Result<JoinHandle<Relayed>, Error> {
        Ok(spawn(NAME.to_owned(), self.stack_size, self.work)?)
    }
}

impl<'a> Lineup<'a> {
    /// For `items` items, if their number is known.
    pub(super) fn new(items: Option<u64>, later_cfgs: Vec<Value>) -> Self {
        Lineup { items, later_cfgs, ..Lineup::default() }
    }

    /// How a later stage names items. A journal recognises them by the input of the first stage.
    pub(super) fn recording(&self) -> Recording {
        let inherits_names = self.has_names || self.journal.is_some();
        Recording { inherits_names, ..Recording::default() }
    }

    pub(super) fn add<R: Runner + 'static>(&mut self, engine: &'a mut Engine<R>, run: Arc<Run<R>>) {
        self.has_names |= run.run_settings.has_names();
        self.runs.push(run.clone());
        self.stages.push(Box::new(Waiting { engine, run }));
    }

    /// Makes every token end all stages. A token used before does so at once.
    pub(super) fn watch(self) -> Result<Watched<'a>, Error> {
        let all = Arc::new(AllRuns(self.runs));
        let stages = self.stages.into_iter().map(|stage| stage.watch(&all));
        let stages = stages.collect::<Result<_, Error>>()?;
        Ok(Watched { stages, relays: self.relays, all })
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
    fn join(&mut self) -> Result<(), Error> {
        self.engine.join(&self.session, Rebuilt::Before)
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
        self.engine.lent = Some(self.session);
    }
}

/// Makes all producers of all stages take part. After a request made before the run, none is needed and no
/// state is rebuilt.
pub(super) fn begin<R: Runner, S: Runner>(
    first: &Run<R>,
    last: &Run<S>,
    stages: &mut [Box<dyn Stage + '_>],
) -> Result<(), Error> {
    let joined = match first.handover.is_halted() {
        true => Ok(()),
        false => stages.iter_mut().try_for_each(|stage| stage.join()),
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

fn or_resume<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// The accounts of all stages. `given` is the input of the first, and `taken` the results of the last. Of
/// several failures, only the one that ended the run counts, in its own stage. Later stages received it as
/// passed on; other failures before it had no effect.
pub(super) fn accounts(given: NextItem, relayed: &[Relayed], taken: Taken) -> Vec<Account> {
    let given = [given].into_iter().chain(relayed.iter().map(|relayed| relayed.given));
    let taken = relayed.iter().map(|relayed| relayed.taken).chain([taken]);
    let stages: Vec<_> = given.zip(taken).collect();
    let mut stands = true;
    let account = |&(given, taken): &(NextItem, Taken)| {
        let failure = taken.failure.filter(|_| stands);
        let own = failure.filter(|failure| given.passed_on != Some(failure.seq));
        stands = failure.is_some() && own.is_none();
        let failed = taken.skipped + own.map_or(0, |failure| failure.items);
        Account::new(given.items, taken.ok, failed, taken.already_done, given.unread)
    };
    let mut accounts: Vec<_> = stages.iter().rev().map(account).collect();
    accounts.reverse();
    accounts
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::backend::threads::taken::Failure;

    fn given(items: u64, passed_on: Option<u64>) -> NextItem {
        NextItem { items, unread: None, passed_on }
    }

    fn taken(ok: u64, failure: Option<(u64, u64)>) -> Taken {
        let failure = failure.map(|(seq, items)| Failure { seq, items });
        Taken { ok, failure, ..Taken::default() }
    }

    /// For each stage: ok, failed, cancelled.
    fn counts(first: NextItem, relayed: &[Relayed], last: Taken) -> Vec<(u64, u64, u64)> {
        let accounts = accounts(first, relayed, last);
        accounts.iter().map(|account| (account.ok, account.failed, account.cancelled)).collect()
    }

    #[test]
    fn all_that_was_given_was_taken() {
        let relayed = [Relayed { taken: taken(5, None), given: given(5, None) }; 2];
        let counts = counts(given(5, None), &relayed, taken(5, None));
        assert_eq!(counts, [(5, 0, 0); 3]);
    }

    /// A batch of three items fails in the first stage.
    #[test]
    fn a_failure_counts_in_its_own_stage() {
        let relayed = [
            Relayed { taken: taken(4, Some((4, 3))), given: given(4, Some(4)) },
            Relayed { taken: taken(4, Some((4, 1))), given: given(4, Some(4)) },
        ];
        let counts = counts(given(9, None), &relayed, taken(4, Some((4, 1))));
        assert_eq!(counts, [(4, 3, 2), (4, 0, 0), (4, 0, 0)]);
    }

    #[test]
    fn a_failure_that_another_came_before_is_of_no_effect() {
        let relayed = [
            Relayed { taken: taken(6, Some((6, 1))), given: given(6, Some(6)) },
            Relayed { taken: taken(2, Some((2, 1))), given: given(2, Some(2)) },
        ];
        let counts = counts(given(8, None), &relayed, taken(2, Some((2, 1))));
        assert_eq!(counts, [(6, 0, 2), (2, 1, 3), (2, 0, 0)]);
    }

    #[test]
    fn a_run_that_was_stopped_has_no_failure() {
        let relayed = [Relayed { taken: taken(6, Some((6, 1))), given: given(6, Some(6)) }];
        let counts = counts(given(8, None), &relayed, taken(3, None));
        assert_eq!(counts, [(6, 0, 2), (3, 0, 3)]);
    }
}
