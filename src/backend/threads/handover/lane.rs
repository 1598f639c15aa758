//! What belongs to one producer in the hand-over.

use crate::backend::threads::outbox::{Outbox, Results, outbox};
use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::{Inbox, Mutex, Stealer};

/// What belongs to one producer.
#[derive(Debug)]
pub(super) struct Lane<I, T> {
    pub(super) inbox: Stealer<(u64, I)>,
    /// How many items the owner has taken out of its inbox: written by the owner, read by
    /// neighbours to see whether it stands still. A hint.
    pub(super) progress: AtomicU64,
    /// How many results this lane's producer has to have delivered for it to wake the collector:
    /// written by the collector before it sleeps.
    pub(super) wake_at: AtomicU64,
    /// How many of them the collector had seen when it went to sleep.
    pub(super) seen: AtomicU64,
    /// What the producer takes with it.
    pub(super) working: Mutex<Option<Working<I, T>>>,
}

/// A producer's own ends: of its inbox, and of the way to the collector.
pub(super) type Working<I, T> = (Inbox<(u64, I)>, Outbox<T>);

impl<I, T> Lane<I, T> {
    /// A lane, and where its results come out.
    pub(super) fn new(window: usize) -> (Self, Results<T>) {
        let inbox = Inbox::new();
        let (outbox, results) = outbox(window);
        let lane = Lane {
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

    /// Only the owner writes, so a load and a store do.
    pub(super) fn advance(&self) {
        let progress = self.progress.load(Ordering::Relaxed);
        self.progress.store(progress + 1, Ordering::Relaxed);
    }
}
