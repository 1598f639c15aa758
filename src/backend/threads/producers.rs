//! The producers' threads, from start to shutdown.

use std::sync::Arc;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::backend::cpu_pool::{CpuPool, producer_thread};
use crate::backend::threads::limits::{tick_of, ticks_in};
use crate::backend::threads::lost_producer::Abandoned;
use crate::backend::threads::lost_producer::LostProducer;
use crate::backend::threads::participants::{Away, Participants};
use crate::backend::threads::producer::site;
use crate::backend::threads::producer_factory::ProducerFactory;
use crate::backend::threads::producer_loop::{Join, ProducerLoop};
use crate::backend::threads::run::{Run, text_of};
use crate::backend::threads::shared::Shared;
use crate::base::panic::drop_quietly;
use crate::concurrency::Barrier;
use crate::concurrency::alarm::Alarm;
use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::spawn;
use crate::error::{Error, Hook, Site};
use crate::runner::{ProducerSetup, Runner, Wanted};
use crate::scheduler::Absence;
use crate::scheduler::batch::Ceiling;

/// One thread per place, each with a producer.
pub(crate) struct Producers<R: Runner> {
    /// Indexed by producer.
    threads: Vec<ProducerThread<R>>,
    shared: Shared,
    /// The producers that failed to start.
    losses: Vec<LostProducer>,
    /// The producers that are still in a hook of an earlier run.
    away: Away,
    /// The producers that were abandoned in a run. While such a one is away, a shutdown does not wait for it.
    abandoned: Vec<bool>,
    /// The batch limits learned from out-of-memory failures, for each device.
    learned: Vec<Ceiling>,
}

/// One producer's thread.
struct ProducerThread<R: Runner> {
    /// `None` if the producer was abandoned.
    thread: Option<JoinHandle<Ended>>,
    /// Closing this channel ends the thread.
    runs: Option<Sender<Join<R>>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    site: Site,
}

impl<R: Runner> ProducerThread<R> {
    fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(is_this_thread)
    }
}

/// How long a shutdown waits in all for producers in revoked calls.
struct ShutdownLimit {
    /// `None`: without limit.
    limit: Option<Duration>,
    ticks: u64,
}

impl ShutdownLimit {
    /// Waits until the producer has returned from its hook. Returns the limit as the error if that takes
    /// longer.
    fn wait_for(&mut self, ended: &Receiver<()>, is_away: &AtomicBool) -> Result<(), Duration> {
        let Some(limit) = self.limit else { return Ok(()) };
        let tick = tick_of(limit);
        while is_away.load(Ordering::Relaxed) {
            if self.ticks >= ticks_in(limit, tick) {
                return Err(limit);
            }
            // Counts ticks instead of reading a clock, since no ticks pass while the process is stopped.
            match ended.recv_timeout(tick) {
                Err(RecvTimeoutError::Timeout) => self.ticks += 1,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }
}

/// The producers that have not reported yet.
struct Startup {
    outcomes: Receiver<(usize, Result<(), Error>)>,
    /// The sites of those producers.
    waiting: Vec<Site>,
    limit: Option<Duration>,
    ticks: u64,
}

impl Startup {
    /// Waits for the next producer to be ready, to fail, or to exceed the limit.
    fn next(&mut self) -> Option<(usize, Result<(), Error>, Abandoned)> {
        loop {
            let Some(limit) = self.limit else {
                let (producer, outcome) = self.outcomes.recv().ok()?;
                return Some((producer, outcome, Abandoned::No));
            };
            if let Some(late) = self.late(limit) {
                return Some(late);
            }
            // The abandoned producers still hold their senders, so the channel does not disconnect.
            if self.waiting.is_empty() {
                return None;
            }
            // Counts ticks instead of reading a clock, since no ticks pass while the process is stopped.
            match self.outcomes.recv_timeout(tick_of(limit)) {
                Ok((producer, outcome)) => {
                    self.waiting.retain(|site| site.producer != Some(producer));
                    return Some((producer, outcome, Abandoned::No));
                }
                Err(RecvTimeoutError::Timeout) => self.ticks += 1,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn late(&mut self, limit: Duration) -> Option<(usize, Result<(), Error>, Abandoned)> {
        if self.ticks <= ticks_in(limit, tick_of(limit)) {
            return None;
        }
        let site = Box::new(self.waiting.pop()?);
        let producer = site.producer.expect("a producer has a number");
        let error = Error::TimedOut { hook: Hook::ProducerInit, site, limit };
        Some((producer, Err(error), Abandoned::Yes))
    }
}

/// The result of a producer's thread. If a hook drops the pool on its own thread, that thread cannot be
/// joined and nothing reads the result. The error is then dropped under a panic guard: the standard library
/// aborts the process if a thread's result panics in its destructor.
struct Ended(Option<Result<(), Error>>);

impl Drop for Ended {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

/// The start of the producers, as far as it can be interrupted.
pub(crate) struct Building {
    wanted: Wanted,
    cancelled: AtomicBool,
    /// Cancels waits of the operating system, before there are producers.
    alarm: Alarm,
}

impl Building {
    pub(crate) fn new() -> Self {
        let cancelled = AtomicBool::new(false);
        Building { wanted: Wanted::all(), cancelled, alarm: Alarm::default() }
    }

    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn give_up(&self) {
        self.wanted.give_up_from(0);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Interrupt for Building {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.give_up();
        self.alarm.ring();
    }

    /// The first run then takes no input.
    fn drain(&self) {}
}

impl<R: Runner + 'static> Producers<R> {
    /// Starts all threads at once, and waits until each producer is ready or has exceeded `limit`. Fails if
    /// fewer than `least` can be ready or the start is cancelled; the other producers are ended first.
    ///
    /// If enough are ready, the others are recorded as [lost](Producers::losses).
    pub(crate) fn start(
        factory: &ProducerFactory<R>,
        setups: Vec<ProducerSetup>,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        least: usize,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        // Before any thread is started: registering the process for the barrier is then almost free. With
        // running threads, it takes the first run 10 ms.
        Barrier::prepare();
        let mut producers = Producers::without_threads(setups.len());
        let (startup, failure) = producers.start_all(factory, setups, stack_size, building, limit);
        let Some(error) = producers.await_ready(startup, failure, building, least) else {
            return Ok(producers);
        };
        // Errors of the others while they end are dropped: only the first failure is reported.
        drop_quietly(producers.shut_down(None));
        Err(error)
    }

    fn without_threads(producers: usize) -> Self {
        let shared = Shared::new(producers);
        Producers {
            threads: vec![],
            shared,
            losses: vec![],
            abandoned: vec![false; producers],
            away: (0..producers).map(|_| AtomicBool::new(false)).collect(),
            learned: vec![Ceiling::new(); producers],
        }
    }

    /// Starts the threads, up to the first that cannot be started.
    fn start_all(
        &mut self,
        factory: &ProducerFactory<R>,
        setups: Vec<ProducerSetup>,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        limit: Option<Duration>,
    ) -> (Startup, Option<Error>) {
        // Capacity 0: a value that arrives too late must be dropped by its sender, not by the channel.
        let (ready, outcomes) = bounded(0);
        let mut startup = Startup { outcomes, waiting: vec![], limit, ticks: 0 };
        for setup in setups {
            let (ready, site) = (ready.clone(), site(&setup, &[], None));
            let started = self.start_one(factory, setup, stack_size, building, ready);
            if let Err(error) = started {
                building.give_up();
                return (startup, Some(error));
            }
            startup.waiting.push(site);
        }
        (startup, None)
    }

    /// Waits until each producer has reported or exceeded the limit. Returns the first error that leaves too
    /// few producers; an earlier `failure` takes precedence.
    fn await_ready(
        &mut self,
        mut startup: Startup,
        mut failure: Option<Error>,
        building: &Building,
        least: usize,
    ) -> Option<Error> {
        let producers = self.away.len();
        while let Some((producer, outcome, abandoned)) = startup.next() {
            if abandoned == Abandoned::Yes {
                self.abandon(producer);
            }
            match cancelled_or(building.is_cancelled(), outcome) {
                Ok(()) => {}
                // A cancel ends the start, even if enough producers would be left.
                Err(error)
                    if failure.is_none()
                        && !building.is_cancelled()
                        && producers - self.losses.len() > least =>
                {
                    self.lose(producer, error, abandoned);
                }
                Err(error) => {
                    building.give_up();
                    keep_first(&mut failure, Err(error));
                }
            }
        }
        failure
    }

    fn lose(&mut self, producer: usize, error: Error, abandoned: Abandoned) {
        let reason = text_of(&error);
        tracing::warn!(producer = producer, %reason, "a producer failed to start; the pool goes on without it");
        self.losses.push(LostProducer { producer, reason, abandoned });
        drop_quietly(error);
    }

    fn start_one(
        &mut self,
        factory: &ProducerFactory<R>,
        setup: ProducerSetup,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        ready: Sender<(usize, Result<(), Error>)>,
    ) -> Result<(), Error> {
        let (producer, site) = (setup.producer, site(&setup, &[], None));
        let name = format!("gangline-p{producer}");
        let (factory, building) = (factory.clone(), building.clone());
        let shared = self.shared.clone();
        // Unbounded: offering a run must not block on a producer that is still in a hook of an earlier run.
        let (sender, runs) = unbounded();
        let (ending, ended) = bounded(0);
        let pool = CpuPool::of(&setup, &name, stack_size);
        let work = move |pooled: Result<(), Error>| {
            let made = pooled.and_then(|()| factory.make(setup, shared.clone(), &building.wanted));
            drop_quietly(factory);
            let (made, outcome) = match made {
                Ok(backend) => (Some(ProducerLoop::new(backend, producer, shared)), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The receiver is gone if this producer exceeded the limit.
            let unheard = ready.send((producer, outcome)).err();
            unheard.into_iter().for_each(|unsent| drop_quietly(unsent.into_inner()));
            drop(ready);
            Ended(made.map(|producer| producer.serve(&runs)))
        };
        let thread = spawn(name, stack_size, move || {
            let ended = pool.run(work);
            drop::<Sender<()>>(ending);
            ended
        })?;
        self.threads.push(ProducerThread { thread: Some(thread), runs: Some(sender), ended, site });
        Ok(())
    }

    /// Offers a run to every producer that is not gone, and waits for those that rebuild a lost state. It
    /// does not wait for a producer that is still in a hook of an earlier run, since that hook may never
    /// return.
    pub(crate) fn join(
        &self,
        run: &Arc<Run<R>>,
        participants: &Arc<Participants>,
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let lost = self.shared.stateless.swap(0, Ordering::Relaxed) > 0;
        // Capacity 0: a value that arrives too late must be dropped by its sender, not by the channel.
        let (ready, outcomes) = bounded(0);
        for (producer, entry) in self.threads.iter().enumerate() {
            let Some(runs) = entry.runs.as_ref().filter(|_| !is_gone(producer)) else {
                continue;
            };
            let is_away = self.away[producer].load(Ordering::Relaxed);
            // Unless the run begins without it: then it joins when its hook returns.
            if is_away && run.handover.dispatch.is_live(producer) {
                run.expect(producer, Absence::EarlierRun);
            }
            let ready = (lost && !is_away).then(|| ready.clone());
            let join = Join { run: run.clone(), ready, participants: participants.clone() };
            runs.send(join)
                .expect("a producer that is not gone serves until its channel is closed");
        }
        drop(ready);
        let mut failure = None;
        while let Some(outcome) = next_outcome(run, &outcomes) {
            keep_first(&mut failure, outcome);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Waits for the next producer to report. `None` once all have, or once the run has lost a producer.
fn next_outcome<R: Runner>(
    run: &Run<R>,
    outcomes: &Receiver<Result<(), Error>>,
) -> Option<Result<(), Error>> {
    let Some(tick) = run.run_settings.limits.tick() else { return outcomes.recv().ok() };
    loop {
        match outcomes.recv_timeout(tick) {
            Ok(outcome) => return Some(outcome),
            // An abandoned producer never reports.
            Err(RecvTimeoutError::Timeout) if run.losses().is_empty() => {}
            Err(_) => return None,
        }
    }
}

impl<R: Runner> Producers<R> {
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// The producers that are still in a hook of an earlier run, whose result does not count. They take no
    /// part in the next run, unless there are no others.
    pub(crate) fn away(&self) -> &Away {
        &self.away
    }

    pub(crate) fn is_away(&self, producer: usize) -> bool {
        self.away[producer].load(Ordering::Relaxed)
    }

    /// The producers that failed to start while enough others were ready.
    pub(crate) fn losses(&self) -> &[LostProducer] {
        &self.losses
    }

    pub(crate) fn is_ready(&self, producer: usize) -> bool {
        self.shared.ready[producer].load(Ordering::Relaxed)
    }

    /// The duration of each producer's latest `producer_init`.
    pub(crate) fn inits(&self) -> Vec<Duration> {
        let nanos = self.shared.inits.iter().map(|nanos| nanos.load(Ordering::Relaxed));
        nanos.map(Duration::from_nanos).collect()
    }

    /// Notes that a producer was abandoned in a run. It takes part again when its hook returns.
    pub(crate) fn note_abandoned(&mut self, producer: usize) {
        self.abandoned[producer] = true;
    }

    /// Abandons a producer for good. Its thread ends when its hook returns.
    fn abandon(&mut self, producer: usize) {
        self.shared.left[producer].store(true, Ordering::Relaxed);
        let entry = &mut self.threads[producer];
        (entry.thread, entry.runs) = (None, None);
    }

    /// For each producer that has run out of memory, the largest batch extent that it tries.
    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        self.learned.iter().map(Ceiling::extent).collect()
    }

    /// The batch limits learned in earlier runs, for each device.
    pub(crate) fn learned(&self) -> Vec<Ceiling> {
        self.learned.clone()
    }

    pub(crate) fn learn(&mut self, learned: Vec<Ceiling>) {
        self.learned = learned;
    }

    pub(crate) fn thread_ids(&self) -> Vec<ThreadId> {
        let threads = self.threads.iter().filter_map(|entry| entry.thread.as_ref());
        threads.map(|thread| thread.thread().id()).collect()
    }

    /// Whether the calling thread is one of the producers' threads.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.threads.iter().any(ProducerThread::is_own_thread)
    }

    /// Ends every producer and joins its thread. Returns the first error of a `producer_end`, by place.
    ///
    /// The calling thread cannot join itself: if a hook calls this, its producer ends once that hook returns.
    /// A producer in a hook whose result no longer counts is joined only if that hook returns within `limit`.
    ///
    /// # Panics
    ///
    /// If a thread died of a bug of ours: with its panic, after all threads have ended.
    pub(crate) fn shut_down(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        // All channels are closed before any thread is joined, so that the producers end concurrently.
        self.threads.iter_mut().for_each(|entry| entry.runs = None);
        let mut failure = None;
        let mut bug = None;
        let mut shutdown_limit = ShutdownLimit { limit, ticks: 0 };
        let states = self.away.iter().zip(&self.abandoned);
        for (entry, (is_away, &was_abandoned)) in self.threads.drain(..).zip(states) {
            let is_own_thread = entry.is_own_thread();
            let ProducerThread { thread, ended, site, .. } = entry;
            let Some(thread) = thread.filter(|_| !is_own_thread) else { continue };
            if was_abandoned && is_away.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(limit) = shutdown_limit.wait_for(&ended, is_away) {
                let (hook, site) = (Hook::ProducerWork, Box::new(site));
                keep_first(&mut failure, Err(Error::TimedOut { hook, site, limit }));
                continue;
            }
            match thread.join() {
                Ok(mut ended) => keep_first(&mut failure, ended.0.take().unwrap_or(Ok(()))),
                Err(payload) => bug = Some(payload),
            }
        }
        match bug {
            Some(payload) if !thread::panicking() => std::panic::resume_unwind(payload),
            _ => failure.map_or(Ok(()), Err),
        }
    }
}

fn is_this_thread(thread: &JoinHandle<Ended>) -> bool {
    thread.thread().id() == producer_thread()
}

/// Replaces an error by [`Error::Cancelled`] after a cancel: failing is how a hook gives up then.
pub(crate) fn cancelled_or<T>(is_cancelled: bool, outcome: Result<T, Error>) -> Result<T, Error> {
    if !is_cancelled {
        return outcome;
    }
    drop_quietly(outcome);
    Err(Error::Cancelled {})
}

/// Keeps the first error. Drops the others under a panic guard, since they are the user's.
fn keep_first(failure: &mut Option<Error>, outcome: Result<(), Error>) {
    match outcome {
        Err(error) if failure.is_none() => *failure = Some(error),
        other => drop_quietly(other),
    }
}
