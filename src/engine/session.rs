//! One handle's engine: its crew, and the run or stream in progress.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};

use super::call::{catch, drop_quietly};
use super::collector::Collector;
use super::consumer::{Consumed, Consumer, Taken};
use super::crew::{Building, Crew, cancelled_or};
use super::exchange::{Feeder, News};
use super::fault::{Fate, Fault};
use super::run::Run;
use super::source::{Pulled, Source};
use super::terms::Terms;
use super::window::Window;
use crate::account::Account;
use crate::batch::{Batching, Grouping};
use crate::cancel::{CancelToken, Interrupt, Seen, Watch};
use crate::cfg::CfgNode;
#[cfg(feature = "rayon")]
use crate::cpu_threads::CpuThreads;
use crate::device::{Devices, GpuLock, HeldGpus};
use crate::error::{Error, Result};
use crate::order::Order;
use crate::policy::Policy;
use crate::runner::{RunControl, Runner, Station};

/// What a handle is built with, beside its runner and its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) devices: Devices,
    pub(crate) order: Order,
    /// `None`: it grows by itself.
    pub(crate) window: Option<usize>,
    /// `None`: items are worked on one by one.
    pub(crate) batching: Option<Batching>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) gpu_lock: Option<GpuLock>,
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: CpuThreads,
    pub(crate) token: CancelToken,
}

/// What a handle holds.
pub(crate) struct Engine<R: Runner> {
    /// `None` only while the engine is dropped.
    runner: Option<Arc<R>>,
    cfg: Arc<CfgNode>,
    settings: Settings,
    terms: Arc<Terms<R::Input>>,
    /// Which requests of the token are spent for this handle.
    seen: Seen,
    /// `None` while closed.
    crew: Option<Crew<R>>,
    /// A stream in progress. It is here, and not in the caller's `Stream`, so that one that the
    /// caller leaked can still be ended.
    streaming: Option<Streaming<R>>,
    account: Account,
    /// The errors that the last run skipped over: the first of them.
    failures: Vec<Error>,
}

/// A run that producers take part in.
pub(super) struct Session<R: Runner> {
    run: Arc<Run<R>>,
    /// Disconnected when all producers have left, or none has joined.
    all_left: Receiver<Infallible>,
    watch: Watch,
}

/// A stream's session, with what its caller has seen of it.
struct Streaming<R: Runner> {
    session: Session<R>,
    /// Never locked, since there is always `&mut`: it makes a handle `Sync` for inputs and outputs
    /// that are `Send` only.
    ends: Mutex<Ends<R>>,
    /// How many items were pulled in all, once there is no more.
    total: Option<u64>,
    account: Account,
    pulled: u64,
}

/// What a stream gives its caller.
enum Yield<T> {
    Output(T),
    /// The error of an item that is left out.
    Skipped(Error),
    /// The error that ends the stream.
    Last(Error),
}

/// The two ends of the hand-over that a stream's caller has.
struct Ends<R: Runner> {
    feeder: Feeder<R::Input, R::Output>,
    collector: Collector<R::Output>,
}

impl<R: Runner + 'static> Engine<R> {
    pub(crate) fn new(
        runner: R,
        cfg: CfgNode,
        settings: Settings,
        terms: Terms<R::Input>,
    ) -> Result<Self, Error> {
        settings.devices.check()?;
        let seen = settings.token.seen();
        let mut engine = Engine {
            runner: Some(Arc::new(runner)),
            cfg: Arc::new(cfg),
            settings,
            terms: Arc::new(terms),
            seen,
            crew: None,
            streaming: None,
            account: Account::default(),
            failures: vec![],
        };
        engine.activate()?;
        Ok(engine)
    }

    pub(crate) fn activate(&mut self) -> Result<(), Error> {
        if self.crew.is_some() {
            return Ok(());
        }
        let building = Arc::new(Building::new());
        let token = self.settings.token.clone();
        let watch = token.watch_from_now(&building);
        let hired = self.lock_gpus(&building).and_then(|gpus| {
            let stations = self.stations(gpus);
            Crew::hire(self.shared_runner(), stations, self.settings.stack_size, &building)
        });
        match hired {
            Ok(crew) => {
                self.crew = Some(crew);
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

    fn lock_gpus(&self, building: &Building) -> Result<Option<Arc<HeldGpus>>, Error> {
        let Some(lock) = &self.settings.gpu_lock else { return Ok(None) };
        let held = lock.take(&self.settings.devices, &|| building.alarm().listen())?;
        held.map(|held| Some(Arc::new(held))).ok_or(Error::Cancelled {})
    }

    fn stations(&self, gpus: Option<Arc<HeldGpus>>) -> Vec<Station> {
        let devices = &self.settings.devices;
        #[cfg(feature = "rayon")]
        let cpu_threads = self.settings.cpu_threads.each(devices);
        let said_one_by_one = Arc::default();
        let station = |worker| {
            let place = devices.place(worker).expect("there are as many places as that").clone();
            Station {
                worker,
                cfg: self.cfg.clone(),
                said_one_by_one: Arc::clone(&said_one_by_one),
                #[cfg(feature = "candle")]
                candle: crate::device::CandleDevices::new(&place, devices.meaning()),
                #[cfg(feature = "rayon")]
                cpu_threads: cpu_threads.filter(|_| place.has_cpu()),
                place,
                gpus: gpus.clone(),
            }
        };
        (0..devices.len()).map(station).collect()
    }

    /// Feeds, works on and consumes all of `source`.
    /// `next` is what `source` was made with.
    pub(crate) fn run<I>(
        &mut self,
        mut source: Source<I, R::Input>,
        next: impl Fn(&mut I) -> Option<Result<R::Input>>,
    ) -> Result<R::Summary, Error> {
        self.reset(source.unread());
        let session = self.begin()?;
        let run = &session.run;
        let consumed = if run.is_cancelled() {
            let result = Err(Error::Cancelled {});
            Ok(Consumed { result, taken: Taken::default(), failures: vec![] })
        } else {
            self.feed_and_consume(run, &mut source, next)
        };
        self.seen = session.end();
        let Consumed { result, taken, failures } = consumed?;
        self.failures = failures;
        self.account = Account::new(source.pulled(), taken.ok, taken.failed(), source.unread());
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
            Ok(consumed) => Ok(consumed),
            // Hooks are caught, so this is a bug of ours, which is not to be hidden.
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// The consumer of a run of this engine.
    pub(super) fn consumer(&self, run: Arc<Run<R>>) -> Consumer<R> {
        let (runner, cfg) = (self.shared_runner().clone(), self.cfg.clone());
        Consumer::new(runner, cfg, run, self.settings.order, self.window())
    }

    /// Begins a run: every producer takes part in it, and has a state.
    fn begin(&mut self) -> Result<Session<R>, Error> {
        let run = self.new_run(None)?;
        let mut session = self.watch(run.clone(), &run);
        // A request made before the run ends it at its start: no producer is needed, nor a state
        // made anew for it.
        if run.exchange.is_halted() {
            return Ok(session);
        }
        match self.join(&mut session) {
            Ok(()) => Ok(session),
            Err(error) => {
                let is_cancelled = run.is_cancelled();
                self.seen = session.end();
                cancelled_or(is_cancelled, Err(error))
            }
        }
    }

    /// A run that nobody takes part in yet.
    pub(super) fn new_run(
        &self,
        upstream: Option<Arc<dyn RunControl>>,
    ) -> Result<Arc<Run<R>>, Error> {
        let crew = self.crew.as_ref().ok_or(Error::Closed {})?;
        if crew.is_own_thread() {
            return Err(Error::OwnThread {});
        }
        let Settings { order, batching, .. } = self.settings;
        let (window, terms) = (self.window().size(), self.terms.clone());
        Ok(Arc::new(Run::new(order, crew.len(), window, batching, terms, upstream)))
    }

    /// Has the token end `target`, which `run` is, or is part of.
    pub(super) fn watch(
        &self,
        run: Arc<Run<R>>,
        target: &Arc<impl Interrupt + 'static>,
    ) -> Session<R> {
        let watch = self.settings.token.watch(self.seen, target);
        Session { run, all_left: never(), watch }
    }

    /// Has every producer take part, once it has a state.
    pub(super) fn join(&self, session: &mut Session<R>) -> Result<(), Error> {
        let crew = self.crew.as_ref().expect("a run is made where there is a crew");
        let (all_left, ready) = crew.join(&session.run);
        session.all_left = all_left;
        ready
    }

    pub(super) fn window(&self) -> Window {
        match self.settings.window {
            Some(size) => Window::fixed(size),
            None => {
                let producers = self.settings.devices.len();
                match self.settings.batching {
                    None => Window::growing(producers, 1),
                    Some(Batching { rule, grouping: Grouping::None, .. }) => {
                        Window::growing(producers, rule.most())
                    }
                    Some(Batching { rule, grouping: Grouping::Like, .. }) => {
                        Window::growing_for_choice(producers, rule.most())
                    }
                }
            }
        }
    }

    /// Begins a stream, which goes on with [`next`](Engine::next).
    pub(crate) fn begin_stream(&mut self, unread: Option<u64>) -> Result<(), Error> {
        self.reset(unread);
        let session = self.begin()?;
        let feeder = Feeder::new(&session.run.exchange);
        let collector = Collector::new(
            &session.run.exchange,
            self.settings.order,
            self.window(),
            Instant::now(),
        );
        self.streaming = Some(Streaming {
            session,
            ends: Mutex::new(Ends { feeder, collector }),
            total: None,
            account: self.account,
            pulled: 0,
        });
        Ok(())
    }

    /// The next output of the stream in progress, which is ended with its last.
    pub(crate) fn next<I>(
        &mut self,
        source: &mut Source<I, R::Input>,
    ) -> Option<Result<R::Output, Error>> {
        match self.streaming.as_mut()?.next(source) {
            Some(Yield::Output(output)) => Some(Ok(output)),
            Some(Yield::Skipped(error)) => Some(Err(error)),
            Some(Yield::Last(error)) => {
                self.end_stream();
                Some(Err(error))
            }
            None => {
                self.end_stream();
                None
            }
        }
    }
}

impl<R: Runner> Engine<R> {
    pub(crate) fn runner(&self) -> &R {
        self.shared_runner()
    }

    fn shared_runner(&self) -> &Arc<R> {
        self.runner.as_ref().expect("it is there until the engine is dropped")
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn account(&self) -> Account {
        match &self.streaming {
            Some(streaming) => streaming.account(),
            None => self.account,
        }
    }

    /// See [`Crew::ceilings`]. Empty while closed.
    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        self.crew.as_ref().map_or_else(Vec::new, Crew::ceilings)
    }

    /// Keeps the errors that a run skipped over.
    pub(super) fn keep(&mut self, failures: Vec<Error>) {
        self.failures = failures;
    }

    /// The errors that the last run skipped over: the first of them.
    pub(crate) fn failures(&self) -> &[Error] {
        &self.failures
    }

    pub(crate) fn is_active(&self) -> bool {
        self.crew.is_some()
    }

    /// Makes ready for a run.
    pub(super) fn reset(&mut self, unread: Option<u64>) {
        self.end_stream();
        self.account = Account::new(0, 0, 0, unread);
        std::mem::take(&mut self.failures).into_iter().for_each(drop_quietly);
    }

    /// The run of a session is over: what it came to, and which requests are spent with it.
    pub(super) fn settle(&mut self, session: Session<R>, account: Account) {
        self.account = account;
        self.seen = session.watch.spend();
    }

    pub(crate) fn set_cfg(&mut self, cfg: CfgNode) -> Result<(), Error> {
        if self.is_active() {
            return Err(Error::Active {});
        }
        self.cfg = Arc::new(cfg);
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let Some(mut crew) = self.crew.take() else { return Ok(()) };
        // Whoever closes may be a hook of this very stream, so nothing here may wait for all
        // producers to have left it; joining the threads does that where it can be done.
        let streaming = self.streaming.take();
        if let Some(streaming) = &streaming {
            streaming.session.run.abort();
            self.account = streaming.account();
        }
        let outcome = crew.dismiss();
        if let Some(Streaming { session, ends, .. }) = streaming {
            leave(&session.run, ends);
            self.seen = session.discard();
        }
        outcome
    }

    /// Ends the stream in progress, also one that the caller leaked.
    pub(crate) fn end_stream(&mut self) {
        let Some(streaming) = self.streaming.take() else { return };
        self.account = streaming.account();
        let Streaming { session, ends, .. } = streaming;
        session.run.abort();
        leave(&session.run, ends);
        // A hook of this very stream cannot wait until no hook of it is running.
        self.seen = if self.is_own_thread() { session.discard() } else { session.end() };
    }

    fn is_own_thread(&self) -> bool {
        self.crew.as_ref().is_some_and(Crew::is_own_thread)
    }
}

impl<R: Runner> Drop for Engine<R> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            // The text of the cause is the user's code too.
            let logged = catch(|| tracing::warn!("while a runner was dropped: {error:#}"));
            drop_quietly((logged, error));
        }
        drop_quietly(self.runner.take());
        std::mem::take(&mut self.failures).into_iter().for_each(drop_quietly);
        drop_quietly(std::mem::take(&mut self.terms));
    }
}

impl<R: Runner> Session<R> {
    fn end(self) -> Seen {
        self.wind_up();
        self.watch.spend()
    }

    /// Waits until no producer takes part any more, and drops what is left.
    pub(super) fn wind_up(&self) {
        self.run.abort();
        let disconnected = self.all_left.recv();
        debug_assert!(disconnected.is_err(), "nothing can be sent");
        self.run.discard();
    }

    fn discard(self) -> Seen {
        self.run.discard();
        self.watch.spend()
    }
}

impl<R: Runner> Streaming<R> {
    fn next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<R::Output>> {
        let run = self.session.run.clone();
        loop {
            let collector = &mut unlocked(&mut self.ends).collector;
            if run.is_cancelled() {
                return Some(Yield::Last(Error::Cancelled {}));
            }
            if let Some((seq, outcome)) = collector.pop() {
                if run.is_pointless(seq, &outcome) {
                    drop_quietly(outcome);
                    collector.done(&run.exchange);
                    continue;
                }
                collector.done(&run.exchange);
                return Some(match outcome {
                    Ok(output) => {
                        self.account.ok += 1;
                        Yield::Output(output)
                    }
                    Err(fault) => self.meet(run.policy(), *fault),
                });
            }
            if self.total == Some(collector.consumed()) {
                let Account { ok, failed, .. } = self.account;
                // Told once: what it is told with ends the stream.
                return run.policy().gives_up_at_end(failed, ok + failed).then(|| {
                    Yield::Last(Error::TooManyFailures { failed, items: ok + failed, source: None })
                });
            }
            collector.settle(&run.exchange);
            if !self.pull(&run, source) {
                let news = self.wait(&run);
                run.check(news);
            }
        }
    }

    /// It is the turn of an item that failed.
    fn meet(&mut self, policy: &Policy, fault: Fault) -> Yield<R::Output> {
        self.account.failed += fault.items();
        let Account { ok, failed, .. } = self.account;
        match fault.fate {
            Fate::End => Yield::Last(fault.error),
            _ if policy.gives_up_at(failed, ok + failed) => {
                let source = Some(Box::new(fault.error));
                Yield::Last(Error::TooManyFailures { failed, items: ok + failed, source })
            }
            Fate::Skip | Fate::SkipEarlier => Yield::Skipped(fault.error),
        }
    }

    /// Pulls one item if there is one and the window has room for it.
    fn pull<I>(&mut self, run: &Run<R>, source: &mut Source<I, R::Input>) -> bool {
        if self.total.is_some() {
            return false;
        }
        let feeder = &mut unlocked(&mut self.ends).feeder;
        let pulled = if run.exchange.is_halted() {
            source.end(run, feeder);
            Pulled::End
        } else if feeder.has_credit(&run.exchange) {
            let _pulling = run.pulling();
            source.pull_one(run, feeder)
        } else {
            return false;
        };
        self.pulled = source.pulled();
        if let Pulled::End = pulled {
            self.total = Some(self.pulled);
        }
        self.account.unread = source.unread();
        true
    }

    fn wait(&mut self, run: &Run<R>) -> News {
        let collector = &mut unlocked(&mut self.ends).collector;
        if self.total.is_some() {
            return collector.wait(&run.exchange, self.total);
        }
        collector.wait_as_feeder(&run.exchange)
    }

    fn account(&self) -> Account {
        Account::new(self.pulled, self.account.ok, self.account.failed, self.account.unread)
    }
}

fn unlocked<R: Runner>(ends: &mut Mutex<Ends<R>>) -> &mut Ends<R> {
    ends.get_mut().expect("it is never locked, so it is not poisoned")
}

fn leave<R: Runner>(run: &Run<R>, ends: Mutex<Ends<R>>) {
    let mut ends = ends.into_inner().expect("it is never locked, so it is not poisoned");
    ends.feeder.take_held().into_iter().for_each(drop_quietly);
    ends.collector.leave(&run.exchange).into_iter().for_each(drop_quietly);
}

/// What [`Crew::join`] gives, where nobody has joined: disconnected from the start.
fn never() -> Receiver<Infallible> {
    bounded(0).1
}
