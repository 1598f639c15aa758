//! The untracked items that are in hooks, for a run with an item timeout.

use crossbeam_utils::CachePadded;

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::scheduler::{ProducerId, Standing};

/// For each producer, the untracked item that its hook has.
///
/// The producer and the deadline thread both settle such an item: the one when the hook has returned, the other
/// when the scheduler says that it has taken too long. Each takes the claim away by compare-and-swap, so one of
/// them succeeds.
#[derive(Debug)]
pub(crate) struct Claims(Box<[CachePadded<AtomicU64>]>);

/// The claim of one producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a>(&'a AtomicU64);

/// No item is in a hook.
const NONE: u64 = u64::MAX;

impl Claims {
    pub(super) fn new(producers: usize) -> Self {
        Claims((0..producers).map(|_| CachePadded::new(AtomicU64::new(NONE))).collect())
    }

    pub(super) fn of(&self, producer: ProducerId) -> Claim<'_> {
        Claim(&self.0[producer])
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (ProducerId, Claim<'_>)> {
        self.0.iter().map(|claim| Claim(claim)).enumerate()
    }
}

impl Claim<'_> {
    /// Notes that a hook is about to get the item.
    #[inline]
    pub(crate) fn begin(self, item: u64) {
        // What follows in the hook may come first: a claim that is seen late only gives the hook more time.
        self.0.store(item, Ordering::Relaxed);
    }

    /// The item that a hook has.
    pub(crate) fn item(self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&item| item != NONE)
    }

    /// Takes the claim away. Returns whether the caller settles the item; the outcome is stale if the other side
    /// was first.
    #[inline]
    pub(crate) fn end(self, item: u64) -> Standing {
        // Nothing is handed over by it. What a timeout changes is under the scheduler's lock.
        match self.0.compare_exchange(item, NONE, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Standing::Counts,
            Err(_) => Standing::Stale,
        }
    }
}

/// The producer and the deadline thread reach for the same item.
#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;

    #[test]
    fn one_of_both_settles_the_item() {
        let model = || {
            let claims = Arc::new(Claims::new(1));
            let producer = {
                let claims = claims.clone();
                thread::spawn(move || {
                    let settles = |item| {
                        claims.of(0).begin(item);
                        claims.of(0).end(item) == Standing::Counts
                    };
                    (0..3).filter(|&item| settles(item)).collect::<Vec<u64>>()
                })
            };
            let mut settled = Vec::new();
            for _ in 0..4 {
                let claim = claims.of(0);
                settled.extend(claim.item().filter(|&item| claim.end(item) == Standing::Counts));
            }
            settled.extend(producer.join().unwrap());
            settled.sort_unstable();
            assert_eq!(settled, [0, 1, 2]);
        };
        shuttle::check_random(model, 10_000);
        shuttle::check_pct(model, 10_000, 3);
    }
}
