//! One producer's part of the hand-over.

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::{Inbox, Mutex, Stealer};
use crate::run::outbox::{Outbox, OutboxReader, outbox};

/// One producer's part of the hand-over.
#[derive(Debug)]
pub(super) struct ProducerLane<I, T> {
    pub(super) inbox: Stealer<(u64, I)>,
    /// The number of items that the owner has taken from its inbox. Neighbours read it to see whether the
    /// owner makes progress. A hint.
    pub(super) progress: AtomicU64,
    /// The number of delivered results at which the owner wakes the collector. The collector sets it before
    /// it sleeps.
    pub(super) wake_at: AtomicU64,
    /// The number of delivered results that the collector had seen when it went to sleep.
    pub(super) seen: AtomicU64,
    /// The producer's ends, until the producer takes them.
    pub(super) working: Mutex<Option<LaneEnds<I, T>>>,
}

/// A producer's own ends: its inbox, and its outbox to the collector.
pub(super) type LaneEnds<I, T> = (Inbox<(u64, I)>, Outbox<T>);

impl<I, T> ProducerLane<I, T> {
    /// Creates a lane, and the collector's end of its outbox.
    pub(super) fn new(window: usize) -> (Self, OutboxReader<T>) {
        let inbox = Inbox::new();
        let (outbox, results) = outbox(window);
        let lane = ProducerLane {
            inbox: inbox.stealer(),
            progress: AtomicU64::new(0),
            wake_at: AtomicU64::new(u64::MAX),
            seen: AtomicU64::new(0),
            working: Mutex::new(Some((inbox, outbox))),
        };
        (lane, results)
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Only the owner writes, so a load and a store suffice.
    pub(super) fn advance(&self) {
        let progress = self.progress.load(Ordering::Relaxed);
        self.progress.store(progress + 1, Ordering::Relaxed);
    }
}
