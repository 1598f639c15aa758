//! State of the producers that other threads read.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::threads::run::Run;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::observe::event::Event;
use crate::runner::Runner;

/// State of a pool's producers that other threads read.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// The number of producers without a state.
    pub(crate) stateless: Arc<AtomicUsize>,
    /// Which producers have a state.
    pub(crate) ready: Arc<[AtomicBool]>,
    /// The duration of each `producer_init`, in nanoseconds.
    pub(crate) inits: Arc<[AtomicU64]>,
    /// Which producers were abandoned. A `producer_init` reads it while the pool is built.
    pub(crate) left: Arc<[AtomicBool]>,
}

impl Shared {
    pub(crate) fn new(producers: usize) -> Self {
        let flags = || (0..producers).map(|_| AtomicBool::new(false)).collect();
        let inits = (0..producers).map(|_| AtomicU64::new(0)).collect();
        Shared { stateless: Arc::default(), ready: flags(), inits, left: flags() }
    }

    /// Records the duration of a `producer_init`.
    pub(super) fn note_init(&self, producer: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.inits[producer].store(nanos, Ordering::Relaxed);
    }

    pub(super) fn note_ready(&self, producer: usize) {
        self.ready[producer].store(true, Ordering::Relaxed);
    }

    /// Records that a producer has lost its state, or could not rebuild it.
    pub(super) fn note_loss(&self, producer: usize) {
        self.ready[producer].store(false, Ordering::Relaxed);
        self.stateless.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports that a producer has rebuilt its state.
    pub(super) fn tell_ready<R: Runner>(&self, run: &Run<R>, producer: usize) {
        let took = Duration::from_nanos(self.inits[producer].load(Ordering::Relaxed));
        run.event_log.tell(Event::ProducerReady { producer, took, is_rebuilt: true });
    }
}
