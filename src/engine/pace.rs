//! How fast results come: decisions without threads or clocks.

use std::time::{Duration, Instant};

/// So many results are many: it is worth while to wait for several at once.
pub(crate) const MANY: usize = if cfg!(shuttle) { usize::MAX } else { 32 };
/// Results that are this many within this time come thick and fast, also where few come at a time.
const SPAN: Duration = Duration::from_micros(500);
/// So many waits in a row may bring few results, before it is the time that counts.
const SHORT_WAITS: u32 = 8;

/// The pace of a run's results, by which a collector that goes to sleep waits for the next one or for several.
///
/// What came since it last slept is not enough to go by: a collector that has a CPU for itself finds
/// one or two results each time it looks, however fast they come.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many results had arrived when it last went to sleep.
    arrived: u64,
    /// How many times in a row few had come between.
    short_waits: u32,
    /// How many results had arrived when the first of them began, and when that was.
    since: (u64, Instant),
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Pace { arrived: 0, short_waits: 0, since: (0, now) }
    }

    /// Whether results come thick and fast. To be asked before it goes to sleep; `arrived` counts the results
    /// of the whole run.
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

    /// Whether the pace is high after each step: so many results more, so many microseconds later.
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
