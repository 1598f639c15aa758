//! What travels between `gangline run --nats` and a worker: a job, and its outcome.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::args::running::SentSequence;
use crate::execute::process::ProcessEnd;
use crate::execute::remote_file::RemoteFile;
use crate::output::outcome::JobResult;
use crate::plan::job::{Job, Needs};
use crate::plan::slot::Showing;
use crate::plan::template::Template;

/// One attempt at a job. The worker fills its marks, since it knows its slot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemoteJob {
    pub(crate) number: u64,
    pub(crate) attempt: u32,
    fields: Vec<OsString>,
    command: Template,
    /// What precedes each line of its output.
    pub(crate) tag: Option<Template>,
    /// Where it runs: made if it is missing.
    pub(crate) workdir: Option<Template>,
    pub(crate) limit: Option<Duration>,
    /// The files that the job finds in its folder.
    pub(crate) sent: Vec<(RemotePath, RemoteFile)>,
    /// Those that come back.
    pub(crate) fetched: Vec<RemotePath>,
    pub(crate) common: RemoteRun,
}

/// A path of any bytes. Serde takes those of a `PathBuf` for text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RemotePath(OsString);

impl From<PathBuf> for RemotePath {
    fn from(path: PathBuf) -> Self {
        RemotePath(path.into_os_string())
    }
}

impl Deref for RemotePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// What the jobs of a run have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RemoteRun {
    /// Where relative paths begin.
    pub(crate) folder: RemotePath,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) showing: Showing,
    pub(crate) ending: SentSequence,
    pub(crate) max_output: Option<u64>,
}

/// What became of an attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemoteOutcome {
    /// The command, quoted for a shell.
    pub(crate) command: String,
    pub(crate) tag: Option<Vec<u8>>,
    pub(crate) host: String,
    /// The process of the worker.
    pub(crate) pid: u32,
    /// The number of the slot among those of its worker.
    pub(crate) slot: usize,
    pub(crate) gpus: Vec<usize>,
    pub(crate) end: RemoteEnd,
    pub(crate) started: SystemTime,
    pub(crate) took: Duration,
    pub(crate) stdout: ByteBuf,
    pub(crate) stderr: ByteBuf,
    /// The files that come back, in the order in which they were asked for.
    pub(crate) files: Vec<Result<RemoteFile, String>>,
}

/// How an attempt ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RemoteEnd {
    Exited(i32),
    Signalled(i32),
    TimedOut(Duration),
    PrintedTooMuch(u64),
    /// The run does not wait for it any more.
    Halted,
    NoProgram(String),
    NotStarted(String),
}

impl RemoteJob {
    pub(crate) fn new(job: &Job, attempt: u32, common: &RemoteRun) -> RemoteJob {
        RemoteJob {
            number: job.number,
            attempt,
            fields: job.fields.to_vec(),
            command: Template::clone(&job.command),
            tag: None,
            workdir: None,
            limit: None,
            sent: Vec::new(),
            fetched: Vec::new(),
            common: common.clone(),
        }
    }

    /// The job, as the machine that started the run knows it.
    pub(crate) fn job(&self) -> Job {
        Job {
            number: self.number,
            fields: self.fields.clone().into(),
            name: None,
            command: Arc::new(self.command.clone()),
            needs: Needs::Slot,
            turn: None,
        }
    }
}

impl RemoteEnd {
    pub(crate) fn not_started(error: &io::Error) -> RemoteEnd {
        match error.kind() {
            io::ErrorKind::NotFound => RemoteEnd::NoProgram(error.to_string()),
            _ => RemoteEnd::NotStarted(error.to_string()),
        }
    }

    pub(crate) fn of(end: ProcessEnd) -> RemoteEnd {
        match end {
            ProcessEnd::Exited(code) => RemoteEnd::Exited(code),
            ProcessEnd::Signalled(signal) => RemoteEnd::Signalled(signal),
            ProcessEnd::TimedOut(limit) => RemoteEnd::TimedOut(limit),
            ProcessEnd::PrintedTooMuch(most) => RemoteEnd::PrintedTooMuch(most),
            ProcessEnd::Recalled | ProcessEnd::Halted => RemoteEnd::Halted,
        }
    }

    pub(crate) fn into_result(self) -> JobResult {
        JobResult::Ended(match self {
            RemoteEnd::Exited(code) => ProcessEnd::Exited(code),
            RemoteEnd::Signalled(signal) => ProcessEnd::Signalled(signal),
            RemoteEnd::TimedOut(limit) => ProcessEnd::TimedOut(limit),
            RemoteEnd::PrintedTooMuch(most) => ProcessEnd::PrintedTooMuch(most),
            RemoteEnd::Halted => ProcessEnd::Halted,
            RemoteEnd::NoProgram(why) => {
                return JobResult::NotStarted(io::Error::new(io::ErrorKind::NotFound, why));
            }
            RemoteEnd::NotStarted(why) => return JobResult::NotStarted(io::Error::other(why)),
        })
    }
}
