//! The producers' threads, from building to close.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::backend::cpu_pool::{CpuPool, producer_thread};
use crate::backend::threads::limits::{tick_of, ticks_in};
use crate::backend::threads::lost_producer::Abandoned;
use crate::backend::threads::lost_producer::LostProducer;
use crate::backend::threads::participants::{Away, Participants};
use crate::backend::threads::producer::{Join, Producer, Shared, site};
use crate::backend::threads::run::{Run, text_of};
use crate::base::panic::drop_quietly;
use crate::batch::Ceiling;
use crate::concurrency::Barrier;
use crate::concurrency::alarm::Alarm;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::spawn;
use crate::error::{Error, Hook, Site};
use crate::runner::{ProducerSetup, Runner, Wanted};
use crate::scheduler::Absence;

/// One thread for each place, each with a producer that is ready.
pub(crate) struct Producers<R: Runner> {
    /// By the numbers of the producers.
    threads: Vec<ProducerThread<R>>,
    shared: Shared,
    /// The producers that were not ready.
    losses: Vec<LostProducer>,
    /// Those that are not back from the run before.
    away: Away,
    /// What running out of memory has taught about each device.
    learned: Vec<Ceiling>,
}

/// One producer's thread.
struct ProducerThread<R: Runner> {
    /// `None` where it was abandoned.
    thread: Option<JoinHandle<Ended>>,
    /// A closed channel is what ends it.
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

/// How long all those that lost a race may still be at it when the producers is dismissed.
struct WakeThreshold {
    /// `None`: as long as it takes.
    limit: Option<Duration>,
    ticks: u64,
}

impl WakeThreshold {
    /// Waits until a producer is back from its hook. The limit, if that takes longer.
    fn wait_for(&mut self, ended: &Receiver<()>, is_away: &AtomicBool) -> Result<(), Duration> {
        let Some(limit) = self.limit else { return Ok(()) };
        let tick = tick_of(limit);
        while is_away.load(Ordering::Relaxed) {
            if self.ticks >= ticks_in(limit, tick) {
                return Err(limit);
            }
            // Ticks, and no clock: while the process is stopped there are none.
            match ended.recv_timeout(tick) {
                Err(RecvTimeoutError::Timeout) => self.ticks += 1,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }
}

/// The producers that are not known to be ready.
struct Startup {
    outcomes: Receiver<(usize, Result<(), Error>)>,
    /// Where they are.
    waiting: Vec<Site>,
    limit: Option<Duration>,
    ticks: u64,
}

impl Startup {
    /// The next of them that is ready, has failed, or has taken too long.
    fn next(&mut self) -> Option<(usize, Result<(), Error>, Abandoned)> {
        loop {
            let Some(limit) = self.limit else {
                let (producer, outcome) = self.outcomes.recv().ok()?;
                return Some((producer, outcome, Abandoned::No));
            };
            if let Some(late) = self.late(limit) {
                return Some(late);
            }
            // Those that were given up on have not hung up.
            if self.waiting.is_empty() {
                return None;
            }
            // Ticks, and no clock: while the process is stopped there are none.
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

/// How a producer ended. Where nobody asks (its thread could not be joined by a hook of its own) the
/// error is dropped with care: the standard library aborts when the value of a thread panics there.
struct Ended(Option<Result<(), Error>>);

impl Drop for Ended {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

/// The building of a producers, as far as it can be interrupted.
pub(crate) struct Building {
    wanted: Wanted,
    cancelled: AtomicBool,
    /// For waits of the operating system, while there are no producers yet.
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
    /// Starts all threads at once and waits until every producer is ready, or has taken longer than `limit`.
    /// When more than may fail do, or when the building is given up, the others are ended first.
    ///
    /// `least`: how many have to be ready; the others are [lost](Producers::losses).
    pub(crate) fn start(
        runner: &Arc<R>,
        setups: Vec<ProducerSetup>,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        least: usize,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        // Before there are threads of ours: the operating system then hardly has to wait for any, where it takes the
        // first run 10 ms otherwise.
        Barrier::prepare();
        let mut producers = Producers::without_threads(setups.len());
        let (startup, failure) = producers.start_all(runner, setups, stack_size, building, limit);
        let Some(error) = producers.await_ready(startup, failure, building, least) else {
            return Ok(producers);
        };
        // What the others fail with while they end is of no interest beside the first failure.
        drop_quietly(producers.shut_down(None));
        Err(error)
    }

    fn without_threads(producers: usize) -> Self {
        let flags = || (0..producers).map(|_| AtomicBool::new(false)).collect();
        let numbers = |number| (0..producers).map(|_| AtomicU64::new(number)).collect();
        let shared =
            Shared { stateless: Arc::default(), ready: flags(), inits: numbers(0), left: flags() };
        Producers {
            threads: vec![],
            shared,
            losses: vec![],
            away: flags(),
            learned: vec![Ceiling::new(); producers],
        }
    }

    /// Starts the threads, up to the first that cannot be.
    fn start_all(
        &mut self,
        runner: &Arc<R>,
        setups: Vec<ProducerSetup>,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        limit: Option<Duration>,
    ) -> (Startup, Option<Error>) {
        // Without room: what comes too late is its sender's to drop, and not the channel's.
        let (ready, outcomes) = bounded(0);
        let mut startup = Startup { outcomes, waiting: vec![], limit, ticks: 0 };
        for setup in setups {
            let (ready, site) = (ready.clone(), site(&setup, &[], None));
            let started = self.start_one(runner, setup, stack_size, building, ready);
            if let Err(error) = started {
                building.give_up();
                return (startup, Some(error));
            }
            startup.waiting.push(site);
        }
        (startup, None)
    }

    /// Waits until each has said whether it is ready, or is late. The first failure, with this one before all,
    /// that is one too many.
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
                // A cancel is for all, however many could be done without.
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
        tracing::warn!(producer = producer, %reason, "a producer is not ready, and is left out");
        self.losses.push(LostProducer { producer, reason, abandoned });
        drop_quietly(error);
    }

    fn start_one(
        &mut self,
        runner: &Arc<R>,
        setup: ProducerSetup,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        ready: Sender<(usize, Result<(), Error>)>,
    ) -> Result<(), Error> {
        let (producer, site) = (setup.producer, site(&setup, &[], None));
        let name = format!("gangline-p{producer}");
        let (runner, building) = (runner.clone(), building.clone());
        let shared = self.shared.clone();
        // One that is away takes no run that it is offered, and nobody waits for that.
        let (sender, runs) = unbounded();
        let (ending, ended) = bounded(0);
        let pool = CpuPool::of(&setup, &name, stack_size);
        let work = move |pooled: Result<(), Error>| {
            let made = pooled.and_then(|()| Producer::new(runner, setup, shared, &building.wanted));
            let (made, outcome) = match made {
                Ok(made) => (Some(made), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Nobody listens to one that took too long.
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

    /// Offers a run to every producer but those that are gone, and waits for those that make a lost state
    /// anew. Not for one that is away: it may be for ever.
    pub(crate) fn join(
        &self,
        run: &Arc<Run<R>>,
        participants: &Arc<Participants>,
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let lost = self.shared.stateless.swap(0, Ordering::Relaxed) > 0;
        // Without room: what comes too late is its sender's to drop, and not the channel's.
        let (ready, outcomes) = bounded(0);
        for (producer, entry) in self.threads.iter().enumerate() {
            let Some(runs) = entry.runs.as_ref().filter(|_| !is_gone(producer)) else {
                continue;
            };
            let is_away = self.away[producer].load(Ordering::Relaxed);
            if is_away {
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

/// Whether the next producer is ready. `None` when each has said so, or too few do.
fn next_outcome<R: Runner>(
    run: &Run<R>,
    outcomes: &Receiver<Result<(), Error>>,
) -> Option<Result<(), Error>> {
    let Some(tick) = run.run_settings.limits.tick() else { return outcomes.recv().ok() };
    loop {
        match outcomes.recv_timeout(tick) {
            Ok(outcome) => return Some(outcome),
            // One that does not return is written off, and never says anything.
            Err(RecvTimeoutError::Timeout) if run.losses().is_empty() => {}
            Err(_) => return None,
        }
    }
}

impl<R: Runner> Producers<R> {
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Which producers are not back from an earlier run, in which they lost a race: those take no part in the
    /// next, unless there are no others.
    pub(crate) fn away(&self) -> &Away {
        &self.away
    }

    /// The producers that were left out when the others were ready.
    pub(crate) fn losses(&self) -> &[LostProducer] {
        &self.losses
    }

    /// Whether a producer has a state.
    pub(crate) fn is_ready(&self, producer: usize) -> bool {
        self.shared.ready[producer].load(Ordering::Relaxed)
    }

    /// How long each `producer_init` took.
    pub(crate) fn inits(&self) -> Vec<Duration> {
        let nanos = self.shared.inits.iter().map(|nanos| nanos.load(Ordering::Relaxed));
        nanos.map(Duration::from_nanos).collect()
    }

    /// Nobody waits for a producer any more. It ends when its hook returns.
    pub(crate) fn abandon(&mut self, producer: usize) {
        self.shared.left[producer].store(true, Ordering::Relaxed);
        let entry = &mut self.threads[producer];
        (entry.thread, entry.runs) = (None, None);
    }

    /// For each producer the largest extent of a batch that it tries, where it has run out of memory.
    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        self.learned.iter().map(Ceiling::extent).collect()
    }

    /// What earlier runs have taught about each device.
    pub(crate) fn learned(&self) -> Vec<Ceiling> {
        self.learned.clone()
    }

    pub(crate) fn learn(&mut self, learned: Vec<Ceiling>) {
        self.learned = learned;
    }

    /// Whether a hook of one of these producers asks.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.threads.iter().any(ProducerThread::is_own_thread)
    }

    /// Ends every producer and joins its thread. The first error of a `producer_end`, by place.
    ///
    /// A producer whose own thread this is cannot be joined here: it ends by itself once the hook
    /// that it is in returns. One that has lost a race is joined only if that hook returns within `limit`.
    ///
    /// # Panics
    ///
    /// When a thread died of a bug of ours, with its panic, after all have ended.
    pub(crate) fn shut_down(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        // A closed channel is what ends a producer: before any thread is joined.
        self.threads.iter_mut().for_each(|entry| entry.runs = None);
        let mut failure = None;
        let mut bug = None;
        let mut wake_threshold = WakeThreshold { limit, ticks: 0 };
        for (entry, is_away) in self.threads.drain(..).zip(&*self.away) {
            let is_own_thread = entry.is_own_thread();
            let ProducerThread { thread, ended, site, .. } = entry;
            let Some(thread) = thread.filter(|_| !is_own_thread) else { continue };
            if let Err(limit) = wake_threshold.wait_for(&ended, is_away) {
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

/// After a cancel an error is how a hook gives up, and no failure of its own.
pub(crate) fn cancelled_or<T>(is_cancelled: bool, outcome: Result<T, Error>) -> Result<T, Error> {
    if !is_cancelled {
        return outcome;
    }
    drop_quietly(outcome);
    Err(Error::Cancelled {})
}

/// Keeps the first error, and drops the others with care: they are the user's.
fn keep_first(failure: &mut Option<Error>, outcome: Result<(), Error>) {
    match outcome {
        Err(error) if failure.is_none() => *failure = Some(error),
        other => drop_quietly(other),
    }
}
