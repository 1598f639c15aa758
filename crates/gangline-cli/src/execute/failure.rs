//! What the program ends with because of a failure.

use std::io;

use crate::error::{CliError, Context};
use crate::exit;
use gangline::Error;
use gangline::error::JournalError;

/// The exit status for an error of the library.
pub(crate) fn of_run(error: Error) -> CliError {
    let exit = match &error {
        Error::Devices { .. } => exit::DEVICES,
        Error::Journal { .. } => exit::JOURNAL,
        error if error.is_input() => exit::INPUT,
        _ => exit::INTERNAL,
    };
    match error {
        // The library's text names its methods.
        Error::Journal { source: JournalError::Exists { path, .. }, .. } => CliError::new(
            exit,
            format!(
                "the journal {} exists already: --resume continues it, --resume-failed runs the failed jobs, \
                 and a new journal needs another path",
                path.display()
            ),
        ),
        Error::Journal { source: JournalError::Corrupt { path, at, .. }, .. } => CliError::new(
            exit,
            format!(
                "the journal {} is damaged at byte {at}: `truncate -s {at} FILE` keeps the records before \
                 that byte, and the jobs after it run again",
                path.display()
            ),
        ),
        Error::Journal { source: JournalError::Missing { path, .. }, .. } => CliError::new(
            exit,
            format!(
                "there is no journal {}, so the failed jobs are not known: use --resume",
                path.display()
            ),
        ),
        // The library counts from 0, and the cause already names the input.
        Error::InputFailed { source, .. } => CliError::new(exit, source),
        error => CliError::new(exit, error),
    }
}

pub(crate) fn unwritable(what: &dyn std::fmt::Display, error: io::Error) -> CliError {
    CliError::new(exit::OUTPUT, Context::new(format!("{what} cannot be written"), error))
}

pub(crate) fn internal(error: io::Error) -> CliError {
    CliError::new(exit::INTERNAL, error)
}
