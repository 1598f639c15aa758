//! Hints for the size of the window: what the feeder and the producers lack.

use crate::concurrency::atomic::{AtomicBool, Ordering};

/// Hints from the threads of a run to the collector, which decides the size of the window.
///
/// A late value does no harm, except that of [`await_full`](WindowHints::await_full). The scheduler gets the feeder's
/// state from `note_feeder`.
#[derive(Debug, Default)]
pub(crate) struct WindowHints {
    /// The feeder waits for permits.
    starving: AtomicBool,
    /// A producer ran out of items while the feeder waited for permits.
    dry: AtomicBool,
    /// The collector waits for one item, and the window grows if it is full.
    awaits_full: AtomicBool,
}

impl WindowHints {
    /// Notes that the feeder waits for permits.
    pub(super) fn starve(&self) {
        self.starving.store(true, Ordering::Release);
    }

    /// Notes that the feeder has permits, or waits for them no longer.
    pub(super) fn feed_again(&self) {
        self.starving.store(false, Ordering::Relaxed);
    }

    /// Whether the feeder waits for permits.
    pub(crate) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::Relaxed)
    }

    /// Notes that a producer has no item.
    pub(super) fn note_idle_producer(&self) {
        self.dry.store(true, Ordering::Relaxed);
    }

    /// Notes that a producer found no item, if the feeder waits for permits. It writes only a change, since all parties
    /// read this cache line.
    pub(super) fn run_dry(&self) {
        if self.is_starving() && !self.ran_dry() {
            self.note_idle_producer();
        }
    }

    /// Whether a producer ran out of items for lack of permits since
    /// [`forget_dryness`](Self::forget_dryness).
    pub(crate) fn ran_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_dryness(&self) {
        self.dry.store(false, Ordering::Relaxed);
    }

    /// Sets whether the collector, before a wait, asks to be woken once the window is full. The collector then either
    /// [sees](Self::is_full_at_last) a full window, or the feeder sees that the collector [waits](Self::is_full_awaited).
    pub(crate) fn await_full(&self, is_awaited: bool) {
        if self.is_full_awaited() != is_awaited {
            self.awaits_full.store(is_awaited, Ordering::Relaxed);
        }
    }

    pub(super) fn is_full_awaited(&self) -> bool {
        self.awaits_full.load(Ordering::Relaxed)
    }

    /// Whether the collector waits for a full window, and the window is full.
    pub(super) fn is_full_at_last(&self) -> bool {
        self.is_full_awaited() && self.is_starving()
    }
}
