//! Whether who finds nothing gives way to other threads, or sleeps at once.
//!
//! Among the threads of a run to give way is by far the cheaper one: the next of them goes on with what there is, and
//! nobody has to be woken. Beside other programs that want the same CPUs it is the dearer one: Linux takes who gives
//! way to have had its whole time slice, so that each of the others has one first, while who sleeps keeps what it is
//! owed, and is let in soon after it is woken. With four busy loops on two CPUs, runs with windows up to 64 were ten to
//! fifty times as fast when their threads slept at once; with nothing beside them, a fifth as fast.
//!
//! Which of the two it is shows in how long it takes, so that is counted, and nobody gives way while too much of the
//! time was lost with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Who was away for longer has waited for a time slice of others, which are 700 us and more on Linux and longer
/// elsewhere. Threads of a run that are handed little at a time are back long before.
const LONG: Duration = Duration::from_micros(500);
/// For each part of the time that is lost there are so many in which nobody gives way.
const PARTS: u32 = 20;
/// What may be lost before that. On a machine with nothing else to do some are away for long now and then, too.
const ALLOWANCE: Duration = Duration::from_millis(5);
/// No single loss counts for more: a program that was stopped for an hour would not give way for a day.
const LARGEST_LOSS: Duration = Duration::from_millis(100);

/// What all threads of a run have found out about it, and those of the runs before: short ones need not lose anew what
/// those have lost. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Yielding {
    start: Instant,
    /// When what was lost is made good, in nanoseconds after `start`. Apart from what else is in memory: everybody
    /// reads it all the time, and hardly anybody writes.
    made_good: Arc<CachePadded<AtomicU64>>,
}

impl Yielding {
    pub(crate) fn new(start: Instant) -> Self {
        Yielding { start, made_good: Arc::default() }
    }

    /// Gives way, if that is worth it. Whoever has done so tells [`was_away`](Yielding::was_away) when it is back.
    #[inline]
    pub(crate) fn give_way(&self, now: Instant) -> bool {
        let is_worth_it = self.is_worth_it(now);
        if is_worth_it {
            std::thread::yield_now();
        }
        is_worth_it
    }

    fn is_worth_it(&self, now: Instant) -> bool {
        // A machine that has nothing else to do has not lost anything yet.
        let made_good = self.made_good.load(Ordering::Relaxed);
        made_good == 0 || made_good <= self.nanos(now) + nanos(PARTS * ALLOWANCE)
    }

    /// A thread gave way from then until then. Where that was long, `is_loss` tells whether it was to any harm.
    #[inline]
    pub(crate) fn was_away(&self, since: Instant, until: Instant, is_loss: impl FnOnce() -> bool) {
        let away = until.saturating_duration_since(since);
        if away > LONG && is_loss() {
            self.has_lost(away.min(LARGEST_LOSS), until);
        }
    }

    #[cold]
    fn has_lost(&self, time: Duration, now: Instant) {
        let add = |made_good: u64| Some(made_good.max(self.nanos(now)) + nanos(PARTS * time));
        let _ = self.made_good.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn nanos(&self, time: Instant) -> u64 {
        nanos(time.saturating_duration_since(self.start))
    }
}

/// Enough for 584 years.
fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Gives way at that time for so long. The time when it is back.
    fn give_way(yielding: &Yielding, now: Instant, away: Duration) -> Option<Instant> {
        yielding.is_worth_it(now).then(|| {
            yielding.was_away(now, now + away, || true);
            now + away
        })
    }

    #[test]
    fn who_is_soon_back_gives_way_for_ever() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        let mut now = start;
        for _ in 0..100_000 {
            now = give_way(&yielding, now, LONG).expect("nothing was lost");
        }
    }

    #[test]
    fn who_is_long_away_sleeps_for_most_of_the_time_and_tries_again() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        let mut now = start;
        let mut away = Duration::ZERO;
        let mut times = 0;
        while now - start < 1_000 * MS {
            if let Some(back) = give_way(&yielding, now, 4 * MS) {
                (now, away, times) = (back, away + 4 * MS, times + 1);
            } else {
                now += MS;
            }
        }
        assert!(times > 10, "only {times}: nobody would notice that the others have gone");
        assert!(away <= ALLOWANCE + 4 * MS + (now - start) / PARTS, "{away:?}");
    }

    #[test]
    fn a_few_long_absences_are_allowed() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        for nth in 0..100 {
            let now = start + nth * 100 * MS;
            assert!(give_way(&yielding, now, 4 * MS).is_some(), "{nth}");
        }
    }

    #[test]
    fn an_absence_that_nobody_suffered_from_does_not_count() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        (0..100).for_each(|_| yielding.was_away(start, start + 100 * MS, || false));
        assert!(yielding.is_worth_it(start));
    }

    #[test]
    fn the_next_run_knows_what_this_one_has_lost() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        let next = yielding.clone();
        yielding.was_away(start, start + 100 * MS, || true);
        assert!(!next.is_worth_it(start + 100 * MS));
    }

    #[test]
    fn a_program_that_was_stopped_for_a_day_gives_way_again_soon() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        let back = give_way(&yielding, start, 24 * 3_600 * 1_000 * MS).unwrap();
        assert!(!yielding.is_worth_it(back));
        assert!(yielding.is_worth_it(back + PARTS * LARGEST_LOSS));
    }

    proptest! {
        /// As the first lines of this file promise it: whatever happens, not much more is lost than one part of so many.
        #[test]
        fn no_more_is_lost_than_is_allowed(
            steps in prop::collection::vec((0_u64..50_000, 0_u64..20_000), 1..500),
        ) {
            let start = Instant::now();
            let yielding = Yielding::new(start);
            let (mut now, mut lost) = (start, Duration::ZERO);
            for (pause, away) in steps {
                now += Duration::from_micros(pause);
                if let Some(back) = give_way(&yielding, now, Duration::from_micros(away)) {
                    lost += if back - now > LONG { back - now } else { Duration::ZERO };
                    now = back;
                }
                prop_assert!(lost <= ALLOWANCE + 20 * MS + (now - start) / PARTS);
            }
        }
    }
}
