//! The programs that `gangline worker` starts: that of the user, or one for each kind that is served without one.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::getpid;

use crate::args::cluster::WorkerArgs;
use crate::args::served::Served;
use crate::error::{CliError, usage};
use crate::execute::process::no_input;

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
    args.serve.iter().map(|served| serving(args, served, url)).collect()
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
fn serving(_: &WorkerArgs, served: &Served, _: &str) -> Result<WorkerProgram, CliError> {
    let text =
        format!("this build cannot serve {served}: it was compiled without its feature `nats`");
    Err(usage(&text))
}

/// The program that serves a kind of items.
#[cfg(feature = "nats")]
fn serving(args: &WorkerArgs, served: &Served, url: &str) -> Result<WorkerProgram, CliError> {
    let namespace = crate::broker::namespace(served);
    let nats = crate::broker::nats(url.to_owned(), Some(&namespace));
    let mut command = match served {
        Served::Commands => commands(args)?,
        Served::Python { .. } => python(args, served)?,
    };
    command.env(crate::broker::NAMESPACE, &namespace);
    Ok(WorkerProgram {
        name: format!("the worker for {}", served.kind()),
        command: supervised(command, url),
        allows: Some(allowed(served, &nats, &namespace)),
    })
}

/// What is allowed to those who may publish items, and where.
#[cfg(feature = "nats")]
fn allowed(served: &Served, nats: &gangline_nats::Nats, namespace: &str) -> String {
    let what = match served {
        Served::Commands => "run any command".to_owned(),
        Served::Python { module: None } => "run any Python code".to_owned(),
        Served::Python { module: Some(module) } => {
            format!("call the functions of the Python module {module}")
        }
    };
    let by = match (nats.user(), env::var_os("GANGLINE_NATS_CREDENTIALS")) {
        (Some(user), _) => format!(", in the account of its user {user}"),
        (None, Some(path)) => format!(", in the account of {}", path.display()),
        (None, None) => String::new(),
    };
    format!(
        "serving {served}: whoever may publish in the namespace {namespace} at {}{by} can {what} here, with the \
         rights of user {}",
        nats.address(),
        rustix::process::geteuid().as_raw(),
    )
}

/// This program, as the worker that runs commands.
#[cfg(feature = "nats")]
fn commands(args: &WorkerArgs) -> Result<Command, CliError> {
    let devices = crate::plan::slot::worker_devices(args.devices.as_deref())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gangline").arg(super::SERVE_COMMANDS).env("GANGLINE_DEVICES", devices);
    // The jobs open them, and not this program.
    command.env("GANGLINE_DEVICE_NAMES", "1");
    Ok(command)
}

/// The interpreter, with the module that serves functions.
#[cfg(feature = "nats")]
fn python(args: &WorkerArgs, served: &Served) -> Result<Command, CliError> {
    let mut command = Command::new(args.python.clone().unwrap_or_else(default_python));
    command.args(["-m", "gangline._serve"]);
    command.env("GANGLINE_SERVE", served.to_string()).env("GANGLINE_PROCESSES", "1");
    args.devices.iter().for_each(|devices| _ = command.env("GANGLINE_DEVICES", devices));
    if !args.path.is_empty() {
        let given = args.path.iter().map(|path| std::path::absolute(path).unwrap_or(path.clone()));
        let before = env::var_os("PYTHONPATH").unwrap_or_default();
        let before = env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
        let all = env::join_paths(given.chain(before).map(PathBuf::into_os_string));
        let all: OsString = all.map_err(|error| usage(&format!("--path: {error}")))?;
        command.env("PYTHONPATH", all);
    }
    Ok(command)
}

/// That beside this program, as in a virtual environment, or else that of `PATH`.
#[cfg(feature = "nats")]
fn default_python() -> PathBuf {
    let beside =
        env::current_exe().ok().and_then(|program| Some(program.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| Path::new("python3").to_owned())
}
