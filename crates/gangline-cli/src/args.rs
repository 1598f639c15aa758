//! The arguments of the command line.

pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod device_names;
pub(crate) mod dockerfile;
pub(crate) mod foreign;
pub(crate) mod halt;
pub(crate) mod inputs;
pub(crate) mod limit;
pub(crate) mod list_size;
pub(crate) mod number;
pub(crate) mod options;
pub(crate) mod printing;
pub(crate) mod report;
pub(crate) mod running;
pub(crate) mod sections;
pub(crate) mod serve;
pub(crate) mod served;
pub(crate) mod typed;
pub(crate) mod warm;
pub(crate) mod workers;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{
    ArgAction, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};

use crate::args::check::CheckArgs;
use crate::args::cluster::{ClusterArgs, WorkerArgs, WorkersArgs};
use crate::args::device_names::DeviceNames;
use crate::args::dockerfile::DockerfileArgs;
use crate::args::halt::Halt;
use crate::args::inputs::InputArgs;
use crate::args::limit::{JobTimeout, duration};
use crate::args::number::{at_least_one, size, unsigned};
use crate::args::printing::Printing;
use crate::args::report::ReportArgs;
use crate::args::running::Running;
use crate::args::serve::ServeArgs;
use crate::args::typed::{Kind, Separators, Typed};
use crate::args::warm::{WarmArgs, WorkerTimes};
use crate::args::workers::Workers;
use gangline::gpu::{GpuList, GpuLock};

/// What `--version` says: a worker is written for a version of the protocol, not of the program.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\nprotocols of warm workers: 1, 2");

#[derive(Debug, Parser)]
#[command(name = "gangline", version, long_version = LONG_VERSION)]
#[command(about = "Runs any program over many inputs, on CPUs and GPUs")]
#[command(after_long_help = sections::MAIN)]
pub(crate) struct Cli {
    /// The internal process that does the work under the supervisor.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) supervisor: Option<i32>,
    #[command(subcommand)]
    pub(crate) command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    Run(Box<RunArgs>),
    Check(Box<CheckArgs>),
    Dockerfile(DockerfileArgs),
    Serve(Box<ServeArgs>),
    Worker(WorkerArgs),
    Workers(WorkersArgs),
    Devices(DevicesArgs),
    Config(ConfigArgs),
    Report(ReportArgs),
    Completions(Completions),
    Man(ManArgs),
}

/// Run a command for each input, on a GPU or a core of its own
#[derive(Debug, Args)]
#[command(after_help = sections::SHORT, after_long_help = sections::RUN)]
#[command(override_usage = "gangline run [OPTIONS] [--] COMMAND... [::: INPUT...]")]
pub(crate) struct RunArgs {
    /// The command, and its arguments with marks; inputs may follow after :::
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    #[arg(value_parser = clap::value_parser!(OsString))]
    pub(crate) command: Vec<OsString>,
    /// Read options from FILE (YAML, TOML, JSON); the command line overrides them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) inputs: InputArgs,
    #[command(flatten)]
    pub(crate) placement: Placement,
    #[command(flatten)]
    pub(crate) running: Running,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) failure: FailureArgs,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    #[command(flatten)]
    pub(crate) warm: WarmArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl RunArgs {
    /// The words of the command, and the sources after it.
    pub(crate) fn typed(&self) -> Typed<'_> {
        let InputArgs { arg_sep, arg_file_sep, .. } = &self.inputs;
        Typed::of(&self.command, Separators::new(arg_sep.as_deref(), arg_file_sep.as_deref()))
    }

    /// The words of the command, without the inputs after it.
    pub(crate) fn command_words(&self) -> &[OsString] {
        self.typed().command
    }

    /// The files that inputs are read from; `-` is standard input.
    pub(crate) fn source_files(&self) -> impl Iterator<Item = &Path> {
        let typed = self.typed().sources;
        let InputArgs { input, csv, tsv, job_file, .. } = &self.inputs;
        let options = input.iter().chain(csv).chain(tsv).chain(job_file);
        let has_options = options.clone().next().is_some() || self.record.retry_failed;
        let is_default = typed.is_empty() && !has_options;
        let files = typed.into_iter().filter(|source| source.kind == Kind::Files);
        let files = files.flat_map(|source| source.words.iter().map(Path::new));
        let default = is_default.then_some(Path::new("-"));
        options.map(PathBuf::as_path).chain(files).chain(default)
    }

    /// Whether a user types inputs at a terminal.
    pub(crate) fn reads_terminal(&self) -> bool {
        self.source_files().any(|path| {
            if path == Path::new("-") {
                io::stdin().is_terminal()
            } else {
                fs::metadata(path).is_ok_and(|file| file.file_type().is_char_device())
                    && File::open(path).is_ok_and(|file| file.is_terminal())
            }
        })
    }
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct Placement {
    /// Run one slot on each of these devices: cuda:all, cuda:0-3, cuda:0*2, cuda:0+cuda:1, cpu*4
    #[arg(long, value_name = "DEVICES", conflicts_with_all = ["gpu_list", "workers"])]
    pub(crate) devices: Option<DeviceNames>,
    /// Use these GPUs: all, "0 1", 0-3, "0 0 1 1"
    #[arg(long, value_name = "LIST")]
    pub(crate) gpu_list: Option<GpuList>,
    /// Whether to use the list of GPUs
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) use_gpu: bool,
    /// Run N jobs at once: 4, 200% of the cores, +1, -1, 0 for as many as possible, or what a file says [default: one per GPU, or per core without GPUs]
    #[arg(short = 'j', short_alias = 'P', long, aliases = ["jobs", "max-procs"], value_name = "N")]
    #[arg(allow_hyphen_values = true, conflicts_with = "per_gpu")]
    pub(crate) workers: Option<Workers>,
    /// Make each GPU of the list, or each part of it, one slot, and run no more jobs at once [default]
    #[arg(long, action = ArgAction::SetTrue, requires = "gpu_list", conflicts_with = "share")]
    pub(crate) slots: bool,
    /// Share the GPUs of the list among jobs if there are more jobs than GPUs
    #[arg(long, action = ArgAction::SetTrue, requires = "gpu_list")]
    pub(crate) share: bool,
    /// Run N jobs at once on each GPU
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) per_gpu: Option<usize>,
    /// Run N jobs of a job file that need no GPU beside the slots
    #[arg(long, value_name = "N", requires = "job_file", value_parser = at_least_one)]
    pub(crate) cpu_workers: Option<usize>,
    /// Set CUDA_VISIBLE_DEVICES even if the command has a GPU mark, which then counts from 0
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) visible: bool,
    /// Write several ids as separate words, or joined into one
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) gpu_separator: Option<DeviceSeparator>,
    #[command(flatten)]
    pub(crate) locks: LockArgs,
}

/// The locks of GPUs.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LockArgs {
    /// Lock these GPUs against other runs that lock them; if one is taken, fail or wait
    #[arg(long, value_name = "IN_USE", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "fail")]
    pub(crate) lock_gpus: Option<InUse>,
    /// Keep the locks of GPUs in DIR, which all users of the machine share
    #[arg(long, value_name = "DIR", requires = "lock_gpus", hide = true)]
    lock_dir: Option<PathBuf>,
}

impl LockArgs {
    /// How the library locks the GPUs, if it should, given that some may be in use.
    pub(crate) fn lock(&self, in_use: InUse) -> Option<GpuLock> {
        self.lock_gpus?;
        let lock = match in_use {
            InUse::Fail => GpuLock::or_fail(),
            InUse::Wait => GpuLock::or_wait(),
        };
        Some(match &self.lock_dir {
            Some(directory) => lock.in_dir(directory),
            None => lock,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceSeparator {
    Space,
    Comma,
    Colon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InUse {
    Fail,
    Wait,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the outputs in the order of the inputs [default]
    #[arg(short = 'k', long, alias = "keeporder", action = ArgAction::SetTrue, conflicts_with = "no_keep_order")]
    pub(crate) keep_order: bool,
    /// Print each job's output when the job ends
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) no_keep_order: bool,
    /// Print each line when it is complete; with -k, of one job after the other
    #[arg(long, aliases = ["lb", "linebuffer"], action = ArgAction::SetTrue)]
    pub(crate) line_buffer: bool,
    /// Keep outputs, status and time of each job: in DIR, in files named by marks, in FILE.csv or FILE.json
    #[arg(long, alias = "res", value_name = "WHERE")]
    pub(crate) results: Option<PathBuf>,
    /// End a job that prints more than SIZE bytes (or 10k, 5M, 1G)
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "warm")]
    pub(crate) max_output: Option<u64>,
    /// Pass control characters of jobs to the terminal unchanged
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) raw: bool,
    /// Let N outputs wait for the output of an earlier job
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) window: Option<usize>,
    /// Print the words of every command, and start none
    #[arg(long, alias = "dryrun", action = ArgAction::SetTrue, conflicts_with = "journal")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Failure")]
pub(crate) struct FailureArgs {
    /// Retry a failed job up to N times, on its slot
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = unsigned::<u32>)]
    pub(crate) retries: u32,
    /// Wait TIME before the first retry, and twice as long before each further one
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) retry_delay: Duration,
    /// End a job that takes longer: 30s, or 3x the median of all jobs
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<JobTimeout>,
    /// Wait TIME between SIGTERM and SIGKILL to a job
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) kill_after: Duration,
    /// On SIGTERM, let running jobs continue for TIME
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// End the run early, soon (running jobs go on) or now: soon,fail=1 now,success=1 now,fail=10%
    #[arg(long, value_name = "WHEN", default_value = "never", allow_hyphen_values = true)]
    pub(crate) halt: Halt,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Record")]
pub(crate) struct RecordArgs {
    /// Write a line for each job, in the columns of GNU parallel's log
    #[arg(long, alias = "jl", value_name = "FILE")]
    pub(crate) joblog: Option<PathBuf>,
    /// Record in FILE which jobs are done; after a crash, less than 50 ms of ended work of a slot is done again
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Go on if the journal's file system has no locks; a second run at the same time then damages it
    #[arg(long, action = ArgAction::SetTrue, requires = "journal")]
    pub(crate) no_journal_lock: bool,
    /// Skip the jobs that the journal records as done
    #[arg(long, action = ArgAction::SetTrue, requires = "journal")]
    pub(crate) resume: bool,
    /// Run only the jobs that the journal records as failed
    #[arg(long, action = ArgAction::SetTrue, requires = "journal", conflicts_with = "resume")]
    pub(crate) resume_failed: bool,
    /// Run the jobs again that failed by the log, with the commands that it has
    #[arg(long, action = ArgAction::SetTrue, requires = "joblog")]
    #[arg(conflicts_with_all = ["InputArgs", "warm", "journal", "results"])]
    pub(crate) retry_failed: bool,
    /// Show progress and the current job of each slot on standard error; keeps all inputs in memory
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) bar: bool,
    /// Show progress on one line of standard error; keeps the inputs of a pipe in memory
    #[arg(long, visible_alias = "progress", action = ArgAction::SetTrue, conflicts_with = "bar")]
    pub(crate) eta: bool,
    /// Write a report: FILE.html, FILE.json, FILE.trace or FILE.txt; may be repeated
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) report: Vec<PathBuf>,
}

/// List the devices of this machine
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

/// Print a config file with everything it is based on, and the origin of each value
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The file, in YAML, TOML or JSON
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Change a value: a.b=1; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Take values from environment variables that begin with PREFIX
    #[arg(long, value_name = "PREFIX")]
    pub(crate) env: Option<String>,
}

/// Write a manual page to standard output, or all pages into a directory
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the page of this command [default: the page of gangline]
    #[arg(value_name = "COMMAND", value_parser = sections::PAGES)]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into DIR
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) all: Option<PathBuf>,
}

/// Write a shell completion script
#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

/// The options that `gangline run -h` shows, by their long names. The others are in `--help`.
const COMMON: &[&str] = &[
    "help",
    "input",
    "null",
    "csv",
    "job-file",
    "shell",
    "workers",
    "gpu-list",
    "no-keep-order",
    "results",
    "dry-run",
    "retries",
    "timeout",
    "halt",
    "joblog",
    "journal",
    "resume",
    "bar",
    "report",
    "tag",
    "warm",
];

/// The arguments as clap knows them, for manual pages.
pub(crate) fn all() -> Command {
    Cli::command()
}

/// The same, with a short help besides the long one.
pub(crate) fn command() -> Command {
    all().mut_subcommand("run", |run| {
        WorkerTimes::of_warm(run).mut_args(|arg| {
            let is_common =
                arg.is_positional() || arg.get_long().is_some_and(|long| COMMON.contains(&long));
            arg.hide_short_help(!is_common)
        })
    })
}

/// Reads the arguments. An error says what to do instead, if it is known.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(arguments);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| foreign::advised(error, arguments))
}
