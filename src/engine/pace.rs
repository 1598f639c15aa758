//! How fast results arrive; no threads or clocks here.

use std::time::{Duration, Instant};

/// The number of results from which it pays to wait for several at once.
pub(crate) const MANY: usize = if cfg!(shuttle) { usize::MAX } else { 32 };
/// The time within which [`MANY`] results make the pace high, even if few arrive per wait.
const SPAN: Duration = Duration::from_micros(500);
/// The number of consecutive waits with few results, after which the time decides.
const SHORT_WAITS: u32 = 8;

/// The pace of a run's results. It decides whether a sleeping collector is woken for the next one or for
/// several.
///
/// The results since the last sleep are not enough to tell: a collector with a CPU of its own finds one or
/// two at each look, however fast they arrive.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The number of results at the last sleep.
    arrived: u64,
    /// The number of consecutive waits in which few results arrived.
    short_waits: u32,
    /// The number of results, and the time, at the first of these waits.
    since: (u64, Instant),
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Pace { arrived: 0, short_waits: 0, since: (0, now) }
    }

    /// Whether results are frequent. Call it before each sleep; `arrived` is the number of results of the
    /// whole run.
    pub(crate) fn is_high(&mut self, arrived: u64, now: Instant) -> bool {
        let count = arrived - std::mem::replace(&mut self.arrived, arrived);
        if count >= MANY as u64 {
            self.restart(now);
            return true;
        }
        self.short_waits += 1;
        if self.short_waits < SHORT_WAITS {
            return false;
        }
        let (before, then) = self.since;
        let needed = MANY as f64 * (now - then).as_secs_f64() / SPAN.as_secs_f64();
        self.restart(now);
        (arrived - before) as f64 >= needed
    }

    fn restart(&mut self, now: Instant) {
        self.short_waits = 0;
        self.since = (self.arrived, now);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    /// Returns the pace after each step of `(results, microseconds)`.
    fn judge(steps: &[(u64, u64)]) -> Vec<bool> {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut arrived = 0;
        let mut step = |&(results, micros): &(u64, u64)| {
            arrived += results;
            now += Duration::from_micros(micros);
            pace.is_high(arrived, now)
        };
        steps.iter().map(&mut step).collect()
    }

    #[test]
    fn many_at_once_are_waited_for_at_once() {
        assert_eq!(judge(&[(32, 100), (31, 1), (1_000, 10)]), [true, false, true]);
    }

    #[test]
    fn few_at_a_time_add_up() {
        let mut expected = vec![false; 16];
        (expected[7], expected[15]) = (true, true);
        assert_eq!(judge(&[(2, 5); 16]), expected);
    }

    #[test]
    fn a_trickle_is_waited_for_one_by_one() {
        assert_eq!(judge(&[(2, 100); 100]), [false; 100]);
    }
}
