//! State of a producer that other threads read.

use std::sync::Arc;
use std::time::Duration;

use crate::concurrency::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::concurrency::bell::Bells;
use crate::observe::event::Event;
use crate::producers::participants::Away;
use crate::run::Run;
use crate::run::handover::signals::Revocations;
use crate::run::run_state::RunState;

/// State of a producer that other threads read.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The state of all producers of its pool.
    pool: Arc<PoolShared>,
    own: Arc<Own>,
    pub(super) away: Away,
    /// The revocations of its calls in runs.
    pub(crate) revocations: Revocations,
}

/// State of all producers of a pool that other threads read.
#[derive(Debug, Default)]
pub(crate) struct PoolShared {
    /// How many more lost producers may be replaced, and calls of `producer_init` repeated.
    spares: AtomicUsize,
    /// The number of producers without a state.
    stateless: AtomicUsize,
    /// Whether they are to end without waiting for hooks that can be ended.
    is_terminated: AtomicBool,
    /// Rung when they are.
    terminating: Bells,
}

impl PoolShared {
    /// For producers of which `spares` may be replaced.
    pub(super) fn new(spares: usize) -> Self {
        PoolShared { spares: AtomicUsize::new(spares), ..PoolShared::default() }
    }

    /// Takes the right to replace a producer, or to call `producer_init` once more, if one is left.
    pub(super) fn take_spare(&self) -> bool {
        let less = |spares: usize| spares.checked_sub(1);
        self.spares.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Has the child processes of the producers be killed, whatever hook they are in.
    pub(crate) fn terminate(&self) {
        self.is_terminated.store(true, Ordering::Release);
        self.terminating.ring();
    }

    /// Whether child processes are killed in their hooks.
    pub(crate) fn is_terminated(&self) -> bool {
        self.is_terminated.load(Ordering::Acquire)
    }

    /// The number of producers that have lost their states since the last call of this.
    pub(super) fn take_stateless(&self) -> usize {
        self.stateless.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Own {
    /// Whether it has a state.
    is_ready: AtomicBool,
    /// The number of calls of `producer_init` that have returned.
    inits: AtomicUsize,
    /// The duration of the first, and of the last, in nanoseconds.
    first_init: AtomicU64,
    init: AtomicU64,
    /// Whether it was abandoned in a hook outside of runs, which reads it.
    left: AtomicBool,
    /// Whether its state was lost, and not rebuilt yet.
    was_lost: AtomicBool,
}

impl Shared {
    /// Makes the shared part of a producer that has no state of its hooks yet.
    pub(crate) fn new(pool: &Arc<PoolShared>) -> Self {
        Shared {
            pool: pool.clone(),
            own: Arc::default(),
            away: Arc::default(),
            revocations: Revocations::default(),
        }
    }

    /// Whether all producers of the pool are to end without waiting for hooks that can be ended.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(crate) fn is_terminated(&self) -> bool {
        self.pool.is_terminated()
    }

    /// The bells that ring when they are.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(crate) fn terminating(&self) -> &Bells {
        &self.pool.terminating
    }

    /// Whether it was abandoned in a hook outside of runs.
    pub(crate) fn left(&self) -> &AtomicBool {
        &self.own.left
    }

    /// Abandons it in a hook outside of runs.
    pub(super) fn leave(&self) {
        self.own.left.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.own.is_ready.load(Ordering::Relaxed)
    }

    /// Whether it is still in a hook of an earlier run, whose result does not count.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Whether no `producer_init` of it has returned yet.
    pub(crate) fn is_new(&self) -> bool {
        self.own.inits.load(Ordering::Relaxed) == 0
    }

    /// The duration of its last `producer_init`.
    pub(crate) fn init(&self) -> Duration {
        Duration::from_nanos(self.own.init.load(Ordering::Relaxed))
    }

    /// The duration of its first `producer_init`. Zero until that has returned.
    pub(crate) fn first_init(&self) -> Duration {
        Duration::from_nanos(self.own.first_init.load(Ordering::Relaxed))
    }

    /// Records the duration of a `producer_init`.
    pub fn note_init(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if self.is_new() {
            self.own.first_init.store(nanos, Ordering::Relaxed);
        }
        self.own.init.store(nanos, Ordering::Relaxed);
        self.own.inits.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the producer has a state.
    pub fn note_ready(&self) {
        self.own.is_ready.store(true, Ordering::Relaxed);
    }

    /// Records that the producer has ended its state.
    pub fn note_end(&self) {
        self.own.is_ready.store(false, Ordering::Relaxed);
    }

    /// Records that the producer has lost its state, or could not build one.
    pub(crate) fn note_loss(&self) {
        if self.own.is_ready.swap(false, Ordering::Relaxed) {
            self.own.was_lost.store(true, Ordering::Relaxed);
        }
        self.pool.stateless.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a producer whose `producer_init` has failed calls it once more in this run. Reports that as a replacement.
    pub(super) fn starts_again<I, T>(&self, run: &Run<I, T>, producer: usize) -> bool {
        let may_start = !run.wanted.gave_up_on(None) && self.pool.take_spare();
        if may_start {
            run.handover.stats.producer_replaced(producer);
            run.event_log.tell(Event::ProducerReplaced { producer });
        }
        may_start
    }

    /// Reports that the producer has built its state in a run.
    pub(crate) fn tell_ready(&self, run: &RunState, producer: usize) {
        let is_rebuilt = self.own.was_lost.swap(false, Ordering::Relaxed);
        run.event_log.tell(Event::ProducerReady { producer, took: self.init(), is_rebuilt });
    }
}
