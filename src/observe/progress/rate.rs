//! The rate of items per second.

use std::time::Duration;

/// The recent rate of items, with exponential decay.
///
/// The memory spans ten arrivals, and half a minute at least. With a shorter one, a rate of one item per
/// minute would jump with every item; with an unlimited one, the beginning of the run would dominate the time
/// left.
#[derive(Debug, Clone, Default)]
pub(super) struct Rate {
    /// Arrivals so far. Items within a second of the last count as the same arrival, since batches do.
    arrivals: u32,
    last_arrival: Duration,
    /// Items and seconds, decayed by age.
    items: f64,
    seconds: f64,
    last: Duration,
}

const SHORTEST_MEMORY: f64 = 30.0;
const REMEMBERED_ARRIVALS: u32 = 10;
const ONE_ARRIVAL: Duration = Duration::from_secs(1);

impl Rate {
    /// Adds items that arrived at `at`, measured from the start of the run.
    pub(super) fn add(&mut self, at: Duration, items: u64) {
        if items == 0 {
            return;
        }
        if self.arrivals == 0 || at.saturating_sub(self.last_arrival) >= ONE_ARRIVAL {
            self.arrivals = self.arrivals.saturating_add(1);
            self.last_arrival = at;
        }
        let (faded, seconds) = self.faded(at);
        let passed = at.saturating_sub(self.last).as_secs_f64();
        // They are spread over the time since the last arrival: a batch would otherwise make the rate jump.
        let weight = if passed > 0.0 { self.gained(at) / passed } else { 1.0 };
        (self.items, self.seconds) = (faded + items as f64 * weight, seconds);
        self.last = self.last.max(at);
    }

    /// Returns items per second; `None` before the first item.
    pub(super) fn per_second(&self, at: Duration) -> Option<f64> {
        let (items, seconds) = self.faded(at);
        (self.arrivals > 0 && seconds > 0.0).then(|| items / seconds)
    }

    /// Estimates the time for `items` further items; `None` if the rate is unknown.
    pub(super) fn time_for(&self, items: u64, at: Duration) -> Option<Duration> {
        let seconds = items as f64 / self.per_second(at)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Items and seconds, decayed to `at`.
    fn faded(&self, at: Duration) -> (f64, f64) {
        let kept = self.kept(at);
        (self.items * kept, self.seconds * kept + self.gained(at))
    }

    /// The decayed weight of the seconds since the last items.
    fn gained(&self, at: Duration) -> f64 {
        self.memory(at) * (1.0 - self.kept(at))
    }

    fn kept(&self, at: Duration) -> f64 {
        let passed = at.saturating_sub(self.last).as_secs_f64();
        (-passed / self.memory(at)).exp()
    }

    fn memory(&self, at: Duration) -> f64 {
        let arrivals = f64::from(self.arrivals.max(1)) / f64::from(REMEMBERED_ARRIVALS);
        (at.as_secs_f64() / arrivals).max(SHORTEST_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn before_the_first_item_nothing_is_known() {
        let rate = Rate::default();
        assert_eq!(rate.per_second(10 * SECOND), None);
        assert_eq!(rate.time_for(1, 10 * SECOND), None);
        let mut rate = Rate::default();
        rate.add(Duration::ZERO, 5);
        assert_eq!(rate.per_second(Duration::ZERO), None, "in no time");
    }

    #[test]
    fn a_rate_falls_while_nothing_comes_and_follows_a_change() {
        let mut rate = Rate::default();
        for s in 1..=100 {
            rate.add(s * SECOND, 10);
        }
        let then = rate.per_second(100 * SECOND).unwrap();
        assert!(rate.per_second(110 * SECOND).unwrap() < then);
        for s in 101..=250 {
            rate.add(s * SECOND, 1);
        }
        let now = rate.per_second(250 * SECOND).unwrap();
        assert!((now - 1.0).abs() < 0.2, "{now}");
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_told_within_a_tenth(
            interval in 0.001..1_000.0, lot in 1_u64..1_000, lots in 5_u32..500,
        ) {
            let mut rate = Rate::default();
            let interval = Duration::from_secs_f64(interval);
            for n in 1..=lots {
                rate.add(n * interval, lot);
            }
            let truth = lot as f64 / interval.as_secs_f64();
            let told = rate.per_second(lots * interval).unwrap();
            prop_assert!((told / truth - 1.0).abs() < 0.1, "{} for {}", told, truth);
        }

        #[test]
        fn whatever_comes_whenever_a_rate_is_a_number(
            adds in prop::collection::vec((0_u64..1_000_000, 0..u64::MAX), 0..20), left in any::<u64>(),
        ) {
            let mut rate = Rate::default();
            for (ms, items) in adds {
                rate.add(Duration::from_millis(ms), items);
                let at = Duration::from_millis(ms / 2);
                prop_assert!(rate.per_second(at).is_none_or(|rate| rate.is_finite() && rate >= 0.0));
                rate.time_for(left, at);
            }
        }
    }
}
