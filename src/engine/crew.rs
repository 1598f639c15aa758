//! The producers' threads, from building to close.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::alarm::Alarm;
use super::call::drop_quietly;
use super::cpu_pool::{CpuPool, producer_thread};
use super::placement::spread;
use super::producer::{Join, NO_CEILING, Producer, Shared};
use super::run::Run;
use crate::cancel::Interrupt;
use crate::error::Error;
use crate::runner::{Runner, Station, Wanted};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One thread for each place, each with a producer that is ready.
pub(crate) struct Crew<R: Runner> {
    runs: Vec<Sender<Join<R>>>,
    threads: Vec<JoinHandle<Ended>>,
    shared: Shared,
}

/// How a producer ended. Where nobody asks (its thread could not be joined by a hook of its own) the
/// error is dropped with care: the standard library aborts when the value of a thread panics there.
struct Ended(Option<Result<(), Error>>);

impl Drop for Ended {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

/// The building of a crew, as far as it can be interrupted.
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
    fn finish(&self) {}
}

impl<R: Runner + 'static> Crew<R> {
    /// Starts all threads at once and waits until every producer is ready. When one fails, or when
    /// the building is given up, the others are ended first.
    pub(crate) fn hire(
        runner: &Arc<R>,
        stations: Vec<Station>,
        stack_size: Option<usize>,
        building: &Arc<Building>,
    ) -> Result<Self, Error> {
        let ceilings = stations.iter().map(|_| AtomicU64::new(NO_CEILING)).collect();
        let shared = Shared { stateless: Arc::default(), ceilings };
        let mut crew = Crew { runs: vec![], threads: vec![], shared };
        // Room for all, so that no producer waits for a builder that is still starting threads.
        let (ready, outcomes) = bounded(stations.len());
        let mut failure = None;
        let producers = stations.len();
        for station in stations {
            let ready = ready.clone();
            let started = crew.start(runner, station, producers, stack_size, building, ready);
            if let Err(error) = started {
                failure = Some(error);
                building.give_up();
                break;
            }
        }
        drop(ready);
        for outcome in outcomes {
            if outcome.is_err() {
                building.give_up();
            }
            keep_first(&mut failure, cancelled_or(building.is_cancelled(), outcome));
        }
        let Some(error) = failure else { return Ok(crew) };
        // What the others fail with while they end is of no interest beside the first failure.
        drop_quietly(crew.dismiss());
        Err(error)
    }

    fn start(
        &mut self,
        runner: &Arc<R>,
        station: Station,
        producers: usize,
        stack_size: Option<usize>,
        building: &Arc<Building>,
        ready: Sender<Result<(), Error>>,
    ) -> Result<(), Error> {
        let name = format!("gangline-p{}", station.worker);
        let (runner, building) = (runner.clone(), building.clone());
        let shared = self.shared.clone();
        // One run at a time: the next is offered only when the producer has left the one before.
        let (sender, runs) = bounded(1);
        let pool = CpuPool::of(&station, &name, stack_size);
        let work = move |pooled: Result<(), Error>| {
            spread(producers);
            let producer =
                pooled.and_then(|()| Producer::new(runner, station, shared, &building.wanted));
            let (producer, outcome) = match producer {
                Ok(producer) => (Some(producer), Ok(())),
                Err(error) => (None, Err(error)),
            };
            ready.send(outcome).expect("the builder waits until this sender is dropped");
            drop(ready);
            Ended(producer.map(|producer| producer.serve(&runs)))
        };
        self.threads.push(spawn(name, stack_size, move || pool.run(work))?);
        self.runs.push(sender);
        Ok(())
    }

    /// Offers a run to every producer, and waits for those that make a lost state anew. The receiver
    /// is disconnected when all producers have left the run.
    pub(crate) fn join(&self, run: &Arc<Run<R>>) -> (Receiver<Infallible>, Result<(), Error>) {
        let (left, all_left) = bounded(0);
        let lost = self.shared.stateless.swap(0, Ordering::Relaxed) > 0;
        let (ready, outcomes) = bounded(self.runs.len());
        for runs in &self.runs {
            let ready = lost.then(|| ready.clone());
            let join = Join { run: run.clone(), ready, left: left.clone() };
            runs.send(join).expect("a producer serves until its channel is closed");
        }
        drop(ready);
        let mut failure = None;
        outcomes.into_iter().for_each(|outcome| keep_first(&mut failure, outcome));
        (all_left, failure.map_or(Ok(()), Err))
    }
}

impl<R: Runner> Crew<R> {
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// For each producer the largest extent of a batch that it tries, where it has run out of memory.
    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        let extents = self.shared.ceilings.iter().map(|extent| extent.load(Ordering::Relaxed));
        extents.map(|extent| (extent != NO_CEILING).then_some(extent)).collect()
    }

    /// Whether a hook of one of these producers asks.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.threads.iter().any(|thread| thread.thread().id() == producer_thread())
    }

    /// Ends every producer and joins its thread. The first error of a `producer_end`, by place.
    ///
    /// A producer whose own thread this is cannot be joined here: it ends by itself once the hook
    /// that it is in returns.
    ///
    /// # Panics
    ///
    /// When a thread died of a bug of ours, with its panic, after all have ended.
    pub(crate) fn dismiss(&mut self) -> Result<(), Error> {
        // A closed channel is what ends a producer: before any thread is joined.
        self.runs.clear();
        let mut failure = None;
        let mut bug = None;
        for thread in self.threads.drain(..) {
            if thread.thread().id() == producer_thread() {
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

/// Starts a thread with a name.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    stack_size: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let builder = thread::Builder::new().name(name.clone());
    let builder = match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    };
    builder.spawn(work).map_err(|source| Error::Thread { name, source })
}
