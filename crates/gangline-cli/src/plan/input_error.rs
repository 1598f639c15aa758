//! Why there is no next job.

use std::fmt;
use std::io;
use std::path::Path;

use crate::plain::Plain;

/// The largest size of an input in bytes. It is far more than any program accepts as an argument, and far
/// less than a large file without line ends.
pub(crate) const LONGEST: usize = 1 << 20;

/// Why there is no next job.
#[derive(Debug)]
pub(crate) struct InputError {
    pub(crate) source: String,
    pub(crate) problem: Problem,
}

#[derive(Debug)]
pub(crate) enum Problem {
    Io(io::Error),
    Csv(csv::Error),
    TooLong(u64),
    Nul(u64),
    /// The number of an input that is to be JSON.
    Json(u64, serde_json::Error),
    /// The input has no value of this name, which `--key` asks for.
    NoKey(String),
    NoColumns,
    ColumnTwice(String),
    /// Counted from 1.
    ColumnWithoutName(usize),
    Changed,
}

impl InputError {
    /// For a file that differs when it is read a second time.
    pub(crate) fn changed(path: &Path) -> InputError {
        InputError { source: path.display().to_string(), problem: Problem::Changed }
    }

    /// For an input without the key of its job.
    pub(crate) fn without_key(number: u64, key: &str) -> InputError {
        InputError { source: format!("input {number}"), problem: Problem::NoKey(key.to_owned()) }
    }
}

/// The name of a source in messages. `-` is standard input.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = Plain(&self.source);
        match &self.problem {
            Problem::Io(_) => write!(f, "{source} cannot be read"),
            Problem::Csv(_) => write!(f, "{source} is not a table"),
            Problem::TooLong(number) => {
                write!(f, "input {number} of {source} is longer than {LONGEST} bytes")
            }
            Problem::Nul(number) => write!(
                f,
                "input {number} of {source} has a NUL in it, which cannot be passed to a program; if NULs \
                 separate the inputs, use -0"
            ),
            Problem::Json(number, _) => {
                write!(f, "input {number} of {source} is not JSON, which --jsonl says it is")
            }
            Problem::Changed => write!(f, "{source} was changed while it was read"),
            Problem::NoKey(key) => {
                write!(f, "{source} is not an object with a value {key:?}, which is the --key")
            }
            Problem::NoColumns => write!(f, "{source} has no column names in its first line"),
            Problem::ColumnTwice(column) => {
                write!(f, "there are two columns {column:?}, the second in {source}")
            }
            Problem::ColumnWithoutName(number) => {
                write!(f, "{source} has no name for column {number} in its first line")
            }
        }
    }
}

impl std::error::Error for InputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            Problem::Csv(error) => Some(error),
            Problem::Json(_, error) => Some(error),
            _ => None,
        }
    }
}
