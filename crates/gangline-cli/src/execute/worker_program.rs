//! The programs that `gangline worker` starts: that of the user, or one for each kind that is served without one.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::getpid;

use crate::args::cluster::WorkerArgs;
use crate::args::served::Served;
use crate::error::{CliError, usage};
use crate::execute::process::no_input;
#[cfg(feature = "nats")]
use crate::execute::served_program::program_of;

/// A program that is to run as a worker.
pub(super) struct WorkerProgram {
    /// What messages call the worker.
    pub(super) name: String,
    pub(super) command: Command,
    /// What it allows, and to whom.
    pub(super) allows: Option<String>,
}

/// The programs that the options name.
pub(super) fn worker_programs(
    args: &WorkerArgs,
    url: &str,
) -> Result<Vec<WorkerProgram>, CliError> {
    if let Some((program, arguments)) = args.program.split_first() {
        if args.python.is_some() || !args.path.is_empty() {
            return Err(usage("--python and --path are for --serve python, and not for a program"));
        }
        let mut command = Command::new(program);
        command.args(arguments);
        args.devices.iter().for_each(|devices| _ = command.env("GANGLINE_DEVICES", devices));
        if args.processes {
            command.env("GANGLINE_PROCESSES", "1");
        }
        let name = "the worker".to_owned();
        return Ok(vec![WorkerProgram { name, command: supervised(command, url), allows: None }]);
    }
    if args.serve.is_empty() {
        return Err(usage(NOTHING));
    }
    let kinds = args.serve.iter().map(Served::kind);
    if let Some(kind) = kinds.clone().find(|kind| kinds.clone().filter(|it| it == kind).count() > 1)
    {
        return Err(usage(&format!("--serve has {kind} twice: name each kind once")));
    }
    let program = |served: &Served| {
        let (command, allows) = program_of(args, served, url)?;
        let name = format!("the worker for {}", served.kind());
        Ok(WorkerProgram { name, command: supervised(command, url), allows: Some(allows) })
    };
    args.serve.iter().map(program).collect()
}

const NOTHING: &str = "nothing is named that this worker serves: --serve commands runs the commands of \
    `gangline run --nats`, --serve python calls the functions of gangline.Pool, --serve python:MODULE those of one \
    module alone, and -- PROGRAM starts a program with recipes of its own";

/// What each worker has in common.
fn supervised(mut command: Command, url: &str) -> Command {
    command.env("GANGLINE_NATS", url).stdin(no_input());
    // The worker ends with this process.
    command.env("GANGLINE_SUPERVISOR", getpid().as_raw_pid().to_string());
    // In a group of its own: Ctrl-C would kill it before it has drained.
    command.process_group(0);
    command
}

#[cfg(not(feature = "nats"))]
fn program_of(_: &WorkerArgs, served: &Served, _: &str) -> Result<(Command, String), CliError> {
    Err(usage(&format!(
        "{served} needs the feature `nats`, without which this program was compiled"
    )))
}
