//! The untracked items that are in hooks, for a run with an item timeout.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::scheduler::{ProducerId, RunTime, Standing};

/// For each producer, the untracked item that its hook has.
///
/// The producer and the deadline thread both settle such an item: the one when the hook has returned, the other
/// when it has taken too long. Each takes the claim away by compare-and-swap, so one of them succeeds. The
/// producer reads no clock; the deadline thread notes when it first sees a claim.
#[derive(Debug)]
pub(crate) struct Claims(Box<[CachePadded<AtomicU64>]>);

/// The claim of one producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a>(&'a AtomicU64);

/// The deadline thread's view of the claims.
#[derive(Debug)]
pub(crate) struct ClaimWatch {
    /// For each producer, the claim seen at the last look, and the time of the first look that saw it.
    seen: Vec<(u64, RunTime)>,
    begun: RunTime,
}

/// No item is in a hook.
const NONE: u64 = u64::MAX;

impl Claims {
    pub(super) fn new(producers: usize) -> Self {
        Claims((0..producers).map(|_| CachePadded::new(AtomicU64::new(NONE))).collect())
    }

    pub(super) fn of(&self, producer: ProducerId) -> Claim<'_> {
        Claim(&self.0[producer])
    }
}

impl Claim<'_> {
    /// Notes that a hook is about to get the item.
    #[inline]
    pub(crate) fn begin(self, item: u64) {
        // What follows in the hook may come first: a claim that is seen late only gives the hook more time.
        self.0.store(item, Ordering::Relaxed);
    }

    /// Takes the claim away, and returns whether the item's outcome counts. It is stale if the other side has taken the
    /// claim away first.
    #[inline]
    pub(crate) fn end(self, item: u64) -> Standing {
        // Nothing is handed over by it. What a timeout changes is under the scheduler's lock.
        match self.0.compare_exchange(item, NONE, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Standing::Counts,
            Err(_) => Standing::Stale,
        }
    }
}

impl ClaimWatch {
    pub(crate) fn new(now: RunTime) -> Self {
        ClaimWatch { seen: vec![], begun: now }
    }

    /// Takes the claims away that have been there for `limit`. Returns each producer with its item. The caller
    /// reports the outcomes of these items.
    ///
    /// A producer has an untracked item only once, so an equal claim is the same call.
    pub(crate) fn take_overdue(
        &mut self,
        claims: &Claims,
        limit: Duration,
        now: RunTime,
    ) -> Vec<(ProducerId, u64)> {
        let mut overdue = Vec::new();
        self.seen.resize(claims.0.len(), (NONE, self.begun));
        for (producer, seen) in self.seen.iter_mut().enumerate() {
            let claim = claims.of(producer);
            let item = claim.0.load(Ordering::Relaxed);
            if item != seen.0 {
                *seen = (item, now);
            } else if item != NONE
                && now.since(seen.1) >= limit
                && claim.end(item) == Standing::Counts
            {
                overdue.push((producer, item));
            }
        }
        overdue
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(16);

    fn at(ms: u64) -> RunTime {
        RunTime::at(Duration::from_millis(ms))
    }

    #[test]
    fn the_limit_counts_from_the_first_look_at_the_call() {
        let claims = Claims::new(2);
        let mut watch = ClaimWatch::new(at(0));
        claims.of(1).begin(7);
        assert_eq!(watch.take_overdue(&claims, LIMIT, at(20)), []);
        assert_eq!(watch.take_overdue(&claims, LIMIT, at(35)), []);
        assert_eq!(watch.take_overdue(&claims, LIMIT, at(36)), [(1, 7)]);
        assert_eq!(claims.of(1).end(7), Standing::Stale);
        assert_eq!(watch.take_overdue(&claims, LIMIT, at(90)), [], "it is reported once");
    }

    #[test]
    fn each_call_has_the_whole_limit() {
        let claims = Claims::new(1);
        let mut watch = ClaimWatch::new(at(0));
        for item in 0..9 {
            claims.of(0).begin(item);
            assert_eq!(watch.take_overdue(&claims, LIMIT, at(15 * item)), []);
            assert_eq!(claims.of(0).end(item), Standing::Counts);
        }
        assert_eq!(watch.take_overdue(&claims, LIMIT, at(1_000)), [], "it is in no hook");
    }
}

/// The producer and the deadline thread reach for the same item.
#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;

    #[test]
    fn one_of_both_reports_the_item() {
        let model = || {
            let claims = Arc::new(Claims::new(1));
            let producer = {
                let claims = claims.clone();
                thread::spawn(move || {
                    let report = |item| {
                        claims.of(0).begin(item);
                        claims.of(0).end(item) == Standing::Counts
                    };
                    (0..3).filter(|&item| report(item)).collect::<Vec<u64>>()
                })
            };
            let mut watch = ClaimWatch::new(RunTime::START);
            let mut reported = Vec::new();
            for _ in 0..4 {
                let overdue = watch.take_overdue(&claims, Duration::ZERO, RunTime::START);
                reported.extend(overdue.into_iter().map(|(_, item)| item));
            }
            reported.extend(producer.join().unwrap());
            reported.sort_unstable();
            assert_eq!(reported, [0, 1, 2]);
        };
        shuttle::check_random(model, 10_000);
        shuttle::check_pct(model, 10_000, 3);
    }
}
