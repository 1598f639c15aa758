//! Yields of the processor before a thread parks.

use std::time::Duration;

use super::atomic::{AtomicU32, Ordering};
use super::now;

/// The largest number of yields before a park. In a model there are none: each would be one more step of every
/// schedule, and a thread that finds its work earlier is a schedule that the model has anyway.
const MOST: u32 = if cfg!(shuttle) { 0 } else { 8 };
/// A yield that takes longer has cost a time slice, which the kernel gives to a thread that computes: of another
/// program, most often. To a thread of the same run that works on short items, a yield takes up to 100 us and is
/// worth it: with a limit of 50 us, runs of items of 10 us stopped to yield within milliseconds.
const SLOW: Duration = Duration::from_millis(1);
/// A run stops to yield after this number of slow yields. A quiet machine has a few of them too.
const MOST_SLOW: u32 = 8;

/// The yields of the threads of one run before they park.
///
/// A park and its wake-up take 5 to 10 us of processor time. Threads that hand over short items to each other
/// need each other again within a few microseconds, so a yield often saves both. Beside other programs it costs
/// a time slice of milliseconds. So no thread of the run yields again once a few yields were slow.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    /// The number of yields that were slow.
    slow: AtomicU32,
}

impl Yields {
    /// Yields until `is_ready`, a few times at most. Returns whether it is.
    ///
    /// The caller has found it not ready. It parks after `false`, in a way that misses no wake-up: nothing here
    /// synchronises with the thread that is waited for.
    pub(crate) fn until(&self, mut is_ready: impl FnMut() -> bool) -> bool {
        let mut began = None;
        for done in 0..MOST {
            if !self.may_yield(done) {
                return false;
            }
            let since = began.unwrap_or_else(now);
            std::thread::yield_now();
            if is_ready() {
                return true;
            }
            let ended = now();
            self.note(ended - since);
            began = Some(ended);
        }
        false
    }

    /// Whether a thread that has yielded `done` times may yield again before it parks.
    fn may_yield(&self, done: u32) -> bool {
        done < MOST && self.slow.load(Ordering::Relaxed) < MOST_SLOW
    }

    /// Notes how long a yield took, with the look after it.
    fn note(&self, took: Duration) {
        if took > SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_yields_a_few_times_and_then_parks() {
        let yields = Yields::default();
        let mut looks = 0;
        let is_ready = yields.until(|| {
            looks += 1;
            false
        });
        assert!(!is_ready);
        assert!(looks <= MOST, "it looked {looks} times");
        // On a busy machine all of these may have been slow.
        let yields = Yields::default();
        assert_eq!((yields.may_yield(MOST - 1), yields.may_yield(MOST)), (true, false));
    }

    #[test]
    fn a_run_stops_to_yield_after_a_few_slow_yields() {
        let yields = Yields::default();
        let slow = SLOW + Duration::from_nanos(1);
        (0..MOST_SLOW).for_each(|_| yields.note(SLOW));
        (1..MOST_SLOW).for_each(|_| yields.note(slow));
        assert!(yields.may_yield(0));
        yields.note(slow);
        assert!(!yields.may_yield(0));
        yields.note(Duration::ZERO);
        assert!(!yields.may_yield(0), "for the rest of the run");
        assert!(!yields.until(|| unreachable!("it does not yield")));
    }

    #[test]
    fn a_thread_stops_yielding_when_it_is_ready() {
        let yields = Yields::default();
        assert!(yields.until(|| true));
    }
}
