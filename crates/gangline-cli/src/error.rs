//! Errors of the program itself, before or beside its jobs.

use std::error::Error;
use std::fmt;
use std::io;

use gangline::BoxError;

use crate::exit;

/// A failure, and the exit status that it leads to.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: u8,
    source: BoxError,
}

impl CliError {
    pub(crate) fn new(exit: u8, source: impl Into<BoxError>) -> CliError {
        CliError { exit, source: source.into() }
    }
}

/// With all causes, on one line.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.source.to_string();
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let reason = error.to_string();
            // Some errors already include their cause.
            if !text.ends_with(&reason) {
                text = format!("{text}: {reason}");
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

impl Error for CliError {}

/// A wrong use of the program.
pub(crate) fn usage(text: &str) -> CliError {
    CliError::new(exit::USAGE, text)
}

/// Says what failed, with the reason as its source.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Context {
    pub(crate) what: String,
    pub(crate) source: BoxError,
}

impl Context {
    pub(crate) fn new(what: impl Into<String>, source: impl Into<BoxError>) -> Context {
        Context { what: what.into(), source: source.into() }
    }
}

/// Names the system call that has failed.
pub(crate) fn naming<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), Context::new(format!("{call}: {error}"), error))
    }
}
