//! The scheduler of a run under its lock, with the inputs of the items that it knows.

use std::collections::HashMap;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::backend::threads::run_clock::RunClock;
use crate::backend::threads::run_shape::CarriedOver;
use crate::batch::{Ceiling, Size};
use crate::concurrency::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::concurrency::event_count::EventCount;
use crate::concurrency::{Condvar, Mutex, lock, wait};
use crate::runner::AbandonFlag;
use crate::scheduler::{
    Activity, Config, Event, Lease, LeaseId, Meta, Next, ProducerId, Readiness, RunTime, Scheduler,
};

/// Which items the scheduler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// All, from the moment that they were pulled.
    All,
    /// Those that have failed, or whose producer has.
    Failed,
}

/// The scheduler, and what its backend needs beside it.
#[derive(Debug)]
pub(crate) struct Dispatch<I> {
    pub(super) tracking: Tracking,
    state: Mutex<Tracked<I>>,
    /// One for each producer.
    sleepers: Box<[CachePadded<Sleeper>]>,
    /// How many of them sleep.
    sleeping: AtomicUsize,
    /// Of each producer, the number of the call that nothing waits for; [`ALL`] once it is abandoned.
    revoked: Box<[AtomicU64]>,
    /// Whether items wait that failed: a load for each untracked item.
    has_waiting: CachePadded<AtomicBool>,
    speculates: bool,
    /// Producers that found nothing where untracked items are.
    pub(super) idle: CachePadded<EventCount>,
    pub(crate) clock: RunClock,
}

/// What is under the lock.
#[derive(Debug)]
pub(crate) struct Tracked<I> {
    pub(crate) scheduler: Scheduler,
    /// Of items that no hook has, and copies of those that one has.
    pub(crate) inputs: HashMap<u64, I>,
}

/// Where one producer sleeps until it is woken.
#[derive(Debug)]
struct Sleeper {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

/// Stands for every call of a producer.
const ALL: u64 = u64::MAX;
/// The number of a `producer_init` for no lease.
const INIT: u64 = u64::MAX - 1;

impl<I> Dispatch<I> {
    pub(super) fn new(config: Config, CarriedOver { learned, lost }: CarriedOver) -> Self {
        let (producers, speculates) = (config.producers, config.copy_after.is_some());
        let is_timed = config.timeouts.item.is_some();
        let tracking = match config.batching.is_some() || speculates || is_timed {
            true => Tracking::All,
            false => Tracking::Failed,
        };
        let clock = RunClock::new();
        let mut scheduler = Scheduler::new(config, learned, clock.now());
        lost.into_iter().for_each(|producer| scheduler.exclude(producer));
        let sleeper = || Sleeper { is_woken: Mutex::new(false), woken: Condvar::new() };
        Dispatch {
            tracking,
            state: Mutex::new(Tracked { scheduler, inputs: HashMap::new() }),
            sleepers: (0..producers).map(|_| CachePadded::new(sleeper())).collect(),
            sleeping: AtomicUsize::new(0),
            revoked: (0..producers).map(|_| AtomicU64::new(INIT - 1)).collect(),
            has_waiting: CachePadded::new(AtomicBool::new(false)),
            speculates,
            idle: CachePadded::new(EventCount::new()),
            clock,
        }
    }

    pub(crate) fn tracking(&self) -> Tracking {
        self.tracking
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Acquire)
    }

    pub(super) fn has_sleeper(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) > 0
    }

    /// The producer was woken since it last looked here.
    pub(super) fn take_wake_up(&self, producer: ProducerId) -> bool {
        std::mem::take(&mut *lock(&self.sleepers[producer].is_woken))
    }

    pub(super) fn is_woken(&self, producer: ProducerId) -> bool {
        *lock(&self.sleepers[producer].is_woken)
    }

    /// Sleeps until the producer is woken, and no longer than until `until`.
    pub(super) fn sleep(&self, producer: ProducerId, until: Option<RunTime>) {
        let Sleeper { is_woken, woken } = &*self.sleepers[producer];
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        let mut guard = lock(is_woken);
        match until {
            None => {
                while !*guard {
                    guard = wait(woken, guard);
                }
            }
            Some(until) => {
                let most = until.since(self.clock.now());
                if !*guard && most > Duration::ZERO {
                    let waited = woken.wait_timeout(guard, most);
                    guard = waited.expect("nothing panics under a lock of ours").0;
                }
            }
        }
        *guard = false;
        drop(guard);
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }

    fn wake(&self, producer: ProducerId) {
        let Sleeper { is_woken, woken } = &*self.sleepers[producer];
        *lock(is_woken) = true;
        woken.notify_one();
    }

    /// Whether the producer was abandoned in a hook.
    pub(crate) fn is_abandoned(&self, producer: ProducerId) -> bool {
        self.revoked[producer].load(Ordering::Relaxed) == ALL
    }

    /// Every hook that the producer is in may give up.
    pub(crate) fn abandon(&self, producer: ProducerId) {
        self.revoked[producer].store(ALL, Ordering::Relaxed);
    }

    /// How a hook of the producer learns that nothing waits for its lease any more, or for a state.
    pub(crate) fn flag(&self, producer: ProducerId, lease: Option<LeaseId>) -> AbandonFlag<'_> {
        let call = lease.map_or(INIT, LeaseId::number);
        AbandonFlag::Call { revoked: &self.revoked[producer], call }
    }

    /// Takes everything out that is left.
    pub(super) fn drain(&self) -> Vec<I> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut state.inputs).into_values().collect()
    }
}

impl<I> Dispatch<I> {
    /// Calls the scheduler, and wakes the producers that it asks for. What else it asks for is the caller's.
    pub(crate) fn schedule<V>(
        &self,
        call: impl FnOnce(&mut Tracked<I>, RunTime) -> V,
    ) -> (V, Vec<Event>) {
        self.schedule_at(self.clock.now(), call)
    }

    pub(crate) fn schedule_at<V>(
        &self,
        now: RunTime,
        call: impl FnOnce(&mut Tracked<I>, RunTime) -> V,
    ) -> (V, Vec<Event>) {
        let (mut wakes, mut events) = (vec![], vec![]);
        let mut state = lock(&self.state);
        let value = call(&mut state, now);
        while let Some(event) = state.scheduler.poll_event() {
            match event {
                Event::Wake(producer) => wakes.push(producer),
                Event::Revoke { lease, producer } => {
                    // Not one that is abandoned: it stays so.
                    if !self.is_abandoned(producer) {
                        self.revoked[producer].store(lease.number(), Ordering::Relaxed);
                    }
                }
                event => events.push(event),
            }
        }
        if self.tracking == Tracking::Failed {
            let has_waiting = state.scheduler.has_waiting_items();
            if has_waiting != self.has_waiting.load(Ordering::Relaxed) {
                self.has_waiting.store(has_waiting, Ordering::Release);
            }
        }
        drop(state);
        if !wakes.is_empty() {
            wakes.into_iter().for_each(|producer| self.wake(producer));
            if self.tracking == Tracking::Failed {
                self.idle.notify_all();
            }
        }
        (value, events)
    }

    /// As [`schedule`](Handover::schedule), for a call that asks for wake-ups alone.
    fn schedule_quietly<V>(&self, call: impl FnOnce(&mut Tracked<I>, RunTime) -> V) -> V {
        let (value, events) = self.schedule(call);
        debug_assert!(events.is_empty(), "{events:?}");
        value
    }

    pub(super) fn offer(&self, index: u64, item: I, size: Size) {
        self.schedule_quietly(|state, now| {
            state.inputs.insert(index, item);
            state.scheduler.offer(index, Meta { size, since: now }, now);
        });
    }

    pub(super) fn lease(&self, producer: ProducerId, readiness: Readiness) -> Next {
        self.schedule_quietly(|state, now| state.scheduler.lease(producer, readiness, now))
    }

    /// The producer has found an item by itself.
    pub(super) fn stop_waiting(&self, producer: ProducerId) {
        self.schedule_quietly(|state, now| state.scheduler.stop_waiting(producer, now));
    }

    /// From now on the scheduler knows the item.
    pub(super) fn track(
        &self,
        (index, item): (u64, I),
        producer: ProducerId,
        readiness: Readiness,
    ) -> Lease {
        self.schedule_quietly(|state, now| {
            state.inputs.insert(index, item);
            state.scheduler.track(index, producer, readiness, now)
        })
    }

    /// The inputs of these items. `None` where some are not wanted any more.
    pub(crate) fn take_inputs(&self, items: &[u64]) -> Option<Vec<I>> {
        self.schedule_quietly(|state, _| {
            let are_here = items.iter().all(|item| state.inputs.contains_key(item));
            let taken = || items.iter().filter_map(|item| state.inputs.remove(item)).collect();
            are_here.then(taken)
        })
    }

    /// Keeps these. Those that were kept before.
    pub(crate) fn keep_inputs(&self, inputs: Vec<(u64, I)>) -> Vec<I> {
        self.schedule_quietly(|state, _| {
            let mut spare = Vec::new();
            for (index, input) in inputs {
                spare.extend(state.inputs.insert(index, input));
            }
            spare
        })
    }

    /// The inputs of items from this one on, which are not wanted any more.
    pub(crate) fn give_up_from(&self, index: u64) -> Vec<I> {
        self.schedule_quietly(|state, _| {
            state.scheduler.give_up_from(index);
            state.inputs.extract_if(|&it, _| it >= index).map(|(_, input)| input).collect()
        })
    }

    pub(crate) fn release(&self, lease: LeaseId) {
        self.schedule_quietly(|state, now| state.scheduler.release(lease, now));
    }

    pub(super) fn abort_schedule(&self) {
        self.schedule_quietly(|state, _| state.scheduler.abort());
    }

    /// No more input comes.
    pub(super) fn note_input_end(&self) {
        if self.tracking == Tracking::All {
            self.schedule_quietly(|state, now| state.scheduler.input_ended(now));
        }
    }

    pub(super) fn note_feeder(&self, activity: Activity) {
        if self.tracking == Tracking::All {
            self.schedule_quietly(|state, now| state.scheduler.feeder(activity, now));
        }
    }

    pub(super) fn note_consumer(&self, activity: Activity) {
        if self.speculates {
            self.schedule_quietly(|state, now| state.scheduler.consumer(activity, now));
        }
    }

    /// Whether producers copy what others are slow at.
    pub(crate) fn speculates(&self) -> bool {
        self.speculates
    }

    pub(crate) fn is_live(&self, producer: ProducerId) -> bool {
        self.schedule_quietly(|state, _| state.scheduler.is_live(producer))
    }

    /// Whether a producer has to ask before it takes what is new.
    pub(super) fn is_careful(&self, producer: ProducerId) -> bool {
        self.schedule_quietly(|state, _| {
            state.scheduler.is_suspect(producer) || !state.scheduler.may_take_new(producer)
        })
    }

    pub(super) fn has_retries(&self) -> bool {
        self.schedule_quietly(|state, _| state.scheduler.has_retries())
    }

    pub(super) fn may_take_new(&self, producer: ProducerId) -> bool {
        self.schedule_quietly(|state, _| state.scheduler.may_take_new(producer))
    }

    /// Whether a producer is in a hook whose result does not count.
    pub(crate) fn is_detached(&self, producer: ProducerId) -> bool {
        self.schedule_quietly(|state, _| state.scheduler.is_detached(producer))
    }

    /// What running out of memory has taught about each producer's device.
    pub(crate) fn learned(&self) -> Vec<Ceiling> {
        self.schedule_quietly(|state, _| state.scheduler.learned().to_vec())
    }
}
