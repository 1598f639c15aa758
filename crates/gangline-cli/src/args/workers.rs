//! `-j`: how many jobs run at once.

use std::fmt;
use std::str::FromStr;

use rustix::process::{Resource, getrlimit};

use crate::args::number::digits;

/// The number of jobs that run at once, as in GNU parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    /// `4`
    Number(usize),
    /// `0`: as many as possible.
    Most,
    /// `+2`: more than the cores.
    Above(usize),
    /// `-2`: fewer than the cores, and at least one.
    Below(usize),
    /// `200%` of the cores, and at least one.
    Percent(usize),
}

/// Open files of this process for each job that runs.
const FILES_PER_JOB: u64 = 16;

/// Open files of this process that are not for a job.
const OTHER_FILES: u64 = 64;

/// The largest number for `0`: each slot is a thread.
const MOST: usize = 1_000;

const LARGEST: usize = 65_536;

impl Workers {
    /// The number of slots on a machine with that many cores. If the number of jobs is known, "as many as
    /// possible" is at most that.
    pub(crate) fn count(self, cores: usize, jobs: Option<usize>) -> usize {
        let count = match self {
            Workers::Number(number) => return number,
            Workers::Most => MOST.min(most_by_files()).min(jobs.unwrap_or(MOST)),
            Workers::Above(more) => cores.saturating_add(more),
            Workers::Below(fewer) => cores.saturating_sub(fewer),
            Workers::Percent(percent) => cores.saturating_mul(percent) / 100,
        };
        count.clamp(1, LARGEST)
    }
}

/// The number of jobs that the limit of open files allows.
fn most_by_files() -> usize {
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OTHER_FILES) / FILES_PER_JOB).unwrap_or(usize::MAX)
}

impl FromStr for Workers {
    type Err = WorkersError;

    fn from_str(text: &str) -> Result<Workers, WorkersError> {
        let number = |text: &str| digits(text).filter(|number| *number <= LARGEST);
        let workers = match text.split_at_checked(1) {
            Some(("+", more)) => number(more).map(Workers::Above),
            Some(("-", fewer)) => number(fewer).map(Workers::Below),
            _ => match text.strip_suffix('%') {
                Some(percent) => number(percent).map(Workers::Percent),
                None => number(text).map(|number| match number {
                    0 => Workers::Most,
                    number => Workers::Number(number),
                }),
            },
        };
        workers.ok_or(WorkersError)
    }
}

/// The text is not a number of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkersError;

impl fmt::Display for WorkersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write a number up to 65536, 200% of the cores, +2 or -2 for more or fewer than the cores, or 0 for \
             as many as possible",
        )
    }
}

impl std::error::Error for WorkersError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: usize) {
        assert_eq!(text.parse::<Workers>().unwrap().count(8, None), expected, "{text}");
    }

    #[test]
    fn texts_mean_what_they_mean_to_parallel() {
        check("3", 3);
        check("+2", 10);
        check("+0", 8);
        check("-3", 5);
        check("-20", 1);
        check("200%", 16);
        check("50%", 4);
        check("1%", 1);
    }

    #[test]
    fn as_many_as_possible_is_bounded() {
        let most: Workers = "0".parse().unwrap();
        assert_eq!(most.count(8, Some(3)), 3);
        assert_eq!(most.count(8, Some(0)), 1);
        assert!(most.count(8, None) <= MOST);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "+", "-", "%", "++1", "+-1", "1.5", "65537", "ten", "-5%", "1 "] {
            assert_eq!(text.parse::<Workers>(), Err(WorkersError), "{text:?}");
        }
    }
}
