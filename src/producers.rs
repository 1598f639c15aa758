//! The producers' threads, from start to shutdown.

pub(crate) mod backend;
#[cfg_attr(not(feature = "rayon"), path = "producers/no_cpu_pool.rs")]
pub(crate) mod cpu_pool;
pub(crate) mod deadline_thread;
pub(crate) mod lease_desk;
pub(crate) mod leasing;
pub(crate) mod lifetime;
pub(crate) mod participants;
pub(crate) mod pool_backend;
pub(crate) mod pool_settings;
pub(crate) mod producer_factory;
pub(crate) mod producer_loop;
pub(crate) mod producer_threads;
pub(crate) mod ready;
pub(crate) mod seat_record;
pub(crate) mod shared;
pub(crate) mod startup;
pub(crate) mod thread_wrapper;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gangline_scheduler::Absence;
use gangline_scheduler::batch::DeviceBatches;

use crate::base::panic::drop_quietly;
use crate::concurrency::alarm::Alarm;
use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::home_process::HomeProcess;
use crate::concurrency::{Barrier, now};
use crate::error::{Error, Hook, text_of};
use crate::producers::cpu_pool::producer_thread;
use crate::producers::participants::Participants;
use crate::producers::producer_factory::ProducerFactory;
use crate::producers::producer_threads::{
    ProducerThread, ProducerThreads, ThreadIds, ThreadResult, ThreadSettings,
};
use crate::producers::ready::{NoReport, ReadyReceiver, ready_channel};
use crate::producers::shared::Shared;
use crate::producers::startup::{FirstInit, Startup};
use crate::run::Run;
use crate::run::lost_producer::{Abandoned, LostProducer, LostProducers};
use crate::run::run_shape::Rebuilt;
use crate::run::time_limits::{tick_of, ticks_in};
use crate::runner::Wanted;

/// The producers of a pool: one for each place.
pub(crate) struct Producers<I, T> {
    pub(crate) threads: ProducerThreads<I, T>,
    /// The process in which they were started.
    pub(crate) home: HomeProcess,
    /// The producers that failed to start.
    losses: Vec<LostProducer>,
    /// What was learned about the batches of each place's device.
    learned: Vec<DeviceBatches>,
    /// The time that they took to get ready; zero once a run has reported it.
    pub(crate) start_up: Duration,
}

/// How long a shutdown waits for hooks.
struct ShutdownLimits {
    /// In all, for hooks of items that were revoked. `None`: without limit.
    work: Option<Duration>,
    work_ticks: u64,
    /// For each `producer_end`. They begin together, unless a producer is away.
    end: Option<Duration>,
    end_ticks: u64,
}

impl ShutdownLimits {
    fn new(work: Option<Duration>, end: Option<Duration>) -> Self {
        ShutdownLimits { work, work_ticks: 0, end, end_ticks: 0 }
    }

    /// Waits until the producer has ended. Returns the hook that takes longer than its limit.
    fn wait_for(&mut self, ended: &Receiver<()>, shared: &Shared) -> Result<(), (Hook, Duration)> {
        if shared.is_away() {
            if let Some(limit) = self.work {
                let is_away = || shared.is_away();
                let in_time = wait_within(ended, limit, &mut self.work_ticks, is_away);
                in_time.map_err(|limit| (Hook::ProducerWork, limit))?;
            } else {
                // The time of `producer_end` begins when this hook has returned, which nothing limits.
                return Ok(());
            }
            self.end_ticks = 0;
        }
        let Some(limit) = self.end else { return Ok(()) };
        let in_time = wait_within(ended, limit, &mut self.end_ticks, || true);
        in_time.map_err(|limit| (Hook::ProducerEnd, limit))
    }
}

/// Waits for the end of a thread while `goes_on`. Returns the limit as the error if that takes longer.
fn wait_within(
    ended: &Receiver<()>,
    limit: Duration,
    ticks: &mut u64,
    goes_on: impl Fn() -> bool,
) -> Result<(), Duration> {
    let tick = tick_of(limit);
    while goes_on() {
        // Also a thread that is waited for after the limit of others may have ended.
        let is_over = *ticks >= ticks_in(limit, tick);
        let wait = if is_over { Duration::ZERO } else { tick };
        // Counts ticks instead of reading a clock, since no ticks pass while the process is stopped.
        match ended.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) if is_over => return Err(limit),
            Err(RecvTimeoutError::Timeout) => *ticks += 1,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

/// The start of the producers, as far as it can be interrupted.
pub(crate) struct Building {
    wanted: Arc<Wanted>,
    cancelled: AtomicBool,
    /// Cancels waits of the operating system, before there are producers.
    alarm: Alarm,
}

impl Building {
    pub(crate) fn new() -> Self {
        let cancelled = AtomicBool::new(false);
        Building { wanted: Arc::new(Wanted::all()), cancelled, alarm: Alarm::default() }
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

    fn is_aborted(&self) -> bool {
        self.is_cancelled()
    }
}

impl<I: Send + 'static, T: Send + 'static> Producers<I, T> {
    /// Starts a thread for each of `places` at once, and waits until each producer is ready or has exceeded
    /// `limit`. Fails if fewer than `least` can be ready or the start is cancelled; the other producers are ended
    /// first.
    ///
    /// If enough are ready, the others are recorded as [lost](Producers::losses). It waits for none of them if their states
    /// are built in the first run.
    pub(crate) fn start(
        factory: &ProducerFactory<I, T>,
        settings: ThreadSettings,
        places: usize,
        building: &Building,
        least: usize,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        // Before any thread is started: registering the process for the barrier is then almost free. With
        // running threads, it takes the first run 10 ms.
        Barrier::prepare();
        let threads = ProducerThreads::new(factory.clone(), settings);
        let learned = vec![DeviceBatches::default(); places];
        let (home, since, start_up) = (HomeProcess::here(), now(), Duration::ZERO);
        let mut producers = Producers { threads, home, losses: vec![], learned, start_up };
        let failed = match producers.threads.first_init() {
            FirstInit::InRun => {
                (0..places).try_for_each(|_| producers.threads.start_next_in_run()).err()
            }
            FirstInit::InBuild => {
                let (startup, failure) = producers.start_all(places, building, limit);
                producers.await_ready(startup, failure, building, least)
            }
        };
        let Some(error) = failed else {
            return Ok(Producers { start_up: now() - since, ..producers });
        };
        // Errors of the others while they end are dropped: only the first failure is reported.
        drop_quietly(producers.shut_down(None));
        Err(error)
    }

    /// Starts the threads, up to the first that cannot be started.
    fn start_all(
        &mut self,
        places: usize,
        building: &Building,
        limit: Option<Duration>,
    ) -> (Startup, Option<Error>) {
        let (ready, outcomes) = ready_channel();
        let mut startup = Startup { outcomes, waiting: vec![], limit, ticks: 0 };
        for _ in 0..places {
            match self.threads.start_next(building.wanted.clone(), ready.clone()) {
                Ok(site) => startup.waiting.push(site),
                Err(error) => {
                    building.give_up();
                    return (startup, Some(error));
                }
            }
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
        let producers = self.learned.len();
        while let Some((producer, outcome, abandoned)) = startup.next() {
            if abandoned == Abandoned::Yes {
                self.threads.abandon(producer);
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

    /// Starts producers, before a run, in the places of those that are gone, or have not returned from a hook that
    /// exceeded its timeout. Removes those from the lists, and returns their places.
    pub(crate) fn replace_all(
        &mut self,
        gone: &mut LostProducers,
        abandoned: &mut LostProducers,
    ) -> Vec<usize> {
        let stuck = abandoned.all().iter().filter(|loss| self.is_away(loss.producer));
        let lost: Vec<_> = gone.all().iter().chain(stuck).cloned().collect();
        let mut replaced = Vec::new();
        for LostProducer { producer, abandoned, .. } in lost {
            match self.threads.replace(producer, abandoned == Abandoned::Yes) {
                Ok(true) => replaced.push(producer),
                Ok(false) => break,
                // Without this producer the run may still have enough.
                Err(error) => tracing::warn!("a lost producer could not be replaced: {error:#}"),
            }
        }
        gone.remove_all(&replaced);
        abandoned.remove_all(&replaced);
        replaced
    }

    /// Offers a run to all that are not gone. Waits for lost states, but for none still in an earlier run's hook.
    pub(crate) fn join(
        &self,
        run: &Arc<Run<I, T>>,
        participants: &Arc<Participants>,
        rebuilt: Rebuilt,
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let lost = rebuilt.awaits(self.threads.shared.take_stateless());
        let (ready, outcomes) = ready_channel();
        for producer in (0..self.len()).filter(|&producer| !is_gone(producer)) {
            let shared = self.threads.shared(producer);
            // Unless the run begins without it: then it joins when its hook returns.
            if shared.is_away() && run.handover.dispatch.is_live(producer) {
                run.expect(producer, Absence::EarlierRun);
            }
            // The run does not wait for a new one either.
            let is_awaited = lost && !shared.is_away() && !shared.is_new();
            let ready = is_awaited.then(|| ready.clone());
            self.threads.offer(producer, run, participants, ready);
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
fn next_outcome<I, T>(run: &Run<I, T>, outcomes: &ReadyReceiver) -> Option<Result<(), Error>> {
    let Some(tick) = run.run_settings.limits.tick() else {
        return outcomes.next().map(|(_, outcome)| outcome);
    };
    loop {
        match outcomes.next_within(tick) {
            Ok((_, outcome)) => return Some(outcome),
            // An abandoned producer never reports.
            Err(NoReport::Yet) if run.losses().is_empty() => {}
            Err(_) => return None,
        }
    }
}

impl<I, T> Producers<I, T> {
    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.learned.len()
    }

    /// Whether a producer is still in a hook of an earlier run, whose result does not count. It takes no part in
    /// the next run, unless there are no others.
    pub(crate) fn is_away(&self, producer: usize) -> bool {
        self.threads.shared(producer).is_away()
    }

    /// The producers that the next run begins without, since they are still in a hook of the last. If there are no
    /// others, it waits for those that were not abandoned.
    pub(crate) fn away(&self, gone: &LostProducers, abandoned: &LostProducers) -> Vec<usize> {
        let here = (0..self.len()).filter(|&producer| !gone.has(producer));
        let mut away: Vec<usize> = here.filter(|&producer| self.is_away(producer)).collect();
        if away.len() + gone.all().len() == self.len() {
            away.retain(|&producer| abandoned.has(producer));
        }
        away
    }

    /// Whether a producer replaces another and has no state yet.
    pub(crate) fn is_starting(&self, producer: usize) -> bool {
        self.threads.shared(producer).is_new()
    }

    /// The producers that failed to start while enough others were ready.
    pub(crate) fn losses(&self) -> &[LostProducer] {
        &self.losses
    }

    pub(crate) fn is_ready(&self, producer: usize) -> bool {
        self.threads.shared(producer).is_ready()
    }

    /// The duration of a producer's latest `producer_init`.
    pub(crate) fn init(&self, producer: usize) -> Duration {
        self.threads.shared(producer).init()
    }

    /// The duration of a producer's first `producer_init`. Zero until that has returned.
    pub(crate) fn first_init(&self, producer: usize) -> Duration {
        self.threads.shared(producer).first_init()
    }

    /// Notes that a producer was abandoned in a run. It takes part again when its hook returns.
    pub(crate) fn note_abandoned(&mut self, producer: usize) {
        self.threads.note_abandoned(producer);
    }

    /// The largest batch extent that a producer tries, if it has run out of memory.
    pub(crate) fn ceiling(&self, producer: usize) -> Option<u64> {
        self.learned[producer].memory()
    }

    /// What earlier runs have learned about batches, for each device.
    pub(crate) fn learned(&self) -> Vec<DeviceBatches> {
        self.learned.clone()
    }

    pub(crate) fn learn(&mut self, learned: Vec<DeviceBatches>) {
        self.learned = learned;
    }

    pub(crate) fn thread_ids(&self) -> ThreadIds {
        self.threads.ids()
    }

    /// Whether the calling thread is one of the producers' threads.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.threads.ids().is_own_thread()
    }

    /// Ends every producer and joins its thread. Returns the first error of a `producer_end`, by place.
    ///
    /// The calling thread cannot join itself: if a hook calls this, its producer ends once that hook returns.
    /// If the result of a producer's hook no longer counts, it is joined only if that hook returns within `limit`;
    /// any, only if its `producer_end` returns within the end timeout.
    ///
    /// # Panics
    ///
    /// If a thread died of a bug of ours: with its panic, after all threads have ended.
    pub(crate) fn shut_down(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let (mut failure, mut bug) = (None, None);
        let mut limits = ShutdownLimits::new(limit, self.threads.end_timeout());
        for entry in self.threads.close() {
            let ProducerThread { thread, ended, site, shared, was_abandoned, .. } = entry;
            let Some(thread) = thread.filter(|thread| !is_this_thread(thread)) else { continue };
            if was_abandoned && shared.is_away() {
                continue;
            }
            if let Err((hook, limit)) = limits.wait_for(&ended, &shared) {
                shared.leave();
                let site = Box::new(site);
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

fn is_this_thread(thread: &JoinHandle<ThreadResult>) -> bool {
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
