//! A line of stages: one engine, or several that feed each other.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gangline_report::{Account, RunReport};

use super::consume::SkippedItem;
use super::link::{Earlier, FeedCounts, Joint, Prepared, Relayed};
use super::pool::Engine;
use super::session::{LinePlace, Lineup, LinkThread};
use super::stage::{RunOf, StageEngine, StageTypes};
use super::totals::{Accounts, LineRun, SkippedInStage, accounts};
use crate::base::Order;
use crate::error::{Error, Result};
use crate::producers::cancelled_or;
use crate::producers::participants::Participants;
use crate::run::run_shape::{Rebuilt, RunKind};
use crate::run::taken::Taken;

/// A line of stages, from one with the types `F` to one with the types `L`. The types in between are erased.
///
/// Each stage is linked to the next where both types are known, so passing an item on needs no dynamic dispatch.
pub(crate) trait Line<F: StageTypes, L: StageTypes>: Send + Sync {
    fn engines(&self) -> Vec<&dyn StageEngine>;

    fn engines_mut(&mut self) -> Vec<&mut dyn StageEngine>;

    fn last(&self) -> &Engine<L::Input, L::Output>;

    fn last_mut(&mut self) -> &mut Engine<L::Input, L::Output>;

    /// Creates a run of each stage.
    fn enlist(&mut self, lineup: &mut Lineup, place: LinePlace) -> Result<Reached<F, L>, Error>;

    /// What the line keeps of its last run, beside what its engines do.
    fn last_run(&self) -> &LineRun;

    fn keep(&mut self, run: LineRun);
}

/// A line of one stage.
pub(crate) struct Single<'h, I, T> {
    engine: LineEngine<'h, I, T>,
    last_run: LineRun,
}

/// A line with another stage behind it.
struct Linked<'h, F: StageTypes, P: StageTypes, L: StageTypes, J> {
    before: Box<dyn Line<F, P> + 'h>,
    joint: J,
    last: Single<'h, L::Input, L::Output>,
}

/// The engine of a stage: the line's own, or lent to it.
enum LineEngine<'h, I, T> {
    Own(Box<Engine<I, T>>),
    Lent(&'h mut Engine<I, T>),
}

/// The runs of the first and of the last stage that were created.
pub(crate) struct Reached<F: StageTypes, L: StageTypes> {
    pub(super) first: Arc<RunOf<F>>,
    last: Earlier<L::Input, L::Output>,
    participants: Arc<Participants>,
    producers: usize,
    stack_size: Option<usize>,
}

/// A run that has begun: all producers take part, and all links work. The sessions are kept by the engines.
pub(super) struct Begun<F: StageTypes, L: StageTypes> {
    pub(super) first: Arc<RunOf<F>>,
    pub(super) last: Arc<RunOf<L>>,
    pub(super) links: Vec<JoinHandle<Relayed>>,
}

/// Links `last` behind these stages.
pub(crate) fn linked<'h, F, P, I, T>(
    before: Box<dyn Line<F, P> + 'h>,
    joint: impl Joint<P::Input, P::Output, I, T> + 'h,
    last: Single<'h, I, T>,
) -> Box<dyn Line<F, fn(I) -> T> + 'h>
where
    F: StageTypes + 'static,
    P: StageTypes + 'static,
    I: Send + 'static,
    T: Send + 'static,
{
    Box::new(Linked { before, joint, last })
}

impl<I, T> Single<'_, I, T> {
    pub(crate) fn new(engine: Engine<I, T>) -> Self {
        Single::holding(LineEngine::Own(Box::new(engine)))
    }

    /// Lends the stage to a line that is dropped before this one is used again.
    pub(crate) fn lend(&mut self) -> Single<'_, I, T> {
        Single::holding(LineEngine::Lent(self))
    }

    fn holding(engine: LineEngine<'_, I, T>) -> Single<'_, I, T> {
        Single { engine, last_run: LineRun::default() }
    }

    /// `None` if the engine is lent.
    pub(crate) fn into_engine(self) -> Option<Engine<I, T>> {
        match self.engine {
            LineEngine::Own(engine) => Some(*engine),
            LineEngine::Lent(_) => None,
        }
    }
}

impl<I, T> Deref for Single<'_, I, T> {
    type Target = Engine<I, T>;

    fn deref(&self) -> &Engine<I, T> {
        match &self.engine {
            LineEngine::Own(engine) => engine,
            LineEngine::Lent(engine) => engine,
        }
    }
}

impl<I, T> DerefMut for Single<'_, I, T> {
    fn deref_mut(&mut self) -> &mut Engine<I, T> {
        match &mut self.engine {
            LineEngine::Own(engine) => engine,
            LineEngine::Lent(engine) => engine,
        }
    }
}

impl<I, T> Line<fn(I) -> T, fn(I) -> T> for Single<'_, I, T>
where
    I: Send + 'static,
    T: Send + 'static,
{
    fn engines(&self) -> Vec<&dyn StageEngine> {
        vec![&**self]
    }

    fn engines_mut(&mut self) -> Vec<&mut dyn StageEngine> {
        vec![&mut **self]
    }

    fn last(&self) -> &Engine<I, T> {
        self
    }

    fn last_mut(&mut self) -> &mut Engine<I, T> {
        self
    }

    fn enlist(
        &mut self,
        lineup: &mut Lineup,
        place: LinePlace,
    ) -> Result<Reached<fn(I) -> T, fn(I) -> T>, Error> {
        let run = Engine::enlist(self, lineup, None, place)?;
        Ok(Reached::new(run.clone(), self, run, lineup))
    }

    fn last_run(&self) -> &LineRun {
        &self.last_run
    }

    fn keep(&mut self, run: LineRun) {
        self.last_run = run;
    }
}

impl<F, P, L, J> Line<F, L> for Linked<'_, F, P, L, J>
where
    F: StageTypes + 'static,
    P: StageTypes + 'static,
    L: StageTypes + 'static,
    J: Joint<P::Input, P::Output, L::Input, L::Output>,
{
    fn engines(&self) -> Vec<&dyn StageEngine> {
        let mut engines = self.before.engines();
        engines.push(&*self.last);
        engines
    }

    fn engines_mut(&mut self) -> Vec<&mut dyn StageEngine> {
        let mut engines = self.before.engines_mut();
        engines.push(&mut *self.last);
        engines
    }

    fn last(&self) -> &Engine<L::Input, L::Output> {
        &self.last
    }

    fn last_mut(&mut self) -> &mut Engine<L::Input, L::Output> {
        &mut self.last
    }

    fn enlist(&mut self, lineup: &mut Lineup, place: LinePlace) -> Result<Reached<F, L>, Error> {
        let Reached { first, last, participants, producers, stack_size } =
            self.before.enlist(lineup, LinePlace::Before)?;
        let Prepared { upstream, join } = self.joint.prepare(last, producers);
        let kind = self.joint.kind();
        lineup.cross(kind);
        let run = Engine::enlist(&mut self.last, lineup, Some(upstream), place)?;
        let link = LinkThread::new(kind, join(run.clone()), &participants, stack_size);
        lineup.links.push(link);
        Ok(Reached::new(first, &self.last, run, lineup))
    }

    fn last_run(&self) -> &LineRun {
        &self.last.last_run
    }

    fn keep(&mut self, run: LineRun) {
        self.last.last_run = run;
    }
}

impl<F: StageTypes, L: StageTypes + 'static> Reached<F, L> {
    fn new(
        first: Arc<RunOf<F>>,
        engine: &Engine<L::Input, L::Output>,
        run: Arc<RunOf<L>>,
        lineup: &Lineup,
    ) -> Self {
        let session = engine.session.as_ref().expect("its run was just created");
        let participants = session.participants.clone();
        let settings = engine.settings();
        let (order, window, stage) = (settings.order, engine.window(), lineup.last_stage());
        let last = Earlier { run, order, window, stage };
        let (producers, stack_size) = (settings.devices.len(), settings.stack_size);
        Reached { first, last, participants, producers, stack_size }
    }
}

impl<F: StageTypes + 'static, L: StageTypes + 'static> dyn Line<F, L> + '_ {
    /// Begins a run with `unread` inputs, if their number is known. `check` says whether it may begin.
    pub(super) fn begin(
        &mut self,
        unread: Option<u64>,
        (kind, rebuilt): (RunKind, Rebuilt),
        check: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> Result<Begun<F, L>, Error> {
        for (stage, engine) in self.engines_mut().into_iter().enumerate() {
            engine.reset(unread.filter(|_| stage == 0));
        }
        self.keep(LineRun::new(Account::new(0, 0, 0, 0, unread), &[]));
        match self.line_up(unread, kind, check) {
            Ok((first, last, links)) => {
                let mut begun = Begun { first, last, links: Vec::new() };
                match self.join(&mut begun, links, rebuilt) {
                    Ok(()) => Ok(begun),
                    Err(error) => Err(self.end_unused(begun, unread, error)),
                }
            }
            Err(error) => {
                for engine in self.engines_mut() {
                    engine.refuse(&error);
                }
                Err(error)
            }
        }
    }

    /// Creates the runs, and registers them with the tokens.
    #[expect(clippy::type_complexity, reason = "it is taken apart by its one caller")]
    fn line_up(
        &mut self,
        unread: Option<u64>,
        kind: RunKind,
        check: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> Result<(Arc<RunOf<F>>, Arc<RunOf<L>>, Vec<LinkThread>), Error> {
        let engines = self.engines();
        let mut cfgs = engines.iter().map(|stage| stage.check()).collect::<Result<Vec<_>, _>>()?;
        engines.iter().skip(1).try_for_each(|stage| stage.check_no_journal())?;
        check(self)?;
        cfgs.remove(0);
        let mut lineup = Lineup::new(unread, cfgs);
        let Reached { first, last, .. } = self.enlist(&mut lineup, LinePlace::Last(kind))?;
        let all = lineup.all();
        self.engines_mut().into_iter().try_for_each(|engine| engine.watch(&all))?;
        Ok((first, last.run, lineup.links))
    }

    /// Makes all producers of all stages take part, and starts the links. After a request made before the run, no
    /// producer is needed and no state is rebuilt.
    fn join(
        &mut self,
        begun: &mut Begun<F, L>,
        links: Vec<LinkThread>,
        rebuilt: Rebuilt,
    ) -> Result<(), Error> {
        let joined = match begun.first.handover.is_halted() {
            true => Ok(()),
            false => self.engines_mut().into_iter().try_for_each(|engine| engine.join(rebuilt)),
        };
        cancelled_or(begun.last.is_cancelled(), joined)?;
        links.into_iter().try_for_each(|link| link.start().map(|link| begun.links.push(link)))
    }

    /// Ends a run that could not begin to the full. Returns the error.
    pub(super) fn end_unused(
        &mut self,
        begun: Begun<F, L>,
        unread: Option<u64>,
        error: Error,
    ) -> Error {
        begun.last.abort();
        let relayed = join_links(begun.links);
        let given = FeedCounts { unread, ..FeedCounts::default() };
        self.settle(given, relayed, (Taken::default(), vec![]), Some(&error));
        error
    }

    /// Ends the sessions, after the links have ended, and takes over their remains.
    pub(super) fn settle(
        &mut self,
        given: FeedCounts,
        mut relayed: Vec<Relayed>,
        (taken, failures): (Taken, Vec<SkippedItem>),
        error: Option<&Error>,
    ) {
        let mut engines = self.engines_mut();
        engines.iter().for_each(|engine| engine.end_run());
        // Links that could not be started have passed nothing on.
        let last = engines.len() - 1;
        relayed.resize_with(last, Relayed::default);
        let Accounts { whole, stages: accounts } = accounts(given, &relayed, taken);
        for (stage, (engine, account)) in engines.iter_mut().zip(&accounts).enumerate() {
            let pipeline = Some(whole).filter(|_| stage == last && last > 0);
            engine.settle(*account, pipeline, error);
        }
        self.keep(LineRun::new(whole, &failures));
        self.last_mut().keep(failures);
    }

    /// Ends all stages, with a reason for the links and the consumer.
    #[cfg(feature = "futures")]
    pub(super) fn cancel(&self) {
        self.last().session.iter().for_each(|session| session.abort());
    }

    /// Leaves the sessions of a run that was cancelled to the next use of the pools.
    #[cfg(feature = "futures")]
    pub(super) fn give_up(&mut self, account: Account) {
        self.engines().iter().for_each(|engine| engine.discard());
        if self.engines().len() == 1 {
            self.last_mut().account = account;
        }
        self.keep(LineRun::new(account, &[]));
    }

    /// Ends the runs in progress, which earlier tasks have given up.
    #[cfg(feature = "futures")]
    pub(super) fn poll_idle(&mut self, waker: &std::task::Waker) -> std::task::Poll<()> {
        for engine in self.engines_mut() {
            std::task::ready!(engine.poll_idle(waker));
        }
        std::task::Poll::Ready(())
    }

    /// Aborts all runs. Returns whether no thread takes part in them.
    #[cfg(feature = "futures")]
    pub(super) fn has_ended(&self) -> bool {
        self.engines().iter().filter(|engine| !engine.has_ended()).count() == 0
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

    /// The account of the last run of all stages.
    pub(crate) fn account(&self) -> Account {
        self.last_run().account()
    }

    /// The report of the last run of all stages.
    pub(crate) fn report(&self) -> RunReport {
        self.last_run().report(&self.engines())
    }

    /// The items that the last run skipped: the first of them.
    pub(crate) fn failures(&self) -> Vec<SkippedInStage<'_>> {
        let orders: Vec<Order> = self.engines().iter().map(|stage| stage.order()).collect();
        self.last_run().failures(self.last().failures(), &orders)
    }

    /// The names of the stages, of those that have one.
    pub(crate) fn names(&self) -> Vec<Option<&str>> {
        self.engines().into_iter().map(StageEngine::name).collect()
    }

    /// Ends the producers of all stages. Returns the first error.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let closed: Vec<_> = self.engines_mut().into_iter().map(StageEngine::close).collect();
        closed.into_iter().collect()
    }
}

/// Waits for the links. A bug of ours must not be hidden: it ends the later stages in the same way, so the first panic
/// says most.
pub(super) fn join_links(links: Vec<JoinHandle<Relayed>>) -> Vec<Relayed> {
    let joined: Vec<_> = links.into_iter().map(JoinHandle::join).collect();
    joined.into_iter().map(or_resume).collect()
}

fn or_resume<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}
