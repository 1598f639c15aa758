//! Time limits: decisions without threads or clocks.

use std::time::Duration;

use crate::base::TimeLimit;

/// The time limits of a pool. `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeLimits {
    /// The time limit of a call for an item or a batch.
    pub item: Option<Duration>,
    /// The time limit of a `producer_init`.
    pub init: Option<Duration>,
    /// The time limit of a run.
    pub run: Option<Duration>,
    /// The time limit of a `producer_end`. In a run, only states that are recycled end.
    pub end: Option<Duration>,
}

/// The number of ticks within a limit. More would be more exact, and cost more.
const TICKS: u32 = 16;
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// The minimum time that hooks have to notice that their run is over.
const LEAST_GRACE: Duration = Duration::from_millis(100);

impl TimeLimits {
    pub(crate) fn zero(&self) -> Option<TimeLimit> {
        let zero = Some(Duration::ZERO);
        match () {
            () if self.item == zero => Some(TimeLimit::Item),
            () if self.init == zero => Some(TimeLimit::Init),
            () if self.run == zero => Some(TimeLimit::Run),
            () if self.end == zero => Some(TimeLimit::End),
            () => None,
        }
    }

    /// Returns how long a shutdown waits for a hook after its lease was revoked.
    pub(crate) fn for_loser(&self) -> Option<Duration> {
        self.item.or(self.run)
    }

    /// Returns the interval at which the deadline thread checks a run's limits; `None` without limits.
    pub(crate) fn tick(&self) -> Option<Duration> {
        [self.item, self.init, self.run, self.end].into_iter().flatten().min().map(tick_of)
    }
}

/// Returns the interval at which the deadline thread checks this limit.
pub(crate) fn tick_of(limit: Duration) -> Duration {
    (limit / TICKS).max(SHORTEST_TICK)
}

/// Returns a limit in ticks. A call that began since the last tick gets the rest of that tick for free.
pub(crate) fn ticks_in(limit: Duration, tick: Duration) -> u64 {
    u64::try_from(limit.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(u64::MAX)
}

/// Returns the time that hooks have after a run with this limit.
pub(crate) fn grace_of(limit: Duration) -> Duration {
    (limit / TICKS).max(LEAST_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_limit_says_how_often_somebody_looks() {
        let ms = Duration::from_millis;
        assert_eq!(TimeLimits::default().tick(), None);
        let limits =
            TimeLimits { item: Some(ms(160)), run: Some(ms(64_000)), ..TimeLimits::default() };
        assert_eq!(limits.tick(), Some(ms(10)));
        assert_eq!(ticks_in(ms(160), ms(10)), 16);
        assert_eq!(ticks_in(ms(161), ms(10)), 17);
        assert_eq!(tick_of(ms(1)), ms(1));
    }

    #[test]
    fn a_limit_of_nothing_is_found() {
        let zero = Some(Duration::ZERO);
        assert_eq!(TimeLimits { run: zero, ..TimeLimits::default() }.zero(), Some(TimeLimit::Run));
        assert_eq!(TimeLimits::default().zero(), None);
    }
}
