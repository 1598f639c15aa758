//! Which results are still wanted, as hooks learn it.

use std::sync::Arc;

use gangline_report::CallReport;

use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::bell::{Bell, Bells};

/// The items that callers of a service still wait for.
pub(crate) trait OpenItems: std::fmt::Debug + Send + Sync {
    fn is_open(&self, item: u64) -> bool;

    /// How the calls of a service fared so far. `None` for other items.
    fn calls(&self) -> Option<CallReport> {
        None
    }
}

/// By which a hook learns that nothing waits for its call any more.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AbandonFlag<'a> {
    /// The flag of one call within a run: it is set to the number of the call, or to the greatest for all.
    Call { revoked: &'a AtomicU64, call: u64 },
    /// The flag of a hook outside of runs.
    Outside { is_left: &'a AtomicBool },
}

impl AbandonFlag<'_> {
    pub(crate) fn is_set(&self) -> bool {
        match self {
            AbandonFlag::Call { revoked, call } => {
                let revoked = revoked.load(Ordering::Relaxed);
                revoked == *call || revoked == u64::MAX
            }
            AbandonFlag::Outside { is_left } => is_left.load(Ordering::Relaxed),
        }
    }
}

/// Tracks which items' results are still wanted.
///
/// While a pool is built, it tells whether the pool is.
#[derive(Debug)]
pub struct Wanted {
    /// Items from here on are not wanted. It only ever falls. `Relaxed` is enough: it saves work and
    /// answers `is_cancelled`, while sleeping threads are woken under the lock that they sleep with.
    end: AtomicU64,
    /// Rung when it falls.
    pub(crate) bells: Bells,
}

impl Wanted {
    pub(crate) fn all() -> Self {
        Wanted { end: AtomicU64::new(u64::MAX), bells: Bells::default() }
    }

    /// Has a bell rung when fewer items are wanted.
    pub fn listen(&self, bell: &Arc<dyn Bell>) {
        self.bells.add(bell);
    }

    /// Gives up on all items from `item` on.
    pub(crate) fn give_up_from(&self, item: u64) {
        self.end.fetch_min(item, Ordering::Relaxed);
        self.bells.ring();
    }

    /// Returns whether the result for `item` is no longer wanted; without an item, whether no result is.
    #[inline]
    pub fn gave_up_on(&self, item: Option<u64>) -> bool {
        item.unwrap_or(0) >= self.end.load(Ordering::Relaxed)
    }
}
