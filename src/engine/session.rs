//! The engine of one pool: its producers, and the run or stream in progress.

use std::mem::{forget, take};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::in_progress::InProgress;
use super::run_journal;
use super::run_session::{Left, Over, Session};
use super::settings::Settings;
use crate::backend::threads::deadline_thread::DeadlineThread;
use crate::backend::threads::journal_writer::JournalWriter;
use crate::backend::threads::lost_producer::LostProducers;
use crate::backend::threads::participants::Participants;
use crate::backend::threads::producer_factory::ProducerFactory;
use crate::backend::threads::producers::{Building, Producers, cancelled_or};
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_settings::RunSettings;
use crate::backend::threads::run_shape::{CarriedOver, Rebuilt, RunKind, Shape};
use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::cfg::CfgNode;
use crate::concurrency::cancel::{Interrupt, SeenRequests};
use crate::concurrency::home_process::HomeProcess;
use crate::engine::consume::Consumer;
use crate::engine::consuming::Consumed;
use crate::engine::feed::Source;
use crate::error::{Error, Result};
use crate::observe::account::Account;
use crate::observe::event::Event;
use crate::observe::event_log::{Detail, EventLog, ObserveOptions};
use crate::observe::observing::{Observers, Observing};
use crate::runner::{RunControl, Runner};
use crate::scheduler::window::Window;

/// The engine of one pool.
pub(crate) struct Engine<R: Runner> {
    /// `None` only while the engine is dropped.
    factory: Option<ProducerFactory<R>>,
    /// The number of items that producers could have when the run began, if each can have several.
    capacity: usize,
    pub(super) cfg: Arc<CfgNode>,
    pub(super) settings: Settings,
    pub(super) run_settings: Arc<RunSettings<R::Input>>,
    /// The requests of the token that this pool has spent.
    seen: SeenRequests,
    /// The process in which the producers were started.
    home: HomeProcess,
    /// `None` while closed.
    pub(super) producers: Option<Producers<R>>,
    /// The stream in progress. It is stored here and not in the caller's `Outputs` or future, so that a leaked
    /// one can still be ended.
    pub(super) in_progress: Option<InProgress<R>>,
    /// The session of a pipeline's outputs in progress that this is a stage of. Kept here for the same reason.
    pub(super) lent: Option<Session<R>>,
    pub(super) account: Account,
    /// The account of the pipeline that the last run was the last stage of.
    pub(super) pipeline: Option<Account>,
    /// The errors of items skipped in the last run: the first of them.
    pub(super) failures: Vec<Error>,
    /// The producers that no longer take part in runs, with the reasons.
    pub(super) gone: LostProducers,
    /// The producers that the last run abandoned, and that had not returned when it ended.
    pub(super) abandoned: LostProducers,
    /// Never locked, since access is always `&mut`. The mutex makes the pool `Sync` although observers are
    /// not.
    observers: Mutex<Observers>,
    pub(super) told: ObserveOptions,
    /// The events of the last run.
    pub(super) event_log: Arc<EventLog>,
}

impl<R: Runner + 'static> Engine<R> {
    pub(crate) fn new(
        factory: ProducerFactory<R>,
        cfg: CfgNode,
        settings: Settings,
        run_settings: RunSettings<R::Input>,
        told: ObserveOptions,
        observers: Mutex<Observers>,
    ) -> Result<Self, Error> {
        settings.devices.check()?;
        for fallback in settings.devices.fallbacks() {
            tracing::warn!("{fallback}");
        }
        let event_log = Arc::new(EventLog::new(0, told.description.clone(), Detail::Run));
        let seen = settings.token.seen();
        let mut engine = Engine {
            factory: Some(factory),
            capacity: 0,
            cfg: Arc::new(cfg),
            settings,
            run_settings: Arc::new(run_settings),
            seen,
            home: HomeProcess::here(),
            producers: None,
            in_progress: None,
            lent: None,
            account: Account::default(),
            pipeline: None,
            failures: vec![],
            gone: LostProducers::default(),
            abandoned: LostProducers::default(),
            observers,
            told,
            event_log,
        };
        engine.activate()?;
        Ok(engine)
    }

    pub(crate) fn activate(&mut self) -> Result<(), Error> {
        if self.producers.is_some() {
            return Ok(());
        }
        let building = Arc::new(Building::new());
        let token = self.settings.token.clone();
        let watch = token.watch_from_now(&building);
        let started = self.settings.lock_gpus(self.seen, &building).and_then(|gpus| {
            let places = self.settings.devices.len();
            let least = self.run_settings.policy.min_producers.unwrap_or(places);
            let (limit, settings) =
                (self.run_settings.startup_limit(), self.settings.threads(&self.cfg, gpus));
            Producers::start(self.factory(), settings, places, &building, least, limit)
        });
        match started {
            Ok(producers) => {
                self.gone.clear();
                self.abandoned.clear();
                self.gone.extend(producers.losses());
                (self.home, self.producers) = (HomeProcess::here(), Some(producers));
                Ok(())
            }
            Err(error) => {
                if error.is_cancelled() {
                    self.seen = watch.spend_cancels(self.seen);
                }
                Err(error)
            }
        }
    }

    /// Feeds, works on and consumes all of `source`. `next` is the function that `source` was created with.
    pub(crate) fn run<I>(
        &mut self,
        mut source: Source<I, R::Input>,
        next: impl Fn(&mut I) -> Option<Result<R::Input>>,
    ) -> Result<R::Summary, Error> {
        self.reset(source.unread());
        let journal = self.open_journal(vec![]).inspect_err(|error| self.refuse(error))?;
        let session = self.begin(Recording::whole(journal))?;
        let run = &session.run;
        let consumed = if run.is_cancelled() {
            Ok(Consumed::failed(Error::Cancelled {}))
        } else {
            self.feed_and_consume(run, &mut source, next)
        };
        let over = session.end();
        let Consumed { result, taken, failures } = consumed.unwrap_or_else(Consumed::failed);
        self.keep(failures);
        self.account = Account::new(
            source.pulled(),
            taken.ok,
            taken.failed(),
            taken.already_done,
            source.unread(),
        );
        self.part(over, result.as_ref().err());
        result
    }

    fn feed_and_consume<I>(
        &self,
        run: &Arc<Run<R>>,
        source: &mut Source<I, R::Input>,
        next: impl Fn(&mut I) -> Option<Result<R::Input>>,
    ) -> Result<Consumed<R::Summary>, Error> {
        let consuming = self.consumer(run.clone()).start(self.settings.stack_size)?;
        if consuming.has_started() {
            source.feed(run, next);
        }
        match consuming.join() {
            Ok(consumed) => Ok(consumed.unwrap_or_else(|| Consumed::abandoned(run))),
            // Hooks are caught, so this is a bug of ours, which must not be hidden.
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Creates the consumer of a run.
    pub(super) fn consumer(&self, run: Arc<Run<R>>) -> Consumer<R> {
        let (runner, cfg) = (self.factory().shared_runner(), self.cfg.clone());
        Consumer::new(runner, cfg, run, self.settings.order, self.window())
    }

    /// Opens the journal for a run, if there is one. A closed pool does not open it. In a pipeline,
    /// `later_stages` are the configurations of the stages after this one.
    pub(super) fn open_journal(
        &self,
        later_stages: Vec<Value>,
    ) -> Result<Option<Arc<JournalWriter>>, Error> {
        self.check_home()?;
        match self.is_active() {
            true => run_journal::open(&self.run_settings, &self.cfg, later_stages),
            false => Ok(None),
        }
    }

    /// Fails if there is a journal: an output handed to the caller is never known to be consumed.
    pub(super) fn check_no_journal(&self) -> Result<(), Error> {
        match self.run_settings.journal {
            Some(_) => Err(Error::JournalUnsupported {}),
            None => Ok(()),
        }
    }

    /// Begins a run, in which every live producer takes part with a state.
    pub(super) fn begin(&mut self, recording: Recording) -> Result<Session<R>, Error> {
        let session =
            self.enter(RunKind::Stream, recording).inspect_err(|error| self.refuse(error))?;
        let run = session.run.clone();
        // A request made before the run ends it at its start. No producer is needed then, and no state is
        // rebuilt.
        if run.handover.is_halted() {
            return Ok(session);
        }
        match self.join(&session, Rebuilt::Before) {
            Ok(()) => Ok(session),
            Err(error) => {
                let failed = cancelled_or(run.is_cancelled(), Err(error));
                let over = session.end();
                self.part(over, failed.as_ref().err());
                failed
            }
        }
    }

    pub(super) fn enter(
        &mut self,
        kind: RunKind,
        recording: Recording,
    ) -> Result<Session<R>, Error> {
        let run = self.new_run(self.account.unread, kind, None, recording)?;
        self.watch(run.clone(), &run)
    }

    /// Creates a run of `items` items, if their number is known, without producers.
    pub(super) fn new_run(
        &mut self,
        items: Option<u64>,
        kind: RunKind,
        upstream: Option<Arc<dyn RunControl>>,
        recording: Recording,
    ) -> Result<Arc<Run<R>>, Error> {
        self.check_home()?;
        if self.producers.as_ref().ok_or(Error::Closed {})?.is_own_thread() {
            return Err(Error::OwnThread {});
        }
        let (gone, abandoned) = (&mut self.gone, &mut self.abandoned);
        let producers = self.producers.as_ref().ok_or(Error::Closed {})?;
        let replaced = producers.replace_all(gone, abandoned);
        let (lost, away) = (gone.places(), producers.away(gone, abandoned));
        let here = producers.len() - self.gone.all().len() - away.len();
        let least = self.run_settings.policy.min_producers.unwrap_or(1);
        if here < least {
            return Err(Error::TooFewProducers { here, least, source: None });
        }
        let Settings { order, batching, .. } = self.settings;
        let order = if kind == RunKind::Service { Order::Completion } else { order };
        self.capacity = self.factory().capacity().unwrap_or(0);
        let (window, run_settings) = (self.window().size(), self.run_settings.clone());
        let starting = (0..producers.len()).filter(|&it| producers.is_starting(it)).collect();
        let earlier = CarriedOver { learned: producers.learned(), lost, away, starting };
        let spares = producers.spares();
        let (producers, description) = (producers.len(), self.told.description.clone());
        let event_log = Arc::new(EventLog::new(producers, description, self.told.detail));
        event_log.has_settings(self.told.settings.clone());
        self.event_log = event_log.clone();
        self.report_start(&event_log, items);
        let shape = Shape { order, producers, spares, window, batching, kind };
        let run = Run::new(shape, run_settings, earlier, upstream, event_log, recording);
        for producer in replaced {
            run.handover.stats.producer_replaced(producer);
            run.event_log.tell(Event::ProducerReplaced { producer });
        }
        Ok(Arc::new(run))
    }

    /// Registers `target` with the token; it is `run` or contains it.
    pub(super) fn watch(
        &mut self,
        run: Arc<Run<R>>,
        target: &Arc<impl Interrupt + 'static>,
    ) -> Result<Session<R>, Error> {
        let observers =
            self.observers.get_mut().expect("it is never locked, so it is not poisoned");
        let observing = Observing::start(&run.event_log, take(observers))?;
        let watch = self.settings.token.watch(self.seen, target);
        let participants = Participants::new(run.handover.lanes());
        Ok(Session {
            run,
            participants,
            deadline_thread: Mutex::new(None),
            observing,
            watch,
            all: None,
        })
    }

    /// Makes every producer take part, once it has a state.
    pub(super) fn join(&self, session: &Session<R>, rebuilt: Rebuilt) -> Result<(), Error> {
        let producers = self.producers.as_ref().expect("a run is made only with producers");
        let Session { run, participants, deadline_thread, .. } = session;
        if let Some(tick) = self.run_settings.limits.tick() {
            let devices = self.settings.devices.clone();
            let (run, participants) = (run.clone(), participants.clone());
            let replace = producers.replacer();
            let keeper = DeadlineThread::start(run, participants, devices, tick, replace)?;
            *deadline_thread.lock().expect("nothing panics under this lock") = Some(keeper);
        }
        producers.join(run, participants, rebuilt, |producer| self.gone.has(producer))?;
        // The run may have timed out before it began.
        run.take_fatal_error().map_or(Ok(()), Err)
    }

    pub(super) fn window(&self) -> Window {
        let Settings { window, batching, devices, .. } = &self.settings;
        Window::new(*window, self.capacity.max(devices.len()), *batching)
    }
}

impl<R: Runner> Engine<R> {
    /// Whether a stream has begun and not ended.
    pub(crate) fn is_streaming(&self) -> bool {
        self.in_progress.is_some()
    }

    pub(crate) fn runner(&self) -> &R {
        self.factory().runner()
    }

    pub(super) fn factory(&self) -> &ProducerFactory<R> {
        self.factory.as_ref().expect("it is there until the engine is dropped")
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn is_active(&self) -> bool {
        self.producers.is_some()
    }

    /// Resets everything that belongs to the last run.
    pub(super) fn reset(&mut self, unread: Option<u64>) {
        self.end_stream();
        (self.account, self.pipeline) = (Account::new(0, 0, 0, 0, unread), None);
        self.event_log = Arc::new(EventLog::new(0, self.told.description.clone(), Detail::Run));
        take(&mut self.failures).into_iter().for_each(drop_quietly);
    }

    /// Ends the run of a session, and records its account and the requests that it has spent. `pipeline` is
    /// the account of all stages, if this is the last.
    pub(super) fn settle(
        &mut self,
        session: Session<R>,
        account: Account,
        pipeline: Option<Account>,
        error: Option<&Error>,
    ) {
        (self.account, self.pipeline) = (account, pipeline);
        self.part(session.over(), error);
    }

    /// Takes over the remains of a session, which ended with `error`, if any. The account is already set.
    pub(super) fn part(&mut self, over: Over<R>, error: Option<&Error>) {
        let Over { run, observing, seen } = over;
        self.seen = seen;
        self.take_leave(&run.unreplaced());
        if let Some(producers) = &mut self.producers {
            producers.learn(run.handover.dispatch.learned());
        }
        // Closed explicitly, since an abandoned producer may still hold a reference to the run.
        run.recording.close();
        let totals = Arc::new(self.totals(&run, error));
        run.event_log.tell(Event::RunEnded { totals });
        if let Some(observing) = observing {
            let observers = self.observers.get_mut();
            *observers.expect("it is never locked, so it is not poisoned") = observing.join();
        }
    }

    pub(crate) fn set_cfg(&mut self, cfg: CfgNode) -> Result<(), Error> {
        if self.is_active() {
            return Err(Error::Active {});
        }
        self.cfg = Arc::new(cfg);
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<(), Error> {
        if self.is_in_fork() {
            self.leave_to_parent();
            return Ok(());
        }
        if !self.is_own_thread() {
            self.end_stream();
        }
        let Some(mut producers) = self.producers.take() else { return Ok(()) };
        // The caller may be a hook of this very stream, so this must not wait until all producers have left
        // it. Joining the threads below waits for all but the caller's own.
        let in_progress = self.in_progress.take();
        in_progress.iter().for_each(InProgress::abort);
        let lent = self.lent.take();
        lent.iter().for_each(Session::abort);
        let outcome = producers.shut_down(self.run_settings.limits.for_loser());
        if let Some(session) = lent {
            self.part(session.discard(), None);
        }
        if let Some(in_progress) = in_progress {
            let session = self.leave(in_progress);
            self.part(session.discard(), None);
        }
        outcome
    }

    /// Ends the stream in progress, even if the caller has leaked its `Outputs`.
    pub(crate) fn end_stream(&mut self) {
        self.end_stream_with(None);
    }

    pub(super) fn end_stream_with(&mut self, error: Option<&Error>) {
        if self.is_in_fork() {
            return self.leave_run_to_parent();
        }
        if let Some(session) = self.lent.take() {
            let over = if self.is_own_thread() { session.discard() } else { session.end() };
            self.part(over, None);
        }
        let Some(in_progress) = self.in_progress.take() else { return };
        let session = self.leave(in_progress);
        // On a producer's own thread, this must not wait for the hooks of the stream to return: it is in one.
        let over = if self.is_own_thread() { session.discard() } else { session.end() };
        self.part(over, error);
    }

    /// Takes over what a stream in progress has counted.
    fn leave(&mut self, in_progress: InProgress<R>) -> Session<R> {
        let Left { session, account, failures } = in_progress.leave();
        self.account = account;
        self.keep(failures);
        session
    }

    /// Fails in a process that was forked after the producers were started: their threads run in the parent only.
    pub(crate) fn check_home(&self) -> Result<(), Error> {
        if self.is_active() { Ok(self.home.check()?) } else { Ok(()) }
    }

    pub(super) fn is_in_fork(&self) -> bool {
        self.check_home().is_err()
    }

    /// Leaves the run in progress to the parent of a forked process. Its end would wait for threads that do not run
    /// here, and its destructors could remove files of the parent.
    pub(super) fn leave_run_to_parent(&mut self) {
        forget((self.in_progress.take(), self.lent.take()));
    }

    fn leave_to_parent(&mut self) {
        self.leave_run_to_parent();
        forget(self.producers.take());
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.producers.as_ref().is_some_and(Producers::is_own_thread)
    }
}

impl<R: Runner> Drop for Engine<R> {
    fn drop(&mut self) {
        if self.is_in_fork() {
            self.leave_to_parent();
            // The user's values are not dropped either, since their destructors could end what the parent uses.
            let user = (self.factory.take(), self.run_settings.clone());
            return forget((user, take(&mut self.failures), take(&mut self.observers)));
        }
        if let Err(error) = self.close() {
            // Formatting the error runs user code, which may panic.
            let logged = catch(|| tracing::warn!("while a runner was dropped: {error:#}"));
            drop_quietly((logged, error));
        }
        drop_quietly(self.factory.take());
        take(&mut self.failures).into_iter().for_each(drop_quietly);
        drop_quietly(take(&mut self.run_settings));
        let observers = self.observers.get_mut().unwrap_or_else(PoisonError::into_inner);
        take(observers).into_iter().for_each(drop_quietly);
    }
}
