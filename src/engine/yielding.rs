//! Whether who finds nothing gives way to other threads, or sleeps at once.
//!
//! Among the threads of a run to give way is by far the cheaper one: the next of them goes on with what there is, and
//! nobody has to be woken. Beside other programs that want the same CPUs it is the dearer one: Linux takes who gives
//! way to have had its whole time slice, so that each of the others has one first, while who sleeps keeps what it is
//! owed, and is let in soon after it is woken. With four busy loops on two CPUs, runs with windows up to 64 were ten to
//! fifty times as fast when their threads slept at once; with nothing beside them, a fifth to a twelfth as fast.
//!
//! Which of the two it is shows when a thread that gave way is back after long: either this process has used the time,
//! for a slow item or a source that computes, or it is lost. While too much was lost nobody gives way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::{Mutex, lock};

/// Who was away for longer may have waited for a time slice of others, which are 700 us and more on Linux. To ask what
/// the process has used costs a few microseconds.
const LONG: Duration = Duration::from_micros(500);
/// For each part of the time that is lost there are so many in which nobody gives way.
const PARTS: u32 = 20;
/// What may be lost before that: now and then a machine that has nothing else to do takes a slice away, too.
const ALLOWANCE: Duration = Duration::from_millis(5);
/// Nobody sleeps at once for longer than this for what was lost before: a program that was stopped for an hour would do
/// so for a day.
const LONGEST: Duration = Duration::from_secs(1);

/// What all threads of a run have found out about it, and those of the runs before: short ones need not lose anew what
/// those have lost. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Yielding {
    start: Instant,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// When what was lost is made good, in nanoseconds after `start`. Apart from what else is in memory: everybody
    /// reads it all the time, and hardly anybody writes.
    made_good_at: CachePadded<AtomicU64>,
    losses: Mutex<Losses>,
}

impl Yielding {
    pub(crate) fn new(start: Instant) -> Self {
        let losses = Mutex::new(Losses::new(start));
        Yielding {
            start,
            shared: Arc::new(Shared { made_good_at: CachePadded::default(), losses }),
        }
    }

    /// Gives way, if that is worth it. Whoever has done so calls [`is_back`](Yielding::is_back) afterwards.
    #[inline]
    pub(crate) fn give_way(&self, now: Instant) -> bool {
        let is_worth_it = self.is_worth_it(now);
        if is_worth_it {
            std::thread::yield_now();
        }
        is_worth_it
    }

    /// Whether it is worth it to give way, or to stay awake otherwise.
    #[inline]
    pub(crate) fn is_worth_it(&self, now: Instant) -> bool {
        let made_good_at = self.shared.made_good_at.load(Ordering::Relaxed);
        // A short cut, for runs that never lost anything.
        made_good_at == 0 || made_good_at <= self.nanos(now + PARTS * ALLOWANCE)
    }

    /// Whether time was lost lately, as far as is known: other programs want the CPUs.
    pub(crate) fn has_lost_time(&self, now: Instant) -> bool {
        let made_good_at = self.shared.made_good_at.load(Ordering::Relaxed);
        made_good_at != 0 && made_good_at > self.nanos(now)
    }

    /// A thread that gave way `since` then is back `now`.
    #[inline]
    pub(crate) fn is_back(&self, since: Instant, now: Instant) {
        if now.saturating_duration_since(since) > LONG {
            self.judge(since, now);
        }
    }

    #[cold]
    fn judge(&self, since: Instant, now: Instant) {
        if let Some(used) = system::processor_time() {
            self.note(since, now, used);
        }
    }

    fn note(&self, since: Instant, now: Instant, used: Duration) {
        let mut losses = lock(&self.shared.losses);
        let made_good_at = losses.add(since, now, used);
        self.shared.made_good_at.store(self.nanos(made_good_at), Ordering::Relaxed);
    }

    /// After `start`: enough for 584 years.
    fn nanos(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.start).as_nanos() as u64
    }
}

/// What was lost: a decision without clocks.
#[derive(Debug)]
struct Losses {
    /// When a thread was last back after long, and the processor time of all threads of the process until then.
    seen: Option<(Instant, Duration)>,
    made_good_at: Instant,
}

impl Losses {
    fn new(start: Instant) -> Self {
        Losses { seen: None, made_good_at: start }
    }

    /// A thread was away for long, and the process has `used` so much processor time by now, in all. When what was lost
    /// will be made good.
    ///
    /// What it used meanwhile is taken to be all that it used since a thread was last back from long. So too little is
    /// lost rather than too much, and where all threads are away for long the difference is small. Time in which several
    /// of them are away counts once.
    fn add(&mut self, since: Instant, now: Instant, used: Duration) -> Instant {
        let Some((seen_at, used_before)) = self.seen.replace((now, used)) else {
            return self.made_good_at;
        };
        let away = now.saturating_duration_since(since.max(seen_at));
        let used = used.saturating_sub(used_before);
        // A slow item uses all of it, but for what the system takes.
        if used < away * 3 / 4 {
            let made_good_at = self.made_good_at.max(now) + PARTS * (away - used).min(LONGEST);
            self.made_good_at = made_good_at.min(now + LONGEST);
        }
        self.made_good_at
    }
}

#[cfg(all(target_os = "linux", not(shuttle)))]
mod system {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// Of all threads of this process.
    pub(super) fn processor_time() -> Option<Duration> {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
    }
}

#[cfg(any(not(target_os = "linux"), shuttle))]
mod system {
    use std::time::Duration;

    /// Nothing counts as lost there: what it costs to give way was not measured.
    pub(super) fn processor_time() -> Option<Duration> {
        None
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NONE: Duration = Duration::ZERO;

    /// A thread, with a clock and a counter of processor time beside it.
    struct Thread {
        yielding: Yielding,
        now: Instant,
        used: Duration,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            let mut thread = Thread { yielding: Yielding::new(now), now, used: NONE };
            thread.is_away(MS, MS);
            thread
        }

        fn works(&mut self, time: Duration) {
            self.now += time;
            self.used += time;
        }

        fn is_away(&mut self, time: Duration, used: Duration) {
            let since = self.now;
            self.now += time;
            self.used += used;
            self.yielding.note(since, self.now, self.used);
        }

        /// Whether it gave way at all.
        fn gives_way(&mut self, time: Duration, used: Duration) -> bool {
            let is_worth_it = self.yielding.is_worth_it(self.now);
            if is_worth_it {
                self.is_away(time, used);
            }
            is_worth_it
        }
    }

    #[test]
    fn a_slow_item_of_our_own_is_no_loss() {
        let mut thread = Thread::new();
        for _ in 0..1_000 {
            assert!(thread.gives_way(5 * MS, 5 * MS));
        }
    }

    #[test]
    fn what_the_system_takes_of_a_slow_item_is_no_loss() {
        let mut thread = Thread::new();
        for _ in 0..1_000 {
            assert!(thread.gives_way(5 * MS, 4 * MS));
        }
    }

    #[test]
    fn who_loses_time_soon_sleeps_at_once() {
        let mut thread = Thread::new();
        assert!(thread.gives_way(4 * MS, NONE));
        assert!(thread.gives_way(4 * MS, NONE), "so much may be lost");
        assert!(!thread.gives_way(4 * MS, NONE));
    }

    #[test]
    fn who_has_lost_time_is_not_alone_until_it_is_made_good() {
        let mut thread = Thread::new();
        assert!(!thread.yielding.has_lost_time(thread.now));
        thread.is_away(4 * MS, NONE);
        assert!(thread.yielding.has_lost_time(thread.now + 4 * MS * (PARTS - 1)));
        assert!(!thread.yielding.has_lost_time(thread.now + 4 * MS * PARTS));
    }

    #[test]
    fn who_loses_time_tries_again_and_loses_little() {
        let mut thread = Thread::new();
        let start = thread.now;
        let mut times = 0;
        while thread.now - start < 2_000 * MS {
            match thread.gives_way(4 * MS, MS / 10) {
                true => times += 1,
                false => thread.now += MS,
            }
        }
        assert!(times > 10, "only {times}: nobody would notice that the others have gone");
        let most = ALLOWANCE + 4 * MS + (thread.now - start) / PARTS;
        assert!(times * 4 * MS <= most + most / 10, "{times} times");
    }

    #[test]
    fn a_loss_in_which_many_are_away_counts_once() {
        let mut thread = Thread::new();
        let since = thread.now;
        thread.is_away(4 * MS, NONE);
        for _ in 0..100 {
            thread.yielding.note(since, thread.now, thread.used);
        }
        assert!(thread.gives_way(4 * MS, NONE));
    }

    #[test]
    fn what_was_used_is_no_loss_of_who_was_away_meanwhile() {
        let mut thread = Thread::new();
        let since = thread.now;
        thread.works(100 * MS);
        thread.yielding.note(since, thread.now, thread.used);
        assert!(thread.gives_way(MS, MS));
        assert!(thread.gives_way(MS, MS));
    }

    #[test]
    fn a_program_that_was_stopped_for_an_hour_gives_way_again_soon() {
        let mut thread = Thread::new();
        thread.is_away(3_600 * 1_000 * MS, NONE);
        assert!(!thread.yielding.is_worth_it(thread.now));
        assert!(thread.yielding.is_worth_it(thread.now + LONGEST));
    }

    #[test]
    fn clones_know_of_each_others_losses() {
        let mut thread = Thread::new();
        let other = thread.yielding.clone();
        thread.is_away(100 * MS, NONE);
        assert!(!other.is_worth_it(thread.now));
    }

    #[test]
    fn the_clock_of_the_system_is_asked() {
        let start = Instant::now();
        let yielding = Yielding::new(start);
        yielding.is_back(start, start + MS);
        let seen = lock(&yielding.shared.losses).seen.map(|(at, _)| at);
        assert_eq!(seen, cfg!(target_os = "linux").then_some(start + MS));
    }

    proptest! {
        /// Of what counts as a loss: one part of so many, and the allowance, and the last.
        #[test]
        fn no_more_is_lost_than_is_allowed(
            steps in prop::collection::vec((0_u32..50_000, 500_u32..20_000, 0_u32..20_000), 1..500),
        ) {
            const US: Duration = Duration::from_micros(1);
            let mut thread = Thread::new();
            let (start, mut lost) = (thread.now, NONE);
            for (pause, away, used) in steps {
                thread.now += pause * US;
                if thread.gives_way(away * US, used * US) && used * 4 < away * 3 {
                    lost += (away - used) * US;
                }
                let most = ALLOWANCE + 20 * MS + (thread.now - start) / PARTS;
                prop_assert!(lost <= most, "{lost:?} of {most:?}");
            }
        }
    }
}
