//! The programs behind `gangline worker --serve`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::cluster::WorkerArgs;
use crate::args::served::Served;
use crate::broker;
use crate::error::{CliError, usage};
use crate::execute::SERVE_COMMANDS;
use crate::plan::slot::worker_devices;

/// The program that serves a kind of items, and what that allows and to whom.
pub(super) fn program_of(
    args: &WorkerArgs,
    served: &Served,
    url: &str,
) -> Result<(Command, String), CliError> {
    let namespace = broker::namespace(served);
    let nats = broker::nats(url.to_owned(), Some(&namespace));
    let mut command = match served {
        Served::Commands => commands(args)?,
        Served::Python { .. } => python(args, served)?,
    };
    command.env(broker::NAMESPACE, &namespace);
    Ok((command, allowed(served, &nats, &namespace)))
}

/// What is allowed to those who may publish items, and where.
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
fn commands(args: &WorkerArgs) -> Result<Command, CliError> {
    let devices = worker_devices(args.devices.as_deref())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gangline").arg(SERVE_COMMANDS).env("GANGLINE_DEVICES", devices);
    // The jobs open them, and not this program.
    command.env("GANGLINE_DEVICE_NAMES", "1");
    Ok(command)
}

/// The interpreter, with the module that serves functions.
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
fn default_python() -> PathBuf {
    let beside =
        env::current_exe().ok().and_then(|program| Some(program.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| Path::new("python3").to_owned())
}
