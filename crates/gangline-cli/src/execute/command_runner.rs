//! `gangline worker --serve commands`: the runner that starts the commands of runs on other machines.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_bytes::ByteBuf;

use crate::args::running::TermSequence;
use crate::error::{CliError, usage};
use crate::execute::commands;
use crate::execute::groups::Groups;
use crate::execute::process::{self, Nursery, OutputStream, ProcessEnd, ProcessLimits, Streams};
use crate::execute::remote_file::RemoteFile;
use crate::execute::remote_job::{RemoteEnd, RemoteJob, RemoteOutcome};
use crate::host_name::host_name;
use crate::plan::slot::{JobSlot, Showing};
use crate::plan::template::quoted;
use crate::plan::texts::{self, OnSlot};
use gangline::backend::Bell;
use gangline::process::Recipe;
use gangline::{ConsumerContext, ProducerContext, Result, Runner};
use tempfile::TempDir;

/// Serves commands as a worker of a cluster, and never returns if this process was started for that.
pub(crate) fn serve_commands() -> std::result::Result<u8, CliError> {
    gangline_nats::worker_main(&[&COMMANDS]);
    Err(usage("this is started by `gangline worker --serve commands`"))
}

/// The recipe of commands. The version is that of what travels.
pub(super) static COMMANDS: Recipe<CommandRunner> =
    Recipe::new("commands", |_| Ok(CommandRunner)).version(VERSION);

const VERSION: &str = concat!("1, gangline ", env!("CARGO_PKG_VERSION"));

/// The largest output that a job may have on each of its streams: it is in memory until it has travelled.
const MOST_OUTPUT: usize = 64 << 20;

/// Starts a command for each item.
pub(super) struct CommandRunner;

/// What a producer keeps between jobs.
pub(super) struct CommandSlot {
    slots: [JobSlot; 2],
    gpus: Vec<usize>,
    /// For one process.
    groups: Arc<Groups>,
    bell: Arc<dyn Bell>,
    buffer: Vec<u8>,
}

/// Wakes the thread that attends to the process.
#[derive(Debug)]
pub(super) struct SlotBell {
    pub(super) groups: Arc<Groups>,
    pub(super) slot: usize,
}

impl Bell for SlotBell {
    fn ring(&self) {
        self.groups.bell(self.slot).ring();
    }
}

/// A command that is ready to start, and how it is shown.
struct PreparedCommand {
    shown: String,
    tag: Option<Vec<u8>>,
    command: io::Result<(Command, JobFolder)>,
}

/// Where a job runs.
struct JobFolder {
    path: PathBuf,
    /// Set if it is of this job alone, and is removed with it.
    _temporary: Option<TempDir>,
}

impl Runner for CommandRunner {
    type Input = RemoteJob;
    type Output = RemoteOutcome;
    type ProducerState = CommandSlot;
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<CommandSlot> {
        let slot = |showing| JobSlot::of_place(cx.devices(), showing);
        let slots = [slot(Showing::Fitting)?, slot(Showing::Variable)?];
        let gpus = slots[0].gpus.to_vec();
        let groups = Groups::new(1)?;
        let bell = Arc::new(SlotBell { groups: Arc::clone(&groups), slot: 0 });
        Ok(CommandSlot { slots, gpus, groups, bell, buffer: Vec::new() })
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        slot: &mut CommandSlot,
        job: RemoteJob,
    ) -> Result<RemoteOutcome> {
        cx.listen(&slot.bell);
        let PreparedCommand { shown, tag, command } = prepared(cx.producer(), slot, &job);
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut printed = [Vec::new(), Vec::new()];
        let ended = command.and_then(|(command, folder)| {
            Ok((run(cx, slot, &job, command, &mut printed)?, folder))
        });
        let fetch = |(_, folder): &(ProcessEnd, JobFolder)| {
            let read = |name| RemoteFile::read(&folder.path, name).map_err(|it| it.to_string());
            job.fetched.iter().map(|name| read(name)).collect()
        };
        let files = ended.as_ref().map_or_else(|_| Vec::new(), fetch);
        let end = ended.map(|(end, _)| end);
        let [stdout, stderr] = printed.map(ByteBuf::from);
        Ok(RemoteOutcome {
            command: shown,
            tag,
            host: host_name().to_owned(),
            pid: std::process::id(),
            slot: cx.producer(),
            gpus: slot.gpus.clone(),
            end: end.map_or_else(|error| RemoteEnd::not_started(&error), RemoteEnd::of),
            started,
            took: clock.elapsed(),
            stdout,
            stderr,
            files,
        })
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: RemoteOutcome) -> Result<()> {
        unreachable!("a service calls no hook of the consumer")
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

/// Fills the marks of a job.
fn prepared(number: usize, slot: &CommandSlot, sent: &RemoteJob) -> PreparedCommand {
    let (job, attempt) = (sent.job(), sent.attempt);
    let own = match sent.common.showing {
        Showing::Fitting => &slot.slots[0],
        Showing::Variable => &slot.slots[1],
    };
    let given = own.given(&job.command);
    let words = job.words(&given.ids, number, attempt);
    let on_slot = OnSlot { gpus: &given.ids, worker: number, attempt };
    let filled = |text: &_| texts::fill(&Arc::new(Clone::clone(text)), &job, on_slot);
    let (shown, tag) = (words.quoted(), sent.tag.as_ref().map(filled));
    let lacks_gpu = given.ids.is_empty() && job.command.has_gpus();
    let command = match lacks_gpu {
        true => Err(io::Error::other("it has a mark for GPUs, and this slot has none")),
        false => {
            let command = with_variables(commands::command(words, given), sent);
            in_folder(command, sent, sent.workdir.as_ref().map(filled))
        }
    };
    PreparedCommand { shown, tag: tag.map(OsString::into_encoded_bytes), command }
}

/// Gives a command the variables of the run, and hides those of this worker.
fn with_variables(mut command: Command, sent: &RemoteJob) -> Command {
    let own: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    let is_free = |name: &OsString| !own.contains(name);
    OWN_VARIABLES.iter().filter(|name| is_free(&OsString::from(name))).for_each(|name| {
        command.env_remove(name);
    });
    let of_run = sent.common.variables.iter().filter(|(name, _)| is_free(name));
    command.envs(of_run.map(|(name, value)| (name, value)));
    command
}

/// The variables that make a process a worker, one of which has the address of the broker with its password.
const OWN_VARIABLES: [&str; 7] = [
    "GANGLINE_NATS",
    "GANGLINE_NATS_WORKER",
    "GANGLINE_NATS_NAMESPACE",
    "GANGLINE_DEVICES",
    "GANGLINE_DEVICE_NAMES",
    "GANGLINE_PROCESSES",
    "GANGLINE_SUPERVISOR",
];

/// Gives a command its directory. One that the run names is made. Files that travel have one of the job alone, unless the
/// run names another. Else that of the run has to be there.
fn in_folder(
    mut command: Command,
    sent: &RemoteJob,
    workdir: Option<OsString>,
) -> io::Result<(Command, JobFolder)> {
    let folder: &Path = &sent.common.folder;
    let unusable = |path: &Path, what: &str, error: io::Error| {
        io::Error::other(format!("its directory {} {what}: {error}", quoted(path.as_os_str())))
    };
    let has_files = !sent.sent.is_empty() || !sent.fetched.is_empty();
    let folder = match workdir {
        Some(workdir) => {
            let path = folder.join(workdir);
            fs::create_dir_all(&path).map_err(|error| unusable(&path, "cannot be made", error))?;
            JobFolder { path, _temporary: None }
        }
        None if has_files => {
            let temporary = tempfile::Builder::new().prefix("gangline-").tempdir()?;
            JobFolder { path: temporary.path().to_owned(), _temporary: Some(temporary) }
        }
        None => {
            fs::metadata(folder).map_err(|error| unusable(folder, NOT_HERE, error))?;
            JobFolder { path: folder.to_owned(), _temporary: None }
        }
    };
    sent.sent.iter().try_for_each(|(name, file)| file.write(&folder.path, name))?;
    command.current_dir(&folder.path).env("PWD", &folder.path);
    Ok((command, folder))
}

const NOT_HERE: &str = "is not on this machine, so share it or give --workdir, --send or --fetch";

/// Starts a command and waits for its end. It is ended if its run does not wait for it any more.
fn run(
    cx: &ProducerContext<'_>,
    slot: &mut CommandSlot,
    job: &RemoteJob,
    command: Command,
    printed: &mut [Vec<u8>; 2],
) -> io::Result<ProcessEnd> {
    let CommandSlot { groups, buffer, .. } = slot;
    let common = &job.common;
    let ending = &TermSequence::received(&common.ending);
    let (worker, streams) = (0, Streams::Piped);
    let nursery = Nursery { groups, worker, job: job.number, ending, streams, buffer };
    // A job that was given up has no time left.
    let time = || if cx.is_cancelled() { Some(Duration::ZERO) } else { job.limit };
    let limits = ProcessLimits { time: &time, output: common.max_output };
    let mut keep = |channel: OutputStream, bytes: &[u8]| {
        let kept = &mut printed[channel as usize];
        if kept.len() + bytes.len() > MOST_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        kept.extend_from_slice(bytes);
        Ok(())
    };
    let (end, kept) = process::run(nursery, command, &limits, &mut keep)?;
    Ok(match kept {
        Ok(()) => end,
        Err(_) => ProcessEnd::PrintedTooMuch(MOST_OUTPUT as u64),
    })
}
