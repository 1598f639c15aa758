//! Reads the arguments, does the work, and returns the exit status.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::panic::catch_unwind;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::args::check::CheckArgs;
use crate::args::options;
use crate::args::serve::ServeArgs;
use crate::args::{self, ManArgs, RunArgs, Subcommands};
use crate::check::{self, Checked};
use crate::error::{CliError, Context};
use crate::execute::dry_run::dry_run;
use crate::execute::failure::internal;
use crate::execute::limits::{allow_files, survive_full_files};
use crate::execute::own_broker::OwnBroker;
use crate::execute::signals::unblock_signals;
use crate::execute::supervisor::InputSource;
use crate::execute::{self, run, supervisor, worker};
use crate::output::report;
use crate::output::stdio::{self, check_stdin, check_stdout};
use crate::plan::Planned;
use crate::plan::job_run::JobRun;
use crate::{broker, config, devices, dockerfile, exit, fleet, manual, reports, serve};

/// Runs the program with the arguments of this process, and returns its exit status. `--help` explains each
/// status.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    // A panic would end it with a status of another meaning.
    let status = match catch_unwind(|| start(arguments)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            tell(&error);
            error.exit
        }
        Err(_) => exit::INTERNAL,
    };
    ExitCode::from(status)
}

fn start(arguments: Vec<OsString>) -> Result<u8, CliError> {
    // Before any thread or process starts, since each inherits the mask.
    unblock_signals().map_err(internal)?;
    if arguments.get(1).is_some_and(|word| word == execute::SERVE_COMMANDS) {
        return execute::serve_commands();
    }
    register_for_fences();
    let arguments = options::with_file(arguments)?;
    let cli = match args::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.command {
        Subcommands::Run(run) => start_run(*run, cli.supervisor, arguments),
        Subcommands::Check(check) => start_check(&check, cli.supervisor, arguments),
        Subcommands::Dockerfile(args) => written(dockerfile::show(&args)?),
        Subcommands::Serve(args) => start_server(*args, cli.supervisor, arguments),
        Subcommands::Worker(args) => worker::supervise(&args),
        Subcommands::Workers(args) => written(fleet::show(&args)?),
        Subcommands::Devices(args) => written(devices::show(args.json)?),
        Subcommands::Config(args) => written(config::show(&args)?),
        Subcommands::Report(args) => written(reports::show(&args)?),
        Subcommands::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut args::command(), "gangline", &mut script);
            written(script)
        }
        Subcommands::Man(args) => written(manual(&args)?),
    }
}

/// Registers this process for `membarrier(2)`, which its pools use, before it has a second thread. With several threads the
/// kernel waits until all processors have passed, for up to 16 ms at the start of each run. Where it refuses, the library
/// does without.
fn register_for_fences() {
    let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
}

fn start_run(
    args: RunArgs,
    supervisor: Option<i32>,
    arguments: Vec<OsString>,
) -> Result<u8, CliError> {
    broker::hide(args.cluster.nats.as_deref(), &arguments)?;
    check_stdout()?;
    if args.source_files().any(stdio::is_stdin) {
        check_stdin()?;
    }
    args.record.report.iter().try_for_each(|path| report::check(path))?;
    survive_full_files()?;
    // Before anything opens a file.
    allow_files(0)?;
    // A command that starts no process needs no supervisor.
    match (args.output.dry_run, supervisor) {
        (true, _) => dry_run(&JobRun::new(&args)?, Planned::new(&args)?),
        (false, Some(_)) => work(args, supervisor),
        (false, None) => supervise(&args, arguments),
    }
}

/// Runs the jobs in this process, with the broker of the run if it has one of its own.
fn work(mut args: RunArgs, supervisor: Option<i32>) -> Result<u8, CliError> {
    let broker = args.cluster.broker.as_ref().map(OwnBroker::start).transpose()?;
    if let Some(broker) = &broker {
        args.cluster.nats = Some(broker.url());
    }
    let run = JobRun::new(&args)?;
    let starter = args.cluster.start_workers.as_deref();
    let started = broker.as_ref().map(|broker| broker.offer(starter)).transpose()?;
    let status = run::run(&run, || Planned::new(&args), supervisor);
    // Workers leave in order while the broker is there.
    drop(started);
    drop(broker);
    status
}

fn start_check(
    args: &CheckArgs,
    supervisor: Option<i32>,
    arguments: Vec<OsString>,
) -> Result<u8, CliError> {
    check_stdout()?;
    let run = args.run().map_err(|error| CliError::new(exit::USAGE, error))?;
    if run.source_files().any(stdio::is_stdin) {
        check_stdin()?;
    }
    survive_full_files()?;
    // Before anything opens a file.
    allow_files(0)?;
    if supervisor.is_none() {
        return supervise(&run, arguments);
    }
    let Checked { text, status } = check::check(args, supervisor)?;
    Ok(match written(text)? {
        exit::OK => status,
        unwritten => unwritten,
    })
}

/// Does the work in a process of its own, under this one.
fn supervise(args: &RunArgs, arguments: Vec<OsString>) -> Result<u8, CliError> {
    let inputs = if args.reads_terminal() { InputSource::Typed } else { InputSource::Other };
    supervisor::supervise(arguments.into_iter().skip(1), inputs).map_err(internal)
}

fn start_server(
    args: ServeArgs,
    supervisor: Option<i32>,
    arguments: Vec<OsString>,
) -> Result<u8, CliError> {
    survive_full_files()?;
    allow_files(0)?;
    match supervisor {
        Some(_) => serve::serve(args, supervisor),
        None => supervisor::supervise(arguments.into_iter().skip(1), InputSource::Other)
            .map_err(internal),
    }
}

/// Help and versions go to standard output and are not failures.
fn explain(error: &clap::Error) -> Result<u8, CliError> {
    let text = |colors| match colors {
        ColorChoice::Never => error.render().to_string(),
        _ => error.render().ansi().to_string(),
    };
    if error.use_stderr() {
        let text = text(AutoStream::choice(&io::stderr()));
        // If standard error is gone, no other way to report remains.
        let _ = stdio::stderr().write_all(text.as_bytes());
        return Ok(exit::USAGE);
    }
    written(text(AutoStream::choice(&io::stdout())).into_bytes())
}

fn manual(args: &ManArgs) -> Result<Vec<u8>, CliError> {
    let failed =
        |error| CliError::new(exit::OUTPUT, Context::new("no manual page can be written", error));
    match &args.all {
        Some(directory) => manual::write_all(directory).map(|()| Vec::new()).map_err(failed),
        None => manual::page(args.command.as_deref()).map_err(failed),
    }
}

fn written(text: Vec<u8>) -> Result<u8, CliError> {
    check_stdout()?;
    let mut stdout = stdio::stdout();
    printed_whole(stdout.write_all(&text).and_then(|()| stdout.flush()))
}

/// The status after all of a text has gone to standard output, or not.
fn printed_whole(printed: io::Result<()>) -> Result<u8, CliError> {
    match printed {
        Ok(()) => Ok(exit::OK),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit::BROKEN_PIPE),
        Err(error) => Err(CliError::new(exit::OUTPUT, error)),
    }
}

fn tell(error: &CliError) {
    if error.exit != exit::BROKEN_PIPE {
        // If standard error is gone, no other way to report remains.
        let _ = writeln!(stdio::stderr(), "gangline: {error}");
    }
}
