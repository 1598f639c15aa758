//! Errors of child processes.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::BoxError;
use crate::base::{HumanDuration, debug_with_causes};

/// How a child process ended while a hook ran in it: the cause of [`Error::HookCrashed`](crate::Error::HookCrashed).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crash {
    /// The signal that killed the process: 11 (SIGSEGV), 6 (SIGABRT), 9 (SIGKILL, also of the kernel's
    /// out-of-memory killer).
    pub signal: Option<i32>,
    /// The status with which the process exited by itself.
    pub status: Option<i32>,
    /// The end of what the process printed, at most 4 KiB.
    pub stderr: String,
}

impl Crash {
    /// How a process ended, for backends.
    #[doc(hidden)]
    pub fn new(signal: Option<i32>, status: Option<i32>, stderr: String) -> Self {
        Crash { signal, status, stderr }
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal, self.status) {
            (Some(signal), _) => {
                write!(f, "its process was killed by signal {signal}{}", Name(signal))?;
            }
            (None, Some(status)) => write!(f, "its process exited with status {status}")?,
            (None, None) => f.write_str("its process closed the connection")?,
        }
        write_stderr(f, &self.stderr)
    }
}

debug_with_causes!(Crash);

impl std::error::Error for Crash {}

/// A child process, or another backend, that cannot serve: the cause of [`Error::Worker`](crate::Error::Worker).
#[non_exhaustive]
pub enum WorkerError {
    /// The operating system could not start it.
    #[non_exhaustive]
    Start {
        /// The program that was to be started.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The fork server of `Processes::fork_server` cannot prepare.
    #[non_exhaustive]
    Unprepared {
        /// What the server said.
        reason: String,
    },
    /// It ended before it answered: mostly a program that does not call
    /// `gangline::worker_main`.
    #[non_exhaustive]
    NoWorker {
        /// The program that was started.
        program: PathBuf,
        /// How it ended.
        crash: Crash,
    },
    /// It has not answered in time.
    #[non_exhaustive]
    Silent {
        /// The program that was started.
        program: PathBuf,
        /// The time that it had.
        limit: Duration,
    },
    /// It refused to serve: it is of another version, or lacks the recipe.
    #[non_exhaustive]
    Refused {
        /// What differs, with the values of both sides.
        reason: String,
    },
    /// The `make` function of the recipe returned an error or panicked in it.
    #[non_exhaustive]
    Make {
        /// What it returned.
        source: BoxError,
    },
    /// The configuration cannot be written as text, or not be read from it.
    #[non_exhaustive]
    Cfg {
        /// Why.
        source: BoxError,
    },
    /// A message is damaged, too long or of an unknown kind.
    #[non_exhaustive]
    Frame {
        /// What is wrong with it.
        source: FrameError,
    },
    /// This process was started as a worker and has not called `gangline::worker_main`. It may not start others: each would
    /// do the same.
    #[non_exhaustive]
    Nested {},
    /// A backend of another crate cannot serve, or refuses a setting. The text is that of the source, such as the
    /// `ClusterError` of gangline-nats.
    #[non_exhaustive]
    Backend {
        /// What is wrong. Its own source is the next cause along the chain.
        source: BoxError,
    },
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAIN: &str = "its `main` must begin with `gangline::worker_main(&[&RECIPE])`";
        match self {
            WorkerError::Start { program, .. } => {
                write!(f, "the worker {} could not be started", program.display())
            }
            WorkerError::Unprepared { reason } => {
                write!(f, "the workers have no fork server: {reason}")
            }
            WorkerError::NoWorker { program, crash } => {
                write!(f, "{} did not become a worker: ", program.display())?;
                match (crash.signal, crash.status) {
                    // By itself it would have exited.
                    (Some(signal), _) => write!(f, "signal {signal}{} killed it", Name(signal))?,
                    (None, Some(status)) => write!(f, "it exited with status {status}; {MAIN}")?,
                    (None, None) => write!(f, "it closed the connection; {MAIN}")?,
                }
                write_stderr(f, &crash.stderr)
            }
            WorkerError::Silent { program, limit } => write!(
                f,
                "{} did not become a worker within {:#}; {MAIN}",
                program.display(),
                HumanDuration(*limit)
            ),
            WorkerError::Refused { reason } => write!(f, "the worker refused to serve: {reason}"),
            WorkerError::Make { .. } => f.write_str("the recipe could not make the runner"),
            WorkerError::Cfg { .. } => {
                f.write_str("the configuration could not be handed to the worker")
            }
            WorkerError::Frame { .. } => f.write_str("the worker could not be understood"),
            WorkerError::Nested {} => write!(
                f,
                "this process was started as a worker and cannot start others; build with `processes` only in a \
                 program whose `main` begins with `gangline::worker_main(&[&RECIPE])`"
            ),
            WorkerError::Backend { source } => source.fmt(f),
        }
    }
}

debug_with_causes!(WorkerError);

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WorkerError::Start { source, .. } => Some(source),
            WorkerError::Make { source } | WorkerError::Cfg { source } => Some(source.as_ref()),
            WorkerError::Frame { source } => Some(source),
            WorkerError::Backend { source } => source.source(),
            WorkerError::Unprepared { .. }
            | WorkerError::NoWorker { .. }
            | WorkerError::Silent { .. }
            | WorkerError::Refused { .. }
            | WorkerError::Nested {} => None,
        }
    }
}

/// Why a stream of messages between two processes cannot be read or written.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// A message is longer than allowed.
    #[non_exhaustive]
    TooLong {
        /// Its length, in bytes.
        length: usize,
        /// The largest length that is allowed, in bytes.
        most: usize,
    },
    /// A message is of a kind that this version does not know.
    #[non_exhaustive]
    UnknownKind {
        /// The number of the kind.
        kind: u8,
    },
    /// The stream ended within a message.
    #[non_exhaustive]
    Half {
        /// The number of bytes that arrived.
        got: usize,
        /// The number of bytes of the message, as far as it is known.
        of: usize,
    },
    /// A message does not decode, or comes at the wrong time.
    #[non_exhaustive]
    Damaged {
        /// Which message, and why.
        reason: String,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLong { length, most } => write!(
                f,
                "a message has {length} bytes; at most {most} are allowed (`Processes::max_frame`)"
            ),
            FrameError::UnknownKind { kind } => {
                write!(f, "a message is of the unknown kind {kind}")
            }
            FrameError::Half { got, of } => {
                write!(f, "the connection ended after {got} of {of} bytes of a message")
            }
            FrameError::Damaged { reason } => f.write_str(reason),
        }
    }
}

debug_with_causes!(FrameError);

impl std::error::Error for FrameError {}

/// An error of a hook in another process: its texts, without its type.
///
/// With `Recipe::error`, an error keeps its type instead.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteError {
    text: String,
    cause: Option<Box<RemoteError>>,
}

impl RemoteError {
    /// `None` if there are no texts.
    #[cfg_attr(
        not(any(test, all(feature = "processes", target_os = "linux"))),
        expect(dead_code, reason = "no other process has hooks")
    )]
    pub(crate) fn new(texts: Vec<String>) -> Option<RemoteError> {
        let causes = texts.into_iter().rev();
        causes.fold(None, |cause, text| Some(RemoteError { text, cause: cause.map(Box::new) }))
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

debug_with_causes!(RemoteError);

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

fn write_stderr(f: &mut fmt::Formatter<'_>, stderr: &str) -> fmt::Result {
    match stderr.trim_end() {
        "" => Ok(()),
        text => write!(f, "; it printed at last: {text}"),
    }
}

/// The name of a signal, in parentheses.
struct Name(i32);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            2 => "SIGINT",
            4 => "SIGILL",
            6 => "SIGABRT",
            8 => "SIGFPE",
            9 => "SIGKILL",
            11 => "SIGSEGV",
            15 => "SIGTERM",
            _ => return Ok(()),
        };
        write!(f, " ({name})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_says_how_and_what_was_printed_last() {
        let crash = Crash::new(Some(11), None, "free(): invalid pointer\n".to_owned());
        assert_eq!(
            crash.to_string(),
            "its process was killed by signal 11 (SIGSEGV); it printed at last: free(): invalid pointer"
        );
        let crash = Crash::new(None, Some(3), String::new());
        assert_eq!(crash.to_string(), "its process exited with status 3");
    }

    #[test]
    fn an_error_from_elsewhere_keeps_its_chain() {
        let texts = ["outer", "middle", "inner"].map(str::to_owned);
        let error = RemoteError::new(texts.into()).unwrap();
        assert_eq!(format!("{error:?}"), "outer: middle: inner");
    }
}
