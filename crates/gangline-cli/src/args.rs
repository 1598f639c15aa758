//! What is typed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use super::exit;
use super::halt::Halt;
use super::limit::{Timeout, duration};
use gangline::Devices;
use gangline::error::DeviceError;
use gangline::gpu::GpuList;

#[derive(Debug, Parser)]
#[command(
    name = "gangline",
    version,
    about = "Runs any program over many inputs, on CPUs and GPUs",
    after_help = exit::HELP
)]
pub(super) struct Cli {
    /// The process that sees to it that nothing is left behind.
    #[arg(long, hide = true, value_name = "PID")]
    pub(super) supervisor: Option<i32>,
    #[command(subcommand)]
    pub(super) command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub(super) enum Subcommands {
    Run(Box<Run>),
    Devices(DevicesArgs),
    Config(ConfigArgs),
    Completions(Completions),
    /// Write the manual page to standard output
    Man,
}

/// Run a command for each input, a GPU or a core for each
#[derive(Debug, Args)]
#[command(after_help = MARKS, args_override_self = true)]
pub(super) struct Run {
    /// The command, and its arguments with marks; `::: a b c` at the end are inputs
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        value_parser = clap::value_parser!(OsString)
    )]
    pub(super) command: Vec<OsString>,
    /// Take options from a file (YAML, TOML, JSON); those that are typed come first
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) inputs: Inputs,
    #[command(flatten)]
    pub(super) placement: Placement,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) failure: Failure,
    #[command(flatten)]
    pub(super) record: Record,
    #[command(flatten)]
    pub(super) warm: WarmArgs,
}

impl Run {
    /// Whether its inputs are what a person types at a terminal.
    pub(super) fn reads_terminal(&self) -> bool {
        let Inputs { input, csv, job_file, .. } = &self.inputs;
        if job_file.is_some() || self.command.iter().any(|word| word == ":::") {
            return false;
        }
        match input.as_ref().or(csv.as_ref()).filter(|path| *path != Path::new("-")) {
            Some(path) => fs::metadata(path).is_ok_and(|file| file.file_type().is_char_device()),
            None => io::stdin().is_terminal(),
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Inputs (the lines of standard input, unless said otherwise)")]
pub(super) struct Inputs {
    /// Each line of FILE is an input
    #[arg(long, value_name = "FILE", group = "source")]
    pub(super) input: Option<PathBuf>,
    /// Each record of FILE is an input, and {name} its column of that name
    #[arg(long, value_name = "FILE", group = "source")]
    pub(super) csv: Option<PathBuf>,
    /// Each line of FILE is a command; one behind --no-gpu needs no GPU, and may overtake
    #[arg(long, value_name = "FILE", group = "source")]
    pub(super) job_file: Option<PathBuf>,
    /// A NUL ends an input, and not the end of a line
    #[arg(short = '0', long, action = ArgAction::SetTrue, conflicts_with_all = ["csv", "job_file"])]
    pub(super) null: bool,
    /// COMMAND is a script for sh, which has the input as "$1"
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "job_file")]
    pub(super) shell: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(super) struct Placement {
    /// A slot for each of these devices: cuda:0-3, cuda:0*2, cuda:0+cuda:1, cpu*4
    #[arg(
        long,
        value_name = "DEVICES",
        value_parser = devices,
        conflicts_with_all = ["gpu_list", "workers"]
    )]
    pub(super) devices: Option<Devices>,
    /// The GPUs to use: "0 1", 0-3, "0 0 1 1"
    #[arg(long, value_name = "LIST")]
    pub(super) gpu_list: Option<GpuList>,
    /// Whether the list of GPUs is to be used
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    pub(super) use_gpu: bool,
    /// How many jobs run at once [default: one for each GPU, or else for each core]
    #[arg(
        short = 'j',
        long,
        alias = "jobs",
        value_name = "N",
        value_parser = at_least_one,
        conflicts_with = "per_gpu"
    )]
    pub(super) workers: Option<usize>,
    /// Each GPU of the list, or each part of it, is one slot, and no more run at once [default]
    #[arg(long, action = ArgAction::SetTrue, requires = "gpu_list", conflicts_with = "share")]
    pub(super) slots: bool,
    /// Workers share the GPUs of the list if there are more of them
    #[arg(long, action = ArgAction::SetTrue, requires = "gpu_list")]
    pub(super) share: bool,
    /// So many jobs at once on each GPU
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) per_gpu: Option<usize>,
    /// How many jobs of a job file that need no GPU run beside the slots
    #[arg(long, value_name = "N", requires = "job_file", value_parser = at_least_one)]
    pub(super) cpu_workers: Option<usize>,
    /// Set CUDA_VISIBLE_DEVICES even if a mark says which GPUs, which then counts from 0
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) visible: bool,
    /// What is between several ids: words of their own, or joined in one
    #[arg(long, value_name = "HOW", value_enum)]
    pub(super) gpu_separator: Option<Separator>,
    /// Keep other runs that ask for it off these GPUs; fail if one has them, or wait
    #[arg(
        long,
        value_name = "IN_USE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "fail"
    )]
    pub(super) lock_gpus: Option<InUse>,
    /// Where the locks of GPUs are, for all who are to meet there
    #[arg(long, value_name = "DIR", requires = "lock_gpus", hide = true)]
    pub(super) lock_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Separator {
    Space,
    Comma,
    Colon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum InUse {
    Fail,
    Wait,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Output {
    /// Give the jobs' outputs in the order of the inputs [default]
    #[arg(short = 'k', long, action = ArgAction::SetTrue, overrides_with = "no_keep_order")]
    pub(super) keep_order: bool,
    /// Give each job's output when the job ends
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "keep_order")]
    pub(super) no_keep_order: bool,
    /// Give each line when it is whole
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "keep_order")]
    pub(super) line_buffer: bool,
    /// Keep stdout, stderr, exit status and time of each job in a directory of its own
    #[arg(long, value_name = "DIR")]
    pub(super) results: Option<PathBuf>,
    /// End a job that prints more than so many bytes (or 10k, 5M, 1G)
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "warm")]
    pub(super) max_output: Option<u64>,
    /// Let the terminal have control characters of jobs as they are
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) raw: bool,
    /// How many outputs may wait for that of an earlier job
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) window: Option<usize>,
    /// Print the words of every command, and start none
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "journal")]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Failure")]
pub(super) struct Failure {
    /// Try a job that fails so many times more, on its slot
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) retries: u32,
    /// Wait so long before each, and twice as long each time
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(super) retry_delay: Duration,
    /// End a job that takes longer: 30s, or 3x what half of the jobs take
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<Timeout>,
    /// How long a job has from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(super) kill_after: Duration,
    /// When SIGTERM comes, let the jobs that run go on for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) grace: Duration,
    /// When to give up: never, or soon (what runs may end) or now: soon,fail=1 now,fail=10%
    #[arg(long, value_name = "WHEN", default_value = "never")]
    pub(super) halt: Halt,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Record")]
pub(super) struct Record {
    /// Write a line for each job, in the columns of GNU parallel's log
    #[arg(long, value_name = "FILE")]
    pub(super) joblog: Option<PathBuf>,
    /// Remember in FILE which jobs are done
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Leave out what the journal has as done
    #[arg(long, action = ArgAction::SetTrue, requires = "journal")]
    pub(super) resume: bool,
    /// Run what the journal has as failed, and nothing else
    #[arg(long, action = ArgAction::SetTrue, requires = "journal", conflicts_with = "resume")]
    pub(super) resume_failed: bool,
    /// Show on standard error how far it is, and what each worker does; keeps all inputs in memory
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) bar: bool,
    /// Show on standard error how far it is, on one line
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "bar")]
    pub(super) eta: bool,
    /// Write a report: FILE.html, FILE.json, FILE.trace or FILE.txt; may be given again
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(super) report: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Warm workers")]
pub(super) struct WarmArgs {
    /// Start COMMAND once for each slot, and send it a line of JSON for each input
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = ["shell", "job_file", "line_buffer"])]
    pub(super) warm: bool,
    /// How long a worker may take until it is ready
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration, requires = "warm")]
    pub(super) start_timeout: Duration,
    /// Start a worker anew so many times without a result in between
    #[arg(long, value_name = "N", default_value_t = 3, requires = "warm")]
    pub(super) max_restarts: u32,
}

/// List the devices of this machine
#[derive(Debug, Args)]
pub(super) struct DevicesArgs {
    /// As JSON
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) json: bool,
}

/// Print a config file with all that it is based on, and where each value came from
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// YAML, TOML or JSON
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Change a value: a.b=1; may be given again
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Take values from variables of the environment whose names begin so
    #[arg(long, value_name = "PREFIX")]
    pub(super) env: Option<String>,
}

/// Write a script that completes what is typed in a shell
#[derive(Debug, Args)]
pub(super) struct Completions {
    pub(super) shell: clap_complete::Shell,
}

const MARKS: &str = "\
Marks in COMMAND (without any, the input becomes the last word):
  {}   the input                    {#}        the number of the job, from 1
  {.}  without its extension        {worker}   the number of the slot, from 0
  {/}  its last part as a path      {attempt}  from 1
  {//} what is before that          {gpu}      the ids of the slot's GPUs; %(GPU)s too
  {/.} {/} without its extension    {name}     the column `name` of --csv
Write {{gpu}} for the text {gpu}, and %%(GPU)s for %(GPU)s.

A command is split into words before anything is put into it, and there is no shell: an input
is only ever an argument. NAME=VALUE words before the program set variables. A command with a
mark for GPUs finds their ids there; to one without, CUDA_VISIBLE_DEVICES shows the GPUs of its
slot alone.";

fn devices(text: &str) -> Result<Devices, String> {
    if text.contains('|') {
        return Err("alternatives with | are for programs that use the library; name the devices, as in cuda:0-3: \
                    `gangline devices` lists them".to_owned());
    }
    // A build with the feature `cuda` could ask the driver. What a command line means is not to depend on that.
    if let Some(wanted) = all_of_a_kind(text) {
        return Err(format!(
            "{wanted} is for programs that use the library; name the devices, as in cuda:0-3: \
             `gangline devices` lists them"
        ));
    }
    text.parse().map_err(|error: DeviceError| error.to_string())
}

fn all_of_a_kind(text: &str) -> Option<&'static str> {
    let terms = text.split([',', '+', '*']).map(|term| term.split_whitespace().collect::<String>());
    let mut all =
        terms.filter_map(|term| ["cuda:all", "metal:all"].into_iter().find(|all| term == *all));
    all.next()
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(number @ 1..=65_536) => Ok(number),
        _ => Err("write a number from 1 to 65536"),
    }
}

fn size(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        Some((end, 'G')) => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or("write a number of bytes, or one with k, M or G behind it")
}
