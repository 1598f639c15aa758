//! How fast results arrive; no threads or clocks here.

use std::time::{Duration, Instant};

/// The pace is judged after this number of results.
const RESULTS: u64 = if cfg!(shuttle) { u64::MAX } else { 32 };
/// The time within which [`RESULTS`] results make the pace high.
const SPAN: Duration = Duration::from_millis(2);
/// The pace is judged after this number of waits, if fewer results have arrived.
const WAITS: u32 = if cfg!(shuttle) { u32::MAX } else { 8 };

/// The pace of a run's results. It decides whether a sleeping collector is woken for the next one or for
/// several.
///
/// The results since the last sleep are not enough to tell: a collector with a CPU of its own finds one or
/// two at each look, however fast they arrive.
#[derive(Debug)]
pub(crate) struct Pace {
    is_high: bool,
    /// The number of results, and the time, when the pace was last judged.
    since: (u64, Instant),
    /// The number of waits since then.
    waits: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Pace { is_high: false, since: (0, now), waits: 0 }
    }

    /// Whether results are frequent. Call it before each sleep; `arrived` is the number of results of the
    /// whole run.
    pub(crate) fn is_high(&mut self, arrived: u64, now: Instant) -> bool {
        let (before, then) = self.since;
        let results = arrived - before;
        self.waits += 1;
        if results >= RESULTS || self.waits >= WAITS {
            let needed = RESULTS as f64 * (now - then).as_secs_f64() / SPAN.as_secs_f64();
            *self = Pace { is_high: results as f64 >= needed, since: (arrived, now), waits: 0 };
        }
        self.is_high
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
        assert_eq!(judge(&[(32, 100), (31, 1), (1_000, 10)]), [true, true, true]);
    }

    #[test]
    fn few_at_a_time_add_up() {
        let judged = judge(&[(2, 5); 16]);
        assert_eq!(judged, [vec![false; 7], vec![true; 9]].concat());
    }

    #[test]
    fn a_trickle_is_waited_for_one_by_one() {
        assert_eq!(judge(&[(2, 200); 100]), [false; 100]);
    }

    #[test]
    fn items_that_turn_slow_are_waited_for_one_by_one_after_eight_waits() {
        let slow = judge(&[&[(32, 100)][..], &[(1, 250); 9]].concat());
        assert_eq!(slow, [vec![true; 8], vec![false; 2]].concat());
    }
}
