//! `--halt`: when failures end a run early. Decisions without processes.

use std::fmt;
use std::str::FromStr;

use crate::args::number::digits;

/// The effect of too many failures on waiting and running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Halt {
    /// None.
    #[default]
    Never,
    /// No further job starts.
    Soon(Failures),
    /// No further job starts, and running ones are ended.
    Now(Failures),
}

/// The number of failures that is too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    Number(u64),
    /// A percentage of the jobs that have ended.
    Percent(u64),
}

/// The action to take after a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    GoOn,
    StartNoMore,
    EndAll,
}

/// The counts of ended jobs, and the rule for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
}

/// A percentage applies from this number of jobs on: of a few jobs, one failure is a large share.
const LEAST_FOR_SHARE: u64 = 3;

impl Tally {
    /// The action to take after a failed job.
    pub(crate) fn order(&self, halt: Halt) -> Order {
        match halt {
            Halt::Soon(failures) if self.reaches(failures) => Order::StartNoMore,
            Halt::Now(failures) if self.reaches(failures) => Order::EndAll,
            _ => Order::GoOn,
        }
    }

    fn reaches(&self, failures: Failures) -> bool {
        match failures {
            Failures::Number(number) => self.failed >= number,
            Failures::Percent(percent) => {
                let ended = u128::from(self.ok + self.failed);
                self.failed >= LEAST_FOR_SHARE
                    && u128::from(self.failed) * 100 >= u128::from(percent) * ended
            }
        }
    }
}

impl FromStr for Halt {
    type Err = HaltError;

    fn from_str(text: &str) -> Result<Self, HaltError> {
        let (when, failures) = match text.split_once(',') {
            None if text == "never" => return Ok(Halt::Never),
            None => return Err(HaltError),
            Some(parts) => parts,
        };
        let failures: Failures =
            failures.strip_prefix("fail=").ok_or(HaltError)?.parse().map_err(|()| HaltError)?;
        match when {
            "soon" => Ok(Halt::Soon(failures)),
            "now" => Ok(Halt::Now(failures)),
            _ => Err(HaltError),
        }
    }
}

impl FromStr for Failures {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_suffix('%') {
            Some(percent) => match digits(percent) {
                Some(percent @ 1..=100) => Ok(Failures::Percent(percent)),
                _ => Err(()),
            },
            None => match digits(text) {
                Some(number @ 1..) => Ok(Failures::Number(number)),
                _ => Err(()),
            },
        }
    }
}

/// The text is not an allowed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HaltError;

impl fmt::Display for HaltError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write never, or soon or now with a number of failed jobs or a share of those that have ended: \
             soon,fail=1 now,fail=10%",
        )
    }
}

impl std::error::Error for HaltError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        assert_eq!("never".parse(), Ok(Halt::Never));
        assert_eq!("soon,fail=1".parse(), Ok(Halt::Soon(Failures::Number(1))));
        assert_eq!("now,fail=30%".parse(), Ok(Halt::Now(Failures::Percent(30))));
        for text in [
            "",
            "soon",
            "now,fail=0",
            "now,fail=101%",
            "later,fail=1",
            "now,done=1",
            "soon,fail=-1",
            "soon,fail=+1",
            "now,fail=+1%",
        ] {
            assert_eq!(text.parse::<Halt>(), Err(HaltError), "{text}");
        }
    }

    #[track_caller]
    fn check(halt: &str, ok: u64, failed: u64, order: Order) {
        assert_eq!(Tally { ok, failed }.order(halt.parse().unwrap()), order);
    }

    #[test]
    fn a_number_of_failures_is_reached() {
        check("never", 0, 1_000, Order::GoOn);
        check("soon,fail=2", 0, 1, Order::GoOn);
        check("soon,fail=2", 9, 2, Order::StartNoMore);
        check("now,fail=1", 0, 1, Order::EndAll);
    }

    #[test]
    fn a_share_of_failures_needs_three() {
        check("now,fail=10%", 0, 2, Order::GoOn);
        check("now,fail=10%", 27, 3, Order::EndAll);
        check("now,fail=10%", 28, 3, Order::GoOn);
        check("soon,fail=100%", 0, 3, Order::StartNoMore);
        check("soon,fail=100%", 1, 3, Order::GoOn);
    }
}
