//! How long an attempt has run.

use std::time::{Duration, Instant};

use crate::execute::groups::Groups;

/// The number of looks at the clock within a limit: as much of it can be lost while this process is stopped.
const LOOKS: u32 = 16;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The time of an attempt, without the time in which all jobs or this process were stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningTime {
    since: Instant,
    /// How long all jobs had been stopped then.
    stopped: Duration,
}

impl RunningTime {
    pub(crate) fn begin(groups: &Groups) -> RunningTime {
        RunningTime { since: Instant::now(), stopped: groups.stopped() }
    }

    pub(crate) fn so_far(&self, groups: &Groups) -> Duration {
        self.since.elapsed().saturating_sub(groups.stopped() - self.stopped)
    }

    /// How long to wait at most, so that a stop of this process is noticed.
    pub(crate) fn longest_wait(&self, groups: &Groups, limit: Duration) -> Duration {
        let look = (limit / LOOKS).max(SHORTEST_WAIT);
        limit.saturating_sub(self.so_far(groups)).min(look)
    }

    /// Leaves out what a wait took longer than it was to take: this process did not run.
    pub(crate) fn leave_out(&mut self, groups: &Groups, wait: RunningTime, longest: Duration) {
        self.since += wait.so_far(groups).saturating_sub(longest);
    }
}
