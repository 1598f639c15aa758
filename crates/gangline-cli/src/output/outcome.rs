//! The outcome of a job.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::execute::process::ProcessEnd;
use crate::output::capture::{Captured, Spill};
use crate::output::misplaced::Misplaced;
use crate::output::place::ResultPlace;
use crate::plain::{Plain, beginning};
use gangline::report::HumanDuration;

/// The result of the last attempt at a job.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) number: u64,
    /// The identity of the job across runs.
    pub(crate) key: String,
    /// The inputs.
    pub(crate) fields: Arc<[OsString]>,
    /// The command, quoted for a shell.
    pub(crate) command: String,
    pub(crate) attempts: u32,
    /// The machine of the last attempt, if that is another.
    pub(crate) host: Option<Arc<str>>,
    /// The slot of the last attempt, and its GPUs.
    pub(crate) slot: usize,
    pub(crate) gpus: Arc<[usize]>,
    /// What precedes each line of the output.
    pub(crate) tag: Option<Vec<u8>>,
    /// Where its results are written.
    pub(crate) results: Option<ResultPlace>,
    pub(crate) result: JobResult,
    pub(crate) started: SystemTime,
    pub(crate) took: Duration,
    /// Taken when it is written: an error that is kept must not keep the output.
    pub(crate) printed: Mutex<Printed>,
    pub(crate) commit: CommitMark,
}

/// The number of the commit of the journal that has a job; 0 until its output is printed.
pub(crate) type CommitMark = Arc<AtomicU64>;

/// The output of a job.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// The size of standard output in bytes, kept or not.
    pub(crate) received: u64,
    /// What a job that prints line by line could not print before its turn came.
    pub(crate) unshown: [Captured; 2],
    /// Whether its results could not be written. Then it is not done.
    pub(crate) are_results_lost: bool,
    /// The file that has the standard output, which is printed in its place.
    pub(crate) file: Option<PathBuf>,
    /// What standard output was made of.
    pub(crate) form: StdoutForm,
    /// Whether the terminal has the standard error already.
    pub(crate) stderr_on_terminal: ShownOnTerminal,
}

/// Whether the terminal has a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ShownOnTerminal {
    #[default]
    NotYet,
    Already,
}

/// What the standard output of a job was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum StdoutForm {
    /// What a command has printed.
    #[default]
    Stream,
    /// A text that a warm worker has answered, and a line feed.
    Text,
    /// Another value that it has answered, as JSON on one line. Nothing is `null`.
    Json,
}

impl Printed {
    /// Takes the output that a warm worker has answered: a text unchanged, `null` as nothing, other values as JSON.
    pub(crate) fn receive(&mut self, spill: &Arc<Spill>, output: &RawValue) -> io::Result<()> {
        let (form, mut text) = match output.get() {
            "null" => (StdoutForm::Json, String::new()),
            text if text.starts_with('"') => (StdoutForm::Text, serde_json::from_str(text)?),
            other => (StdoutForm::Json, other.to_owned()),
        };
        if output.get() != "null" {
            text.push('\n');
        }
        self.form = form;
        self.received = text.len() as u64;
        self.stdout.push(spill, text.as_bytes())
    }
}

#[derive(Debug)]
pub(crate) enum JobResult {
    Ended(ProcessEnd),
    NotStarted(io::Error),
    /// Its program does not exist, which an earlier job has reported for all.
    NoProgram(io::Error),
    /// The path of its results was refused, so it was not started.
    Misplaced(Misplaced),
    /// Its output could not be kept.
    NotKept(io::Error),
    /// A warm worker's answer that rejects its input.
    Refused(String),
    /// The same, if it says that no attempt could succeed.
    BadInput(String),
    /// The fault of a warm worker that did not answer.
    WorkerFailed(String),
    /// All slots have been given up, which messages have said.
    NoWorkerLeft,
}

/// An input may have a mebibyte.
const MOST_SHOWN: usize = 400;

impl JobOutcome {
    /// The command as messages show it: the beginning of a long one.
    pub(crate) fn short_command(&self) -> Cow<'_, str> {
        short(&self.command)
    }

    pub(crate) fn take_printed(&self) -> Printed {
        std::mem::take(&mut *self.printed.lock().expect("nothing panics with the lock held"))
    }

    /// Whether its results could not be written.
    pub(crate) fn has_lost_results(&self) -> bool {
        self.printed.lock().expect("nothing panics with the lock held").are_results_lost
    }

    /// The ids of its GPUs, with commas.
    pub(crate) fn gpu_list(&self) -> String {
        self.gpu_ids().join(",")
    }

    /// The ids of its GPUs as JSON has them, also in messages to workers: not all ids of GPUs are numbers.
    pub(crate) fn gpu_ids(&self) -> Vec<String> {
        self.gpus.iter().map(usize::to_string).collect()
    }
}

impl JobResult {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, JobResult::Ended(ProcessEnd::Exited(0)))
    }

    /// Whether the job was ended since the run was ending. It then does not count as failed.
    pub(crate) fn is_ended_with_run(&self) -> bool {
        matches!(self, JobResult::Ended(ProcessEnd::Halted))
    }

    /// Whether another attempt would end in the same way.
    pub(crate) fn is_final(&self) -> bool {
        let ends_it = |result: &JobResult| {
            matches!(
                result,
                JobResult::Ended(ProcessEnd::Halted)
                    | JobResult::Misplaced(_)
                    | JobResult::NoProgram(_)
                    | JobResult::NoWorkerLeft
                    | JobResult::NotKept(_)
                    | JobResult::BadInput(_)
            )
        };
        self.is_ok() || ends_it(self)
    }

    /// Why the job failed, if it did.
    pub(crate) fn error(&self) -> Option<String> {
        match self {
            result if result.is_ok() => None,
            JobResult::Refused(why) | JobResult::BadInput(why) => Some(why.clone()),
            result => Some(result.to_string()),
        }
    }

    /// The causes of that error, each with its own.
    pub(crate) fn causes(&self) -> Vec<String> {
        let cause: Option<&dyn std::error::Error> = match self {
            JobResult::NotStarted(error)
            | JobResult::NoProgram(error)
            | JobResult::NotKept(error) => Some(error),
            JobResult::Misplaced(error) => Some(error),
            JobResult::Ended(_)
            | JobResult::Refused(_)
            | JobResult::BadInput(_)
            | JobResult::WorkerFailed(_)
            | JobResult::NoWorkerLeft => None,
        };
        std::iter::successors(cause, |cause| cause.source())
            .map(|cause| cause.to_string())
            .collect()
    }

    /// Whether the worker may be broken, and not the job.
    pub(crate) fn blames_worker(&self) -> bool {
        matches!(self, JobResult::WorkerFailed(_))
    }

    /// The exit status and the signal, as a shell and the log of `parallel` record them.
    pub(crate) fn codes(&self) -> (i32, i32) {
        match self {
            JobResult::Ended(ProcessEnd::Exited(code)) => (*code, 0),
            JobResult::Ended(ProcessEnd::Signalled(signal)) => (0, *signal),
            JobResult::Ended(
                ProcessEnd::TimedOut(_)
                | ProcessEnd::Halted
                | ProcessEnd::Recalled
                | ProcessEnd::PrintedTooMuch(_),
            ) => (-1, 15),
            JobResult::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => (127, 0),
            JobResult::NoProgram(_) => (127, 0),
            JobResult::NotStarted(_) | JobResult::Misplaced(_) => (126, 0),
            JobResult::NotKept(_)
            | JobResult::Refused(_)
            | JobResult::BadInput(_)
            | JobResult::WorkerFailed(_)
            | JobResult::NoWorkerLeft => (-1, 0),
        }
    }
}

impl fmt::Display for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobResult::Ended(end) => end.fmt(f),
            JobResult::NotStarted(error) | JobResult::NoProgram(error) => {
                write!(f, "could not be started: {error}")
            }
            JobResult::Misplaced(error) => write!(f, "could not be started: {error}"),
            JobResult::NotKept(error) => {
                write!(f, "was ended: its output could not be kept: {error}")
            }
            JobResult::Refused(why) | JobResult::BadInput(why) => {
                write!(f, "failed: {}", Plain(why))
            }
            JobResult::WorkerFailed(why) => write!(f, "failed with its worker, which {why}"),
            JobResult::NoWorkerLeft => {
                f.write_str("failed with its worker, which was given up, like all others")
            }
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessEnd::Exited(code) => write!(f, "exited with {code}"),
            ProcessEnd::Signalled(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => write!(f, "was killed by {name}"),
                None => write!(f, "was killed by signal {signal}"),
            },
            ProcessEnd::TimedOut(limit) => {
                // To the millisecond: a multiple of a median has nanoseconds.
                let rounded = limit.as_millis().try_into().unwrap_or(u64::MAX);
                let limit = match rounded {
                    0 => *limit,
                    millis => Duration::from_millis(millis),
                };
                write!(f, "was ended: it took longer than {:#}", HumanDuration(limit))
            }
            ProcessEnd::PrintedTooMuch(most) => {
                write!(f, "was ended: it printed more than {most} bytes")
            }
            ProcessEnd::Recalled => f.write_str("was ended: memory is scarce"),
            ProcessEnd::Halted => f.write_str("was ended with the run"),
        }
    }
}

/// The beginning of a long command.
pub(crate) fn short(command: &str) -> Cow<'_, str> {
    match command.len() > MOST_SHOWN {
        false => Cow::Borrowed(command),
        true => {
            let begin = beginning(command, MOST_SHOWN);
            Cow::Owned(format!("{begin}... ({} bytes)", command.len()))
        }
    }
}

/// A failed attempt at a job, as an error for the library.
#[derive(Debug, Clone)]
pub(crate) struct JobFailed {
    pub(crate) outcome: Arc<JobOutcome>,
    pub(crate) next: NextAttempt,
}

impl JobFailed {
    /// Whether the job has no further attempt.
    pub(crate) fn is_last(&self) -> bool {
        self.next == NextAttempt::Nothing
    }
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// The job has failed.
    Nothing,
    /// Another attempt on the same slot.
    OnItsSlot,
    /// Another attempt, on another slot if there is one.
    OnAnotherSlot,
}

/// The end of its standard error, if it has any.
const TAIL: usize = 400;

impl fmt::Display for JobFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = &*self.outcome;
        write!(f, "{} {}", outcome.short_command(), outcome.result)?;
        let tail =
            outcome.printed.lock().map(|printed| printed.stderr.tail(TAIL)).unwrap_or_default();
        match String::from_utf8_lossy(&tail).trim() {
            "" => Ok(()),
            text => write!(f, "; it ended with: {}", Plain(text)),
        }
    }
}

impl std::error::Error for JobFailed {}
