//! The engine of one pool: its producers, and the session in progress.

use std::any::Any;
use std::mem::{forget, take};
use std::sync::{Arc, Mutex, PoisonError};

use gangline_report::Account;
use gangline_scheduler::window::Window;
use serde_json::Value;

use super::session::{LinePlace, Lineup, Over, Session};
use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::cfg::CfgNode;
use crate::concurrency::cancel::{Interrupt, SeenRequests};
use crate::error::{Error, Result};
use crate::observe::event::Event;
use crate::observe::event_log::{Detail, EventLog, ObserveOptions};
use crate::observe::observing::Observers;
use crate::producers::participants::{Receiving, ResultReceiver};
use crate::producers::pool_settings::PoolSettings;
use crate::producers::producer_factory::ProducerFactory;
use crate::producers::shared::PoolShared;
use crate::producers::{Building, Producers};
use crate::run::Run;
use crate::run::journal_writer::JournalWriter;
use crate::run::lost_producer::LostProducers;
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunKind, RunShape};
use crate::runner::RunControl;

/// The engine of one pool.
pub(crate) struct Engine<I, T> {
    /// `None` only while the engine is dropped.
    factory: Option<ProducerFactory<I, T>>,
    /// The number of items that producers could have when the run began, if each can have several.
    capacity: usize,
    pub(super) cfg: Arc<CfgNode>,
    pub(super) settings: PoolSettings,
    pub(super) run_settings: Arc<RunSettings<I, T>>,
    /// The requests of the token that this pool has spent.
    pub(super) seen: SeenRequests,
    /// `None` while closed.
    pub(super) producers: Option<Producers<I, T>>,
    /// The session in progress. It is kept here and not in the caller's `Outputs` or future, so that a leaked one can
    /// still be ended.
    pub(super) session: Option<Session<I, T>>,
    pub(super) account: Account,
    /// The errors of items skipped in the last run: the first of them.
    pub(super) failures: Vec<Error>,
    /// The producers that no longer take part in runs, with the reasons.
    pub(super) gone: LostProducers,
    /// The producers that the last run abandoned, and that had not returned when it ended.
    pub(super) abandoned: LostProducers,
    /// Never locked, since access is always `&mut`. The mutex makes the pool `Sync` although observers are
    /// not.
    pub(super) observers: Mutex<Observers>,
    pub(super) told: ObserveOptions,
    /// The events of the last run.
    pub(super) event_log: Arc<EventLog>,
}

impl<I: Send + 'static, T: Send + 'static> Engine<I, T> {
    pub(crate) fn new(
        factory: ProducerFactory<I, T>,
        cfg: CfgNode,
        settings: PoolSettings,
        run_settings: RunSettings<I, T>,
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
            producers: None,
            session: None,
            account: Account::default(),
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
        // A wait for workers ends by an earlier request too, as that for GPUs does.
        if self.factory().has_seats() && token.is_cancelled_since(self.seen) {
            building.cancel();
        }
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
                self.producers = Some(producers);
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

    /// Creates a run of this stage, in which no producer takes part yet.
    pub(super) fn enlist(
        &mut self,
        lineup: &mut Lineup,
        upstream: Option<Arc<dyn RunControl>>,
        place: LinePlace,
    ) -> Result<Arc<Run<I, T>>, Error> {
        let mut recording =
            Recording { inherits_names: lineup.has_names(), ..Recording::default() };
        if upstream.is_none() {
            lineup.journal = self.open_journal(take(&mut lineup.later_cfgs))?;
            recording = Recording { plans: lineup.journal.clone(), ..Recording::default() };
        }
        let kind = match place {
            LinePlace::Before => RunKind::Stream,
            LinePlace::Last(kind) => {
                recording.records = lineup.journal.clone();
                kind
            }
        };
        let (stage, is_reordered) = lineup.next_place();
        let in_line = InLine { stage, is_reordered, upstream, driver: lineup.driver.clone() };
        let run = self.new_run(lineup.items(), kind, in_line, recording)?;
        lineup.add(&run);
        self.session = Some(Session::new(run.clone()));
        Ok(run)
    }

    /// Opens the journal for a run, if there is one. In a pipeline, `later_stages` are the configurations of the stages
    /// after this one.
    fn open_journal(&self, later_stages: Vec<Value>) -> Result<Option<Arc<JournalWriter>>, Error> {
        let Some(journal) = &self.run_settings.journal else { return Ok(None) };
        let keys = self.run_settings.key_kind();
        let journal_writer = JournalWriter::open(journal, self.cfg.to_json(), later_stages, keys)?;
        Ok(Some(Arc::new(journal_writer)))
    }

    /// Creates a run of `items` items, if their number is known, without producers.
    pub(super) fn new_run(
        &mut self,
        items: Option<u64>,
        kind: RunKind,
        in_line: InLine,
        recording: Recording,
    ) -> Result<Arc<Run<I, T>>, Error> {
        self.check_home()?;
        if self.producers.as_ref().ok_or(Error::Closed {})?.is_own_thread() {
            return Err(Error::OwnThread {});
        }
        let (gone, abandoned) = (&mut self.gone, &mut self.abandoned);
        let producers = self.producers.as_mut().ok_or(Error::Closed {})?;
        let replaced = producers.replace_all(gone, abandoned);
        let producers = self.producers.as_ref().expect("they were just there");
        let (lost, away) = (gone.places(), producers.away(gone, abandoned));
        let here = producers.len() - self.gone.all().len() - away.len();
        let least = self.run_settings.policy.min_producers.unwrap_or(1);
        if here < least {
            return Err(Error::TooFewProducers { here, least, source: None });
        }
        let PoolSettings { order, batching, .. } = self.settings;
        let order = if kind == RunKind::Service { Order::Completion } else { order };
        self.capacity = self.factory().capacity().unwrap_or(0);
        let (window, run_settings) = (self.window().size(), self.run_settings.clone());
        let starting: Vec<_> =
            (0..producers.len()).filter(|&it| producers.is_starting(it)).collect();
        let first = starting.iter().copied().filter(|it| !replaced.contains(it));
        let first: Vec<_> = first.collect();
        let earlier = CarriedOver { learned: producers.learned(), lost, away, starting };
        let (producers, description) = (producers.len(), self.told.description.clone());
        let event_log = Arc::new(EventLog::new(producers, description, self.told.detail));
        event_log.set_settings(self.told.settings.clone());
        self.event_log = event_log.clone();
        self.report_start(&event_log, items);
        let shape = RunShape { order, producers, window, batching, kind };
        let run = Run::new(shape, run_settings, earlier, in_line, event_log, recording);
        let start_up = self.producers.as_mut().map(|it| take(&mut it.start_up));
        run.handover.stats.starts_after(start_up.unwrap_or_default());
        first.into_iter().for_each(|producer| run.handover.stats.starts_in_run(producer));
        for producer in replaced {
            run.handover.stats.producer_replaced(producer);
            run.event_log.tell(Event::ProducerReplaced { producer });
        }
        Ok(Arc::new(run))
    }
}

impl<I, T> Engine<I, T> {
    pub(super) fn window(&self) -> Window {
        let PoolSettings { window, batching, devices, .. } = &self.settings;
        Window::new(*window, self.capacity.max(devices.len()), *batching)
    }

    /// The runner that it was made of, of type `R`.
    pub(crate) fn runner<R: Any>(&self) -> &R {
        self.factory().runner()
    }

    pub(super) fn factory(&self) -> &ProducerFactory<I, T> {
        self.factory.as_ref().expect("it is there until the engine is dropped")
    }

    pub(crate) fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    pub(crate) fn is_active(&self) -> bool {
        self.producers.is_some()
    }

    /// What other threads end its producers by. `None` if it is closed.
    pub(crate) fn shared(&self) -> Option<Arc<PoolShared>> {
        self.producers.as_ref().map(|producers| producers.threads.shared.clone())
    }

    /// Lets a thread that takes results take part in the session.
    pub(super) fn receive(&self, receiver: ResultReceiver) -> Receiving {
        let session = self.session.as_ref().expect("a run is in progress");
        session.participants.receive(receiver)
    }

    /// Aborts the run in progress, waits until no thread takes part in it, and drops what is left. On a producer's own
    /// thread it does not wait: that thread is in a hook of the run.
    pub(super) fn end_run(&self) {
        match &self.session {
            Some(session) if self.is_own_thread() => session.discard(),
            Some(session) => session.end(),
            None => {}
        }
    }

    /// Takes over the remains of a session, which ended with `error`, if any. The account of this stage is already set.
    /// `pipeline` is the account of all stages, if this is the last.
    pub(super) fn take_over(
        &mut self,
        session: Session<I, T>,
        pipeline: Option<Account>,
        error: Option<&Error>,
    ) {
        let Over { run, observing, seen } = session.over();
        self.seen = seen.unwrap_or(self.seen);
        self.note_losses(&run.losses());
        if let Some(producers) = &mut self.producers {
            producers.learn(run.handover.dispatch.learned());
        }
        // Closed explicitly, since an abandoned producer may still hold a reference to the run.
        run.recording.close();
        run.spans.end_run(error);
        let totals = Arc::new(self.totals(&run, error));
        run.event_log.tell(Event::RunEnded { totals, pipeline });
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
            self.end_session();
        }
        let Some(mut producers) = self.producers.take() else { return Ok(()) };
        // The caller may be a hook of this very run, so this must not wait until all producers have left it. Joining the
        // threads below waits for all but the caller's own.
        let session = self.session.take();
        session.iter().for_each(Session::abort);
        let outcome = producers.shut_down(self.run_settings.limits.for_loser());
        if let Some(session) = session {
            session.discard();
            self.take_over(session, None, None);
        }
        outcome
    }

    /// Ends the run in progress, if the caller has leaked or given up its handle.
    pub(crate) fn end_session(&mut self) {
        if self.is_in_fork() {
            return self.leave_run_to_parent();
        }
        self.end_run();
        if let Some(session) = self.session.take() {
            self.take_over(session, None, None);
        }
    }

    /// Fails in a process that was forked after the producers were started: their threads run in the parent only.
    pub(crate) fn check_home(&self) -> Result<(), Error> {
        self.producers.as_ref().map_or(Ok(()), |producers| Ok(producers.home.check()?))
    }

    pub(super) fn is_in_fork(&self) -> bool {
        self.check_home().is_err()
    }

    /// Leaves the run in progress to the parent of a forked process. Its end would wait for threads that do not run
    /// here, and its destructors could remove files of the parent.
    pub(super) fn leave_run_to_parent(&mut self) {
        forget(self.session.take());
    }

    fn leave_to_parent(&mut self) {
        self.leave_run_to_parent();
        forget(self.producers.take());
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.producers.as_ref().is_some_and(Producers::is_own_thread)
    }
}

impl<I, T> Drop for Engine<I, T> {
    fn drop(&mut self) {
        if self.is_in_fork() {
            self.leave_to_parent();
            // The user's values are not dropped either, since their destructors could end what the parent uses.
            let user = (self.factory.take(), self.run_settings.clone());
            return forget((user, take(&mut self.failures), take(&mut self.observers)));
        }
        // The thread that drops it may be any.
        let built_under = self.producers.as_ref().map(|producers| producers.threads.enter_build());
        let closed = self.close();
        if let Err(error) = closed {
            // Formatting the error runs user code, which may panic.
            let logged = catch(|| tracing::warn!("while a runner was dropped: {error:#}"));
            drop_quietly((logged, error));
        }
        drop(built_under);
        drop_quietly(self.factory.take());
        take(&mut self.failures).into_iter().for_each(drop_quietly);
        drop_quietly(take(&mut self.run_settings));
        let observers = self.observers.get_mut().unwrap_or_else(PoisonError::into_inner);
        take(observers).into_iter().for_each(drop_quietly);
    }
}
