//! What the program ends with because of a failure.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{CliError, Context};
use crate::exit;
use gangline::Error;
use gangline::error::JournalError;
use gangline::journal::Difference;

/// The exit status for an error of the library.
pub(crate) fn of_run(error: Error) -> CliError {
    let exit = match &error {
        Error::Devices { .. } => exit::DEVICES,
        Error::Journal { .. } => exit::JOURNAL,
        error if error.is_input() => exit::INPUT,
        error if is_limit(error) => exit::USAGE,
        _ => exit::INTERNAL,
    };
    match error {
        // The library's text names its methods.
        Error::Journal { source: JournalError::Exists { path, .. }, .. } => journal_exists(&path),
        Error::Journal { source: JournalError::Corrupt { path, at, .. }, .. } => CliError::new(
            exit,
            format!(
                "the journal {} is damaged at byte {at}: `truncate -s {at} FILE` keeps the records before \
                 that byte, and the jobs after it run again",
                path.display()
            ),
        ),
        Error::Journal { source: JournalError::Differs { path, differences, .. }, .. } => {
            CliError::new(exit, differs(&path, &differences))
        }
        Error::Journal { source: JournalError::Missing { path, .. }, .. } => CliError::new(
            exit,
            format!(
                "there is no journal {}, so the failed jobs are not known: use --resume",
                path.display()
            ),
        ),
        Error::Journal { source: JournalError::NoLock { path, source, .. }, .. } => {
            let text = format!(
                "the journal {} cannot be locked: {source}; use a file system with locks, or go on with \
                 --no-journal-lock, where a second run at the same time damages the journal",
                path.display()
            );
            CliError::new(exit, text)
        }
        error if exit == exit::USAGE => CliError::new(exit, Context::new(BEYOND_LIMIT, error)),
        // The library counts from 0, and the cause already names the input.
        Error::InputFailed { source, .. } => CliError::new(exit, source),
        error => CliError::new(exit, error),
    }
}

/// The options that the journal was begun with are the user's to repeat: no configuration is to be restored.
fn differs(path: &Path, differences: &[Difference]) -> String {
    let shown: Vec<String> = differences.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    let more = match differences.len().saturating_sub(MOST_TOLD) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "the journal {} is of another run: {}{more}; give the command and options that it began with, or \
         another --journal",
        path.display(),
        shown.join(", ")
    )
}

/// The maximum number of differences in a message.
const MOST_TOLD: usize = 8;

/// A new journal would take the place of another.
pub(crate) fn journal_exists(path: &Path) -> CliError {
    let text = format!(
        "the journal {} exists already: --resume continues it, --resume-failed runs the failed jobs, and a \
         new journal needs another path",
        path.display()
    );
    CliError::new(exit::JOURNAL, text)
}

pub(crate) fn unwritable(what: &dyn std::fmt::Display, error: io::Error) -> CliError {
    CliError::new(exit::OUTPUT, Context::new(format!("{what} cannot be written"), error))
}

/// A failure of the system that no option causes. A limit of the system, or a call that it refuses, is for the user
/// to change.
pub(crate) fn internal(error: io::Error) -> CliError {
    if is_limit(&error) {
        return CliError::new(exit::USAGE, Context::new(BEYOND_LIMIT, error));
    }
    match has_code(&error, &REFUSALS) {
        true => CliError::new(exit::USAGE, Context::new(REFUSED, error)),
        false => CliError::new(exit::INTERNAL, error),
    }
}

const REFUSED: &str = "this system refuses a call that gangline needs, as some containers do";

/// How a container or another filter of system calls refuses one.
const REFUSALS: [Errno; 2] = [Errno::NOSYS, Errno::PERM];

const BEYOND_LIMIT: &str =
    "a limit on open files, processes or memory is too low (ulimit -a), or the machine has no more";

/// Whether a limit on processes, open files or memory is the cause.
fn is_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    has_code(error, &[Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM])
}

/// Whether one of these errors of the system is the cause.
pub(crate) fn has_code(error: &(dyn std::error::Error + 'static), wanted: &[Errno]) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut codes = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    codes.any(|code| wanted.iter().any(|wanted| wanted.raw_os_error() == code))
}
