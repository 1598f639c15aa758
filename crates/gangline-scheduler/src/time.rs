//! Time as the scheduler sees it: a value that is passed in.

use std::time::Duration;

/// A moment of a run, in nanoseconds since its start.
///
/// Time in which the whole process was stopped does not count, so a timeout measures work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunTime(u64);

impl RunTime {
    /// The start of the run.
    pub const START: RunTime = RunTime(0);

    /// The moment that is `elapsed` after the start of the run.
    pub fn at(elapsed: Duration) -> Self {
        RunTime(nanos(elapsed))
    }

    /// The moment that is `time` after this one.
    pub fn after(self, time: Duration) -> Self {
        RunTime(self.0.saturating_add(nanos(time)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    pub fn since(self, earlier: RunTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_and_never_overflow() {
        let second = Duration::from_secs(1);
        let one = RunTime::START.after(second);
        assert_eq!(one, RunTime::at(second));
        assert_eq!(one.since(RunTime::START), second);
        assert_eq!(RunTime::START.since(one), Duration::ZERO);
        assert_eq!(one.after(Duration::MAX).after(second), RunTime::at(Duration::MAX));
    }
}
