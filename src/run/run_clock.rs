//! The clock of a run, which stands still while the process is stopped.

use std::time::{Duration, Instant};

use gangline_scheduler::RunTime;

use crate::concurrency::atomic::{AtomicI64, Ordering};
use crate::concurrency::now;

#[derive(Debug)]
pub(crate) struct RunClock {
    start: Instant,
    /// Added to the time since `start`, in nanoseconds: negative once the process was stopped.
    offset: AtomicI64,
}

impl RunClock {
    pub(crate) fn new() -> Self {
        RunClock { start: now(), offset: AtomicI64::new(0) }
    }

    pub(crate) fn now(&self) -> RunTime {
        let elapsed = (now() - self.start).as_nanos() as i64;
        let nanos = elapsed.saturating_add(self.offset.load(Ordering::Relaxed)).max(0);
        RunTime::at(Duration::from_nanos(nanos as u64))
    }

    /// Advances the clock when the deadline thread wakes after a sleep of `step`, the last time at `before`.
    /// If more than `2 * step` has passed, the process was stopped, and the excess does not count. In a
    /// shuttle model time advances only here.
    pub(crate) fn wake(&self, before: RunTime, step: Duration) -> RunTime {
        let missing = match cfg!(shuttle) {
            true => -(step.as_nanos() as i64),
            false => self.now().since(before).saturating_sub(2 * step).as_nanos() as i64,
        };
        self.offset.fetch_sub(missing, Ordering::Relaxed);
        self.now()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let second = Duration::from_secs(1);
        let mut clock = RunClock::new();
        clock.start -= 100 * second;
        let woken = clock.wake(RunTime::START, second);
        assert!(woken >= RunTime::at(2 * second) && woken < RunTime::at(50 * second), "{woken:?}");
        assert_eq!(clock.wake(woken, second).since(woken).as_secs(), 0, "nothing was missed");
    }
}
