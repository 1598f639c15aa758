//! `--halt`: when the outcomes of jobs end a run early. Decisions without processes.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::args::number::digits;

/// The effect of the outcomes so far on waiting and running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Halt {
    /// None.
    #[default]
    Never,
    /// No further job starts.
    Soon(Condition),
    /// No further job starts, and running ones are ended.
    Now(Condition),
}

/// How many jobs must have ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) counted: CountedOutcomes,
    amount: HaltAmount,
}

/// The outcomes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedOutcomes {
    Failed,
    Succeeded,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HaltAmount {
    Number(u64),
    /// A percentage of all jobs of the run.
    Percent(u64),
}

/// The action to take after a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HaltAction {
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

/// A percentage of failures applies from this number on: of a few jobs, one failure is a large share.
const LEAST_FOR_SHARE: u64 = 3;

impl Halt {
    pub(crate) fn condition(self) -> Option<Condition> {
        match self {
            Halt::Never => None,
            Halt::Soon(condition) | Halt::Now(condition) => Some(condition),
        }
    }

    /// Whether the number of all jobs matters.
    pub(crate) fn needs_total(self) -> bool {
        self.condition().is_some_and(|condition| matches!(condition.amount, HaltAmount::Percent(_)))
    }
}

/// Writes the setting as `--halt` reads it.
impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (when, condition) = match self {
            Halt::Never => return f.write_str("never"),
            Halt::Soon(condition) => ("soon", condition),
            Halt::Now(condition) => ("now", condition),
        };
        let counted = match condition.counted {
            CountedOutcomes::Failed => "fail",
            CountedOutcomes::Succeeded => "success",
            CountedOutcomes::Done => "done",
        };
        match condition.amount {
            HaltAmount::Number(number) => write!(f, "{when},{counted}={number}"),
            HaltAmount::Percent(percent) => write!(f, "{when},{counted}={percent}%"),
        }
    }
}

impl Tally {
    /// The action to take after a job. A percentage has no effect before the number of all jobs is known.
    pub(crate) fn order(&self, halt: Halt, total: Option<u64>) -> HaltAction {
        match halt {
            Halt::Soon(condition) if self.meets(condition, total) => HaltAction::StartNoMore,
            Halt::Now(condition) if self.meets(condition, total) => HaltAction::EndAll,
            _ => HaltAction::GoOn,
        }
    }

    fn meets(&self, condition: Condition, total: Option<u64>) -> bool {
        let count = match condition.counted {
            CountedOutcomes::Failed => self.failed,
            CountedOutcomes::Succeeded => self.ok,
            CountedOutcomes::Done => self.ok + self.failed,
        };
        match condition.amount {
            HaltAmount::Number(number) => count >= number,
            HaltAmount::Percent(_)
                if condition.counted == CountedOutcomes::Failed && count < LEAST_FOR_SHARE =>
            {
                false
            }
            HaltAmount::Percent(percent) => total.is_some_and(|total| {
                u128::from(count) * 100 >= u128::from(percent) * u128::from(total)
            }),
        }
    }
}

impl FromStr for Halt {
    type Err = HaltError;

    fn from_str(text: &str) -> Result<Self, HaltError> {
        let number = |counted, number| Condition { counted, amount: HaltAmount::Number(number) };
        match text {
            "never" | "0" => return Ok(Halt::Never),
            "1" => return Ok(Halt::Soon(number(CountedOutcomes::Failed, 1))),
            "2" => return Ok(Halt::Now(number(CountedOutcomes::Failed, 1))),
            "-1" => return Ok(Halt::Soon(number(CountedOutcomes::Succeeded, 1))),
            "-2" => return Ok(Halt::Now(number(CountedOutcomes::Succeeded, 1))),
            _ => {}
        }
        if text.ends_with('%') && !text.contains(',') {
            let amount = text.parse()?;
            return Ok(Halt::Soon(Condition { counted: CountedOutcomes::Failed, amount }));
        }
        let (when, condition) = text.split_once(',').ok_or(HaltError)?;
        let (counted, amount) = condition.split_once('=').ok_or(HaltError)?;
        let counted = match counted {
            "fail" => CountedOutcomes::Failed,
            "success" => CountedOutcomes::Succeeded,
            "done" => CountedOutcomes::Done,
            _ => return Err(HaltError),
        };
        let condition = Condition { counted, amount: amount.parse()? };
        match when {
            "soon" => Ok(Halt::Soon(condition)),
            "now" => Ok(Halt::Now(condition)),
            _ => Err(HaltError),
        }
    }
}

impl FromStr for HaltAmount {
    type Err = HaltError;

    fn from_str(text: &str) -> Result<Self, HaltError> {
        let (number, is_percent) = match text.strip_suffix('%') {
            Some(percent) => (percent, true),
            None => (text, false),
        };
        match digits(number) {
            Some(percent @ 1..=100) if is_percent => Ok(HaltAmount::Percent(percent)),
            Some(number @ 1..) if !is_percent => Ok(HaltAmount::Number(number)),
            _ => Err(HaltError),
        }
    }
}

/// The text is not an allowed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "write never, or soon or now with fail, success or done and a number of jobs or a share of all: \
     soon,fail=1 now,success=1 now,fail=10%"
)]
pub(crate) struct HaltError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let condition = |counted, amount| Condition { counted, amount };
        let one_failed = condition(CountedOutcomes::Failed, HaltAmount::Number(1));
        assert_eq!("never".parse(), Ok(Halt::Never));
        assert_eq!("soon,fail=1".parse(), Ok(Halt::Soon(one_failed)));
        let share = condition(CountedOutcomes::Failed, HaltAmount::Percent(30));
        assert_eq!("now,fail=30%".parse(), Ok(Halt::Now(share)));
        assert_eq!("30%".parse(), Ok(Halt::Soon(share)));
        let succeeded = condition(CountedOutcomes::Succeeded, HaltAmount::Number(2));
        assert_eq!("now,success=2".parse(), Ok(Halt::Now(succeeded)));
        let done = condition(CountedOutcomes::Done, HaltAmount::Percent(100));
        assert_eq!("soon,done=100%".parse(), Ok(Halt::Soon(done)));
        assert_eq!(
            ("1".parse(), "2".parse()),
            (Ok(Halt::Soon(one_failed)), Ok(Halt::Now(one_failed)))
        );
        for text in [
            "",
            "soon",
            "3",
            "now,fail=0",
            "now,fail=+1",
            "now,fail=101%",
            "later,fail=1",
            "now,ended=1",
            "soon,fail=-1",
            "now,fail=+1%",
        ] {
            assert_eq!(text.parse::<Halt>(), Err(HaltError), "{text}");
        }
    }

    #[track_caller]
    fn check(halt: &str, ok: u64, failed: u64, total: Option<u64>, order: HaltAction) {
        assert_eq!(Tally { ok, failed }.order(halt.parse().unwrap(), total), order);
    }

    #[test]
    fn a_number_is_reached() {
        check("never", 0, 1_000, None, HaltAction::GoOn);
        check("soon,fail=2", 0, 1, None, HaltAction::GoOn);
        check("soon,fail=2", 9, 2, None, HaltAction::StartNoMore);
        check("now,fail=1", 0, 1, None, HaltAction::EndAll);
        check("now,success=2", 1, 7, None, HaltAction::GoOn);
        check("now,success=2", 2, 7, None, HaltAction::EndAll);
        check("soon,done=4", 2, 2, None, HaltAction::StartNoMore);
    }

    #[test]
    fn a_share_is_one_of_all_jobs() {
        check("now,fail=10%", 0, 3, None, HaltAction::GoOn);
        check("now,fail=10%", 0, 2, Some(10), HaltAction::GoOn);
        check("now,fail=10%", 0, 3, Some(30), HaltAction::EndAll);
        check("now,fail=10%", 0, 3, Some(31), HaltAction::GoOn);
        check("soon,success=50%", 1, 5, Some(2), HaltAction::StartNoMore);
        check("soon,done=50%", 2, 1, Some(8), HaltAction::GoOn);
        check("soon,done=50%", 2, 2, Some(8), HaltAction::StartNoMore);
    }
}
