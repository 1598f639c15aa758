//! The times of a worker's hooks, which the worker sends to the coordinator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The times of a worker's hooks, summed over its producers, since its part in a run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(unnameable_types, reason = "only a sealed trait has it")]
pub struct HookTimes {
    /// The time in which producers worked on items.
    pub(crate) working: Duration,
    /// The number of states that were lost to panics.
    pub(crate) states_lost: u64,
    /// The number of calls of `producer_init` that rebuilt a state, and the time that they took.
    pub(crate) rebuilds: u64,
    pub(crate) rebuilding: Duration,
}

impl HookTimes {
    /// Returns the times since an earlier reading.
    pub(crate) fn since(self, earlier: HookTimes) -> Self {
        HookTimes {
            working: self.working.saturating_sub(earlier.working),
            states_lost: self.states_lost.saturating_sub(earlier.states_lost),
            rebuilds: self.rebuilds.saturating_sub(earlier.rebuilds),
            rebuilding: self.rebuilding.saturating_sub(earlier.rebuilding),
        }
    }

    /// Returns the sum of both.
    pub(crate) fn and(self, other: HookTimes) -> Self {
        HookTimes {
            working: self.working.saturating_add(other.working),
            states_lost: self.states_lost.saturating_add(other.states_lost),
            rebuilds: self.rebuilds.saturating_add(other.rebuilds),
            rebuilding: self.rebuilding.saturating_add(other.rebuilding),
        }
    }

    /// Returns the mean of `producers`: the times are divided, the counts are not.
    pub(crate) fn mean(self, producers: usize) -> Self {
        let producers = u32::try_from(producers).unwrap_or(u32::MAX).max(1);
        HookTimes {
            working: self.working / producers,
            rebuilding: self.rebuilding / producers,
            ..self
        }
    }
}

/// Adds up the times of a service's hooks while it works on the items of one part. The service may serve other runs
/// before, after and beside this part; the hooks of those beside it count too.
#[derive(Debug, Default)]
pub(super) struct HookMeter {
    so_far: HookTimes,
    /// The reading of the service when it got an item of the part after a pause.
    resumed: Option<HookTimes>,
}

impl HookMeter {
    /// Notes at a reading whether the service works on items of the part.
    pub(super) fn note(&mut self, works: bool, reading: HookTimes) {
        match (works, self.resumed) {
            (true, None) => self.resumed = Some(reading),
            (false, Some(_)) => {
                self.so_far = self.times(reading);
                self.resumed = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The times up to a reading.
    pub(super) fn times(&self, reading: HookTimes) -> HookTimes {
        self.resumed.map_or(self.so_far, |resumed| self.so_far.and(reading.since(resumed)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_count_while_the_part_has_items() {
        let working =
            |seconds| HookTimes { working: Duration::from_secs(seconds), ..HookTimes::default() };
        let mut meter = HookMeter::default();
        assert_eq!(meter.times(working(7)), working(0), "another run had the service");
        meter.note(true, working(7));
        assert_eq!(meter.times(working(9)), working(2));
        meter.note(false, working(10));
        assert_eq!(meter.times(working(90)), working(3));
        meter.note(true, working(90));
        meter.note(true, working(91));
        assert_eq!(meter.times(working(91)), working(4));
    }
}
