//! The threads of a pool's producers.

use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::base::panic::drop_quietly;
use crate::concurrency::spawn::{CallerSubscriber, SubscriberGuard, spawn};
use crate::concurrency::{Mutex, lock};
use crate::error::{Error, Site};
use crate::producers::cpu_pool::{CpuPool, producer_thread};
use crate::producers::participants::Participants;
use crate::producers::producer_factory::ProducerFactory;
use crate::producers::producer_loop::{Join, ProducerLoop};
use crate::producers::ready::ReadySender;
use crate::producers::shared::{PoolShared, Shared};
use crate::producers::startup::FirstInit;
use crate::producers::thread_wrapper::ThreadWrapper;
use crate::run::Run;
use crate::run::time_limits::{tick_of, ticks_in};
use crate::runner::{ProducerSetup, Wanted};

/// Starts the threads of a pool's producers, and keeps them until they are joined.
pub(crate) struct ProducerThreads<I, T> {
    life: Arc<ProducerLife<I, T>>,
    settings: ThreadSettings,
    pub(crate) shared: Arc<PoolShared>,
    ids: ThreadIds,
    /// By place.
    current: Vec<ProducerThread<I, T>>,
    /// Those that were replaced.
    former: Vec<ProducerThread<I, T>>,
}

/// What each thread needs from its start to its end.
struct ProducerLife<I, T> {
    /// `None` only while this is dropped.
    factory: Option<ProducerFactory<I, T>>,
    end_timeout: Option<Duration>,
    /// That of the thread that built the pool.
    built_under: CallerSubscriber,
    /// That of the thread that closed the pool; not set before.
    closed_under: OnceLock<CallerSubscriber>,
}

/// How the threads are made.
pub(crate) struct ThreadSettings {
    /// Makes what the producer of a place starts with.
    pub(crate) setup: Box<dyn Fn(usize) -> ProducerSetup + Send + Sync>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) wrapper: Option<ThreadWrapper>,
    pub(crate) first_init: FirstInit,
    /// How many lost producers may be replaced, and calls of `producer_init` repeated.
    pub(crate) replacements: usize,
    /// How long a `producer_end` may take.
    pub(crate) end_timeout: Option<Duration>,
}

/// The ids of all threads of a pool's producers, to be asked for after its end too.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadIds(Arc<Mutex<Vec<ThreadId>>>);

impl ThreadIds {
    /// Whether the calling thread works for one of the producers.
    pub(crate) fn is_own_thread(&self) -> bool {
        lock(&self.0).contains(&producer_thread())
    }
}

/// One producer's thread.
pub(super) struct ProducerThread<I, T> {
    pub(super) place: usize,
    /// `None` if the producer was abandoned while it was built.
    pub(super) thread: Option<JoinHandle<ThreadResult>>,
    /// Closing this channel ends the thread.
    runs: Option<Sender<Join<I, T>>>,
    /// Closed when the thread has ended.
    pub(super) ended: Receiver<()>,
    pub(super) site: Site,
    pub(super) shared: Shared,
    /// The producer was abandoned in a run. While it is away, a shutdown does not wait for it.
    pub(super) was_abandoned: bool,
}

/// The result of a producer's thread. If a hook drops the pool on its own thread, that thread cannot be
/// joined and nothing reads the result. The error is then dropped under a panic guard: the standard library
/// aborts the process if a thread's result panics in its destructor.
pub(super) struct ThreadResult(pub(super) Option<Result<(), Error>>);

impl ThreadResult {
    /// With the outcome of the function around the thread, for which the thread's own goes first.
    fn wrapped((mut ended, wrapped): (Self, Result<(), Error>)) -> Self {
        match &ended.0 {
            Some(Ok(())) => ended.0 = Some(wrapped),
            Some(Err(_)) | None => drop(wrapped),
        }
        ended
    }
}

impl Drop for ThreadResult {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

/// How a producer's thread begins.
enum Beginning {
    /// It calls `producer_init`, and reports the outcome.
    Building { wanted: Arc<Wanted>, ready: ReadySender },
    /// It waits until the thread before it on its place has ended, if there is one, and builds its state in a run.
    InRun { before: Option<Receiver<()>> },
}

impl<I: Send + 'static, T: Send + 'static> ProducerThreads<I, T> {
    pub(super) fn new(factory: ProducerFactory<I, T>, settings: ThreadSettings) -> Self {
        let life = ProducerLife {
            factory: Some(factory),
            end_timeout: settings.end_timeout,
            built_under: CallerSubscriber::current(),
            closed_under: OnceLock::new(),
        };
        ProducerThreads {
            life: Arc::new(life),
            shared: Arc::new(PoolShared::new(settings.replacements)),
            settings,
            ids: ThreadIds::default(),
            current: vec![],
            former: vec![],
        }
    }

    /// Starts the first producer of the next place, and returns its site.
    pub(super) fn start_next(
        &mut self,
        wanted: Arc<Wanted>,
        ready: ReadySender,
    ) -> Result<Site, Error> {
        let thread = self.start(self.current.len(), Beginning::Building { wanted, ready })?;
        let site = thread.site.clone();
        self.current.push(thread);
        Ok(site)
    }

    /// Starts the first producer of the next place, which builds its state in the first run.
    pub(super) fn start_next_in_run(&mut self) -> Result<(), Error> {
        let thread = self.start(self.current.len(), Beginning::InRun { before: None })?;
        self.current.push(thread);
        Ok(())
    }

    /// Starts a producer in the place of a lost one, before a run. Returns whether it may.
    pub(super) fn replace(&mut self, place: usize, was_abandoned: bool) -> Result<bool, Error> {
        if !self.shared.take_spare() {
            return Ok(false);
        }
        let lost = &mut self.current[place];
        // The thread ends now, unless it is still in a hook.
        lost.runs = None;
        lost.was_abandoned |= was_abandoned;
        let before = (!was_abandoned).then(|| lost.ended.clone());
        let new = self.start(place, Beginning::InRun { before })?;
        self.former.push(std::mem::replace(&mut self.current[place], new));
        Ok(true)
    }

    fn start(&self, place: usize, beginning: Beginning) -> Result<ProducerThread<I, T>, Error> {
        let setup = (self.settings.setup)(place);
        let (site, name) = (setup.site(&[], None), format!("gangline-p{place}"));
        let shared = Shared::new(&self.shared);
        let stack_size = self.settings.stack_size;
        // Unbounded: offering a run must not block on a producer that is still in a hook of an earlier run.
        let (sender, runs) = unbounded();
        let (ending, ended) = bounded(0);
        let pool = CpuPool::of(&setup, &name, stack_size);
        let (life, own) = (self.life.clone(), shared.clone());
        let work = move |pooled: Result<(), Error>| {
            ThreadResult(life.serve(pooled, setup, own, beginning, &runs))
        };
        let wrapper = self.settings.wrapper.clone();
        // The thread that begins a run may have another subscriber.
        let _default = self.life.built_under.enter();
        let thread = spawn(name, stack_size, move || {
            let life =
                |wrapped: Result<(), Error>| pool.run(move |pooled| work(wrapped.and(pooled)));
            let ended = match wrapper {
                None => life(Ok(())),
                Some(wrapper) => ThreadResult::wrapped(wrapper.call(place, life)),
            };
            drop::<Sender<()>>(ending);
            ended
        })?;
        lock(&self.ids.0).push(thread.thread().id());
        let (thread, runs) = (Some(thread), Some(sender));
        Ok(ProducerThread { place, thread, runs, ended, site, shared, was_abandoned: false })
    }
}

impl<I, T> ProducerLife<I, T> {
    /// The life of a producer, on its own thread.
    fn serve(
        self: Arc<Self>,
        pooled: Result<(), Error>,
        setup: ProducerSetup,
        shared: Shared,
        beginning: Beginning,
        runs: &Receiver<Join<I, T>>,
    ) -> Option<Result<(), Error>> {
        let place = setup.producer;
        let factory = self.factory.as_ref().expect("it is there until this is dropped");
        let made = pooled.map(|()| factory.make(setup, shared.clone()));
        let backend = match beginning {
            Beginning::Building { wanted, ready } => {
                let started = made.and_then(|mut backend| backend.start(&wanted).map(|()| backend));
                let (backend, outcome) = match started {
                    Ok(backend) => (Some(backend), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                // The receiver is gone if this producer exceeded the limit.
                ready.report(place, outcome).unwrap_or_else(drop_quietly);
                backend
            }
            Beginning::InRun { before } => {
                before.iter().for_each(|before| self.await_end(before));
                made.map_err(|error| lose(runs, error)).ok()
            }
        };
        let producer = ProducerLoop::new(backend?, place, shared);
        Some(producer.serve(runs, || self.enter_close()))
    }

    /// Waits for the end of the thread whose place this one takes, since a device may not have room for the
    /// states of both.
    fn await_end(&self, before: &Receiver<()>) {
        let Some(limit) = self.end_timeout else {
            let _ = before.recv();
            return;
        };
        let tick = tick_of(limit);
        for _ in 0..ticks_in(limit, tick) {
            if before.recv_timeout(tick) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Makes the subscriber of the thread that closed the pool the default of this thread; before, that of its build.
    fn enter_close(&self) -> SubscriberGuard {
        self.closed_under.get().unwrap_or(&self.built_under).enter()
    }
}

impl<I, T> Drop for ProducerLife<I, T> {
    fn drop(&mut self) {
        drop_quietly(self.factory.take());
    }
}

/// Loses the producer of the first run that is offered, since its thread cannot begin.
fn lose<I, T>(runs: &Receiver<Join<I, T>>, error: Error) {
    match runs.recv() {
        Ok(Join { run, producer, .. }) => {
            run.lose(producer, error).unwrap_or_else(|error| run.abort_with(error));
        }
        Err(_) => drop_quietly(error),
    }
}

impl<I, T> ProducerThreads<I, T> {
    pub(super) fn ids(&self) -> ThreadIds {
        self.ids.clone()
    }

    /// Makes the subscriber of the thread that built the pool the default of this thread.
    pub(crate) fn enter_build(&self) -> SubscriberGuard {
        self.life.built_under.enter()
    }

    pub(super) fn first_init(&self) -> FirstInit {
        self.settings.first_init
    }

    pub(super) fn end_timeout(&self) -> Option<Duration> {
        self.settings.end_timeout
    }

    /// The state of the producer of a place that other threads read.
    pub(super) fn shared(&self, place: usize) -> &Shared {
        &self.current[place].shared
    }

    /// Offers a run to the producer of a place.
    pub(super) fn offer(
        &self,
        place: usize,
        run: &Arc<Run<I, T>>,
        participants: &Arc<Participants>,
        ready: Option<ReadySender>,
    ) {
        let Some(runs) = &self.current[place].runs else { return };
        let (run, participants) = (run.clone(), participants.clone());
        let sent = runs.send(Join { run, producer: place, ready, participants });
        sent.unwrap_or_else(|_| unreachable!("the thread serves until its channel is closed"));
    }

    /// Notes that the producer of a place was abandoned in a run.
    pub(super) fn note_abandoned(&mut self, place: usize) {
        self.current[place].was_abandoned = true;
    }

    /// Abandons a producer for good. Its thread ends when its hook returns.
    pub(super) fn abandon(&mut self, place: usize) {
        let entry = &mut self.current[place];
        entry.shared.leave();
        (entry.thread, entry.runs) = (None, None);
    }

    /// Closes the channels of all threads, so that the producers end concurrently, and returns the threads by
    /// place. No other is started afterwards.
    pub(super) fn close(&mut self) -> Vec<ProducerThread<I, T>> {
        let _ = self.life.closed_under.set(CallerSubscriber::current());
        let mut threads = std::mem::take(&mut self.former);
        threads.append(&mut self.current);
        threads.sort_by_key(|thread| thread.place);
        threads.iter_mut().for_each(|thread| thread.runs = None);
        threads
    }
}
