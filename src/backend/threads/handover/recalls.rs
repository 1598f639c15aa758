//! How a producer with leases ahead learns that another has nothing to do.

use crossbeam_utils::CachePadded;

use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::bell::Bells;
use crate::scheduler::ProducerId;

/// Which producers are to give back the leases that they have not begun.
#[derive(Debug)]
pub(crate) struct Recalls(Box<[CachePadded<Recall>]>);

#[derive(Debug, Default)]
struct Recall {
    is_wanted: AtomicBool,
    bells: Bells,
}

impl Recalls {
    pub(super) fn new(producers: usize) -> Self {
        Recalls((0..producers).map(|_| CachePadded::default()).collect())
    }

    /// Asks a producer, and rings its bell.
    pub(super) fn ask(&self, producer: ProducerId) {
        let Recall { is_wanted, bells } = &*self.0[producer];
        is_wanted.store(true, Ordering::Release);
        bells.ring();
    }

    /// The bells that ring when the producer is asked.
    #[cfg_attr(
        not(all(feature = "processes", target_os = "linux")),
        expect(dead_code, reason = "only a child process has items ahead")
    )]
    pub(crate) fn bells(&self, producer: ProducerId) -> &Bells {
        &self.0[producer].bells
    }

    /// Returns whether the producer was asked since the last look.
    #[cfg_attr(
        not(all(feature = "processes", target_os = "linux")),
        expect(dead_code, reason = "only a child process has items ahead")
    )]
    pub(crate) fn take(&self, producer: ProducerId) -> bool {
        self.0[producer].is_wanted.swap(false, Ordering::Acquire)
    }
}
