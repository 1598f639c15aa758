//! The times of a worker's hooks, which the worker sends to the coordinator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The times of a worker's hooks, summed over its producers, since its part in a run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
