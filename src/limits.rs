//! How long things may take: decisions without threads or clocks.

use std::fmt;
use std::time::Duration;

/// What may take only so long. `None`: as long as it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limits {
    pub(crate) item: Option<Duration>,
    pub(crate) init: Option<Duration>,
    pub(crate) run: Option<Duration>,
}

/// Something that may take only so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// [`Builder::item_timeout`](crate::Builder::item_timeout).
    Item,
    /// [`Builder::init_timeout`](crate::Builder::init_timeout).
    Init,
    /// [`Builder::run_timeout`](crate::Builder::run_timeout).
    Run,
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeLimit::Item => "an item",
            TimeLimit::Init => "producer_init",
            TimeLimit::Run => "a run",
        })
    }
}

/// How many times a thread that keeps a limit ticks within it. More would be more exact, and cost more.
const TICKS: u32 = 16;
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// How long hooks have at least to notice that their run is over.
const LEAST_GRACE: Duration = Duration::from_millis(100);

impl Limits {
    pub(crate) fn zero(&self) -> Option<TimeLimit> {
        let zero = Some(Duration::ZERO);
        match () {
            () if self.item == zero => Some(TimeLimit::Item),
            () if self.init == zero => Some(TimeLimit::Init),
            () if self.run == zero => Some(TimeLimit::Run),
            () => None,
        }
    }

    /// How long a producer that has lost a race may still be at it.
    pub(crate) fn for_loser(&self) -> Option<Duration> {
        self.item.or(self.run)
    }

    /// How often whoever keeps the limits of a run looks; `None` where there are none.
    pub(crate) fn tick(&self) -> Option<Duration> {
        [self.item, self.init, self.run].into_iter().flatten().min().map(tick_of)
    }
}

/// How often whoever keeps this limit looks.
pub(crate) fn tick_of(limit: Duration) -> Duration {
    (limit / TICKS).max(SHORTEST_TICK)
}

/// How many ticks a limit is. Whatever began since the last tick has the whole of the next one for nothing.
pub(crate) fn ticks_in(limit: Duration, tick: Duration) -> u64 {
    u64::try_from(limit.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(u64::MAX)
}

/// How long hooks have after a run of this limit.
pub(crate) fn grace_of(limit: Duration) -> Duration {
    (limit / TICKS).max(LEAST_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_limit_says_how_often_somebody_looks() {
        let ms = Duration::from_millis;
        assert_eq!(Limits::default().tick(), None);
        let limits = Limits { item: Some(ms(160)), init: None, run: Some(ms(64_000)) };
        assert_eq!(limits.tick(), Some(ms(10)));
        assert_eq!(ticks_in(ms(160), ms(10)), 16);
        assert_eq!(ticks_in(ms(161), ms(10)), 17);
        assert_eq!(tick_of(ms(1)), ms(1));
    }

    #[test]
    fn a_limit_of_nothing_is_found() {
        let zero = Some(Duration::ZERO);
        assert_eq!(Limits { run: zero, ..Limits::default() }.zero(), Some(TimeLimit::Run));
        assert_eq!(Limits::default().zero(), None);
    }
}
