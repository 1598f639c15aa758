//! The timeouts of hooks and of the run.

use std::time::Duration;

use super::lease::{Held, Phase, ProducerId};
use super::time::RunTime;

/// The minimum time that hooks have to notice the end of their run.
const LEAST_GRACE: Duration = Duration::from_millis(100);
/// The fraction of the run's timeout that hooks have to notice its end.
const GRACE: u32 = 16;

/// The timeouts of a run. `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeouts {
    /// The timeout of a hook, for each item of its lease.
    pub item: Option<Duration>,
    /// The timeout of a `producer_init`.
    pub init: Option<Duration>,
    /// The timeout of the whole run.
    pub run: Option<Duration>,
    /// The timeout of a `producer_end` between two items.
    pub end: Option<Duration>,
    /// The interval at which the backend checks them. Each deadline is one step later, since a hook that
    /// begins within a step could otherwise expire early.
    pub step: Duration,
}

/// The hook of a producer that holds no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// Its `producer_init` of this run.
    Init,
    /// A hook of an earlier run, after its lease was revoked. It may never return.
    EarlierRun,
    /// The `producer_end` of a state that is recycled.
    End,
}

/// The deadlines of a run that belong to no lease.
#[derive(Debug)]
pub(super) struct Deadlines {
    timeouts: Timeouts,
    /// For each producer that has not joined, its hook and its deadline.
    absent: Vec<Option<(Absence, Option<RunTime>)>>,
    run: RunEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    At(RunTime),
    /// The run has timed out. Hooks have until then to notice.
    GraceUntil(RunTime),
    Never,
}

/// The state of the run's timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunTimeout {
    NotYet,
    Now,
    /// Hooks that still run are abandoned.
    GraceOver,
}

impl From<Absence> for Phase {
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::Init => Phase::Preparing,
            Absence::EarlierRun => Phase::Working,
            Absence::End => Phase::Ending,
        }
    }
}

impl Deadlines {
    pub(super) fn new(timeouts: Timeouts, producers: usize, now: RunTime) -> Self {
        let run = timeouts.run.map_or(RunEnd::Never, |time| RunEnd::At(now.after(time)));
        Deadlines { timeouts, absent: vec![None; producers], run }
    }

    /// The deadline of a lease of `items` items whose phase begins now.
    pub(super) fn of_lease(&self, phase: Phase, items: usize, now: RunTime) -> Option<RunTime> {
        match phase {
            Phase::Preparing => self.end(self.timeouts.init, 1, now),
            Phase::Working => self.end(self.timeouts.item, items, now),
            Phase::Ahead => None,
            Phase::Ending => unreachable!("a state ends without a lease"),
        }
    }

    /// Notes that the producer is in a hook without a lease.
    pub(super) fn expect(&mut self, producer: ProducerId, absence: Absence, now: RunTime) {
        let limit = match absence {
            Absence::Init => self.timeouts.init,
            Absence::EarlierRun => self.timeouts.item,
            Absence::End => self.timeouts.end,
        };
        self.absent[producer] = Some((absence, self.end(limit, 1, now)));
    }

    /// Notes that the producer has joined, or is lost.
    pub(super) fn clear(&mut self, producer: ProducerId) {
        self.absent[producer] = None;
    }

    /// The hook of a producer that has not joined.
    pub(super) fn absence(&self, producer: ProducerId) -> Option<Absence> {
        self.absent[producer].map(|(absence, _)| absence)
    }

    /// The producers that are late to join.
    pub(super) fn late_producers(&self, now: RunTime) -> Vec<(ProducerId, Absence)> {
        let absent = self.absent.iter().enumerate();
        let late = absent.filter_map(|(producer, absent)| match *absent {
            Some((absence, Some(deadline))) if deadline <= now => Some((producer, absence)),
            _ => None,
        });
        late.collect()
    }

    /// Checks the timeout of the run, and starts its grace.
    pub(super) fn run_timeout(&mut self, now: RunTime) -> RunTimeout {
        match self.run {
            RunEnd::At(end) if end <= now => {
                let limit = self.timeouts.run.expect("a run that ends has a limit");
                self.run = RunEnd::GraceUntil(end.after((limit / GRACE).max(LEAST_GRACE)));
                RunTimeout::Now
            }
            RunEnd::GraceUntil(end) if end <= now => RunTimeout::GraceOver,
            _ => RunTimeout::NotYet,
        }
    }

    /// The next time at which one of these leases, a producer or the run expires.
    pub(super) fn next<'a>(&self, leases: impl Iterator<Item = &'a Held>) -> Option<RunTime> {
        let run = match self.run {
            RunEnd::At(end) | RunEnd::GraceUntil(end) => Some(end),
            RunEnd::Never => None,
        };
        let absent = self.absent.iter().filter_map(|absent| absent.as_ref()?.1);
        leases.filter_map(|held| held.deadline).chain(absent).chain(run).min()
    }

    fn end(&self, limit: Option<Duration>, items: usize, now: RunTime) -> Option<RunTime> {
        let items = u32::try_from(items.max(1)).unwrap_or(u32::MAX);
        Some(now.after(limit?.saturating_mul(items)).after(self.timeouts.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadlines() -> Deadlines {
        let timeouts = Timeouts {
            item: Some(SECOND),
            init: Some(10 * SECOND),
            run: Some(100 * SECOND),
            end: None,
            step: Duration::from_millis(1),
        };
        Deadlines::new(timeouts, 2, RunTime::START)
    }

    #[test]
    fn a_batch_has_the_time_of_all_its_items_and_one_step() {
        let step = Duration::from_millis(1);
        let end = |phase, items| deadlines().of_lease(phase, items, RunTime::START);
        assert_eq!(end(Phase::Working, 3), Some(RunTime::at(3 * SECOND + step)));
        assert_eq!(end(Phase::Preparing, 3), Some(RunTime::at(10 * SECOND + step)));
        let unlimited = Deadlines::new(Timeouts::default(), 2, RunTime::START);
        assert_eq!(unlimited.of_lease(Phase::Working, 1, RunTime::START), None);
    }

    #[test]
    fn a_producer_that_does_not_come_back_is_late() {
        let mut deadlines = deadlines();
        deadlines.expect(1, Absence::EarlierRun, RunTime::START);
        assert!(deadlines.late_producers(RunTime::at(SECOND)).is_empty());
        assert_eq!(deadlines.late_producers(RunTime::at(2 * SECOND)), [(1, Absence::EarlierRun)]);
        deadlines.clear(1);
        assert!(deadlines.late_producers(RunTime::at(2 * SECOND)).is_empty());
    }

    #[test]
    fn hooks_have_a_while_to_notice_the_end_of_the_run() {
        let mut deadlines = deadlines();
        assert_eq!(deadlines.next(std::iter::empty()), Some(RunTime::at(100 * SECOND)));
        assert_eq!(deadlines.run_timeout(RunTime::at(99 * SECOND)), RunTimeout::NotYet);
        assert_eq!(deadlines.run_timeout(RunTime::at(100 * SECOND)), RunTimeout::Now);
        assert_eq!(deadlines.run_timeout(RunTime::at(101 * SECOND)), RunTimeout::NotYet);
        assert_eq!(deadlines.run_timeout(RunTime::at(107 * SECOND)), RunTimeout::GraceOver);
    }
}
