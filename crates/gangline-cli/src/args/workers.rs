//! `-j`: how many jobs run at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::sys::resource::{Resource, getrlimit};
use thiserror::Error;

use crate::args::number::digits;

/// The number of jobs that run at once, as in GNU parallel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Workers {
    Number(WorkerCount),
    /// A file with a number, which is read again before each job.
    File(PathBuf),
}

/// A number, which may depend on the machine and on the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCount {
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
pub(crate) const FILES_PER_JOB: u64 = 16;

/// Open files of this process that are not for a job.
pub(crate) const OTHER_FILES: u64 = 64;

/// The largest number for `0`: each slot is a thread.
const MOST: usize = 1_000;

const LARGEST: usize = 65_536;

/// The least slots if a file has the number of jobs: the number may grow during the run, and slots cannot.
const LEAST_FOR_FILE: usize = 128;

impl Workers {
    /// The number of slots without GPUs.
    pub(crate) fn slots(&self, cores: usize, jobs: Option<usize>) -> usize {
        match self {
            Workers::Number(amount) => amount.count(cores, jobs),
            Workers::File(path) => {
                let now = in_file(path).map_or(1, |amount| amount.count(cores, None));
                now.clamp(LEAST_FOR_FILE, MOST).min(most_by_files().max(1))
            }
        }
    }
}

/// The number that the file has now, if it has one. A file that is being written is empty for a moment.
pub(crate) fn in_file(path: &Path) -> Option<WorkerCount> {
    let text = fs::read_to_string(path).ok()?;
    text.trim_start_matches('\u{feff}').trim().parse().ok()
}

impl WorkerCount {
    /// The number on a machine with that many cores. If the number of jobs is known, "as many as possible" is at
    /// most that.
    pub(crate) fn count(self, cores: usize, jobs: Option<usize>) -> usize {
        let count = match self {
            WorkerCount::Number(number) => return number,
            WorkerCount::Most => MOST.min(most_by_files()).min(jobs.unwrap_or(MOST)),
            WorkerCount::Above(more) => cores.saturating_add(more),
            WorkerCount::Below(fewer) => cores.saturating_sub(fewer),
            WorkerCount::Percent(percent) => cores.saturating_mul(percent) / 100,
        };
        count.clamp(1, LARGEST)
    }
}

/// The number of jobs that the limit of open files allows.
fn most_by_files() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, most)| most);
    usize::try_from(files.saturating_sub(OTHER_FILES) / FILES_PER_JOB).unwrap_or(usize::MAX)
}

impl FromStr for Workers {
    type Err = WorkersError;

    fn from_str(text: &str) -> Result<Workers, WorkersError> {
        if let Ok(amount) = text.parse() {
            return Ok(Workers::Number(amount));
        }
        let path = PathBuf::from(text);
        match path.is_file() {
            false => Err(WorkersError::NoNumber),
            true if in_file(&path).is_some() => Ok(Workers::File(path)),
            true => Err(WorkersError::NotInFile(path)),
        }
    }
}

impl FromStr for WorkerCount {
    type Err = WorkersError;

    fn from_str(text: &str) -> Result<WorkerCount, WorkersError> {
        let number = |text: &str| digits(text).filter(|number| *number <= LARGEST);
        let amount = match text.split_at_checked(1) {
            Some(("+", more)) => number(more).map(WorkerCount::Above),
            Some(("-", fewer)) => number(fewer).map(WorkerCount::Below),
            _ => match text.strip_suffix('%') {
                Some(percent) => number(percent).map(WorkerCount::Percent),
                None => number(text).map(|number| match number {
                    0 => WorkerCount::Most,
                    number => WorkerCount::Number(number),
                }),
            },
        };
        amount.ok_or(WorkersError::NoNumber)
    }
}

/// The text is neither a number of jobs nor a file with one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum WorkersError {
    #[error(
        "write a number up to 65536, 200% of the cores, +2 or -2 for more or fewer than the cores, 0 for \
         as many as possible, or the path of a file with one of these"
    )]
    NoNumber,
    #[error("the file {} must have a number of jobs, such as 4 or 50%", .0.display())]
    NotInFile(PathBuf),
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: usize) {
        assert_eq!(text.parse::<WorkerCount>().unwrap().count(8, None), expected, "{text}");
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
        let most: WorkerCount = "0".parse().unwrap();
        assert_eq!(most.count(8, Some(3)), 3);
        assert_eq!(most.count(8, Some(0)), 1);
        assert!(most.count(8, None) <= MOST);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "+", "-", "%", "++1", "+-1", "1.5", "65537", "ten", "-5%", "1 ", "+50%"] {
            assert_eq!(text.parse::<Workers>(), Err(WorkersError::NoNumber), "{text:?}");
        }
    }

    #[test]
    fn a_file_says_how_many_jobs_run() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let parse = || path.to_str().unwrap().parse::<Workers>();
        assert_eq!(parse(), Err(WorkersError::NotInFile(path.clone())));
        file.write_all(b" 200%\n").unwrap();
        assert_eq!(parse(), Ok(Workers::File(path.clone())));
        assert_eq!(in_file(&path), Some(WorkerCount::Percent(200)));
        assert!(parse().unwrap().slots(8, None) >= 16.min(most_by_files()));
    }
}
