//! The arguments of `gangline worker` and `gangline workers`, and those of `gangline run` on their machines.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::limit::{duration, time_limit};
use crate::args::sections;
use crate::args::served::Served;

/// Start a worker of a cluster, and again whenever it crashes
#[derive(Debug, Args)]
#[command(after_help = sections::WORKER)]
#[command(
    override_usage = "gangline worker [OPTIONS] --serve KIND\n       gangline worker [OPTIONS] [--] PROGRAM..."
)]
pub(crate) struct WorkerArgs {
    /// The program, which calls `gangline::worker_main` first, and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, conflicts_with = "serve")]
    #[arg(value_parser = clap::value_parser!(OsString))]
    pub(crate) program: Vec<OsString>,
    /// Take items from the broker at URL: nats://host:4222, tls://host:4222 [default: GANGLINE_NATS]
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Work on these devices: cuda:all, cuda:0-3, cpu*4 [default: GANGLINE_DEVICES, or all]
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<String>,
    /// Serve without a program: commands, python, or python:MODULE for the functions of one module alone; or several, as in commands,python
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) serve: Vec<Served>,
    /// Start Python workers with the interpreter PATH [default: python3 beside this program, or of PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Let Python workers import from DIR too; may be repeated
    #[arg(long, value_name = "DIR", action = ArgAction::Append)]
    pub(crate) path: Vec<PathBuf>,
    /// Run each producer of PROGRAM in a child process, whose crash costs one attempt and not the worker
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "serve")]
    pub(crate) processes: bool,
    /// Wait TIME before the first restart, and twice as long before each further one, up to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) restart_delay: Duration,
}

/// List the workers of a cluster
#[derive(Debug, Args)]
#[command(after_help = sections::WORKERS)]
pub(crate) struct WorkersArgs {
    /// Ask the broker at URL: nats://host:4222, tls://host:4222 [default: GANGLINE_NATS]
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Print JSON
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

/// The options of `gangline run` for many machines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many machines")]
pub(crate) struct ClusterArgs {
    /// Run the jobs on the workers at the broker at URL, which `gangline worker --serve commands` starts; env stands for the address in GANGLINE_NATS
    #[arg(long, value_name = "URL", conflicts_with_all = NOT_ELSEWHERE, group = "elsewhere")]
    pub(crate) nats: Option<String>,
    /// The same, with a broker that this run starts and ends: auto, or auto:HOST for the address at which workers reach it [default of HOST: the name of this machine]
    #[arg(long, value_name = "auto", conflicts_with_all = NOT_ELSEWHERE, group = "elsewhere")]
    pub(crate) broker: Option<OwnBrokerPlace>,
    /// Start the workers by CMD, a command of the shell, which has what they need in its environment, and end it with the run
    #[arg(long, value_name = "CMD", requires = "broker")]
    pub(crate) start_workers: Option<OsString>,
    /// Give each job the variable NAME as this process has it; may be repeated
    #[arg(long, value_name = "NAME", requires = "elsewhere", action = ArgAction::Append)]
    pub(crate) env: Vec<OsString>,
    /// Copy FILE, which may have marks, from this folder to that of each job before it starts; may be repeated
    #[arg(long, alias = "transferfile", value_name = "FILE", requires = "elsewhere", action = ArgAction::Append)]
    pub(crate) send: Vec<OsString>,
    /// Copy FILE, which may have marks, from the folder of each job back into this one when it has ended; may be repeated
    #[arg(long, alias = "return", value_name = "FILE", requires = "elsewhere", action = ArgAction::Append)]
    pub(crate) fetch: Vec<OsString>,
    /// Take a worker for lost that has given no sign of life for TIME
    #[arg(long, value_name = "TIME", requires = "elsewhere", default_value = "10s", value_parser = time_limit)]
    pub(crate) lease: Duration,
    /// Wait TIME at most for a first worker, and whenever there is none
    #[arg(long, value_name = "TIME", requires = "elsewhere", default_value = "1m", value_parser = time_limit)]
    pub(crate) wait_for: Duration,
}

/// Where workers reach the broker of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnBrokerPlace {
    /// `None` stands for the name of this machine, at all addresses of which the broker listens.
    pub(crate) host: Option<String>,
}

impl FromStr for OwnBrokerPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<OwnBrokerPlace, &'static str> {
        let is_host = |host: &str| {
            !host.is_empty()
                && host.chars().all(|it| it.is_ascii_alphanumeric() || "-._".contains(it))
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(OwnBrokerPlace { host: None }),
            Some(("auto", host)) if is_host(host) => {
                Ok(OwnBrokerPlace { host: Some(host.to_owned()) })
            }
            _ => Err("write auto, or auto:HOST as in auto:10.0.0.1"),
        }
    }
}

/// The options that concern the devices, the load or the terminal of this machine, where no job runs.
const NOT_ELSEWHERE: [&str; 17] = [
    "devices",
    "gpu_list",
    "slots",
    "share",
    "per_gpu",
    "cpu_workers",
    "lock_gpus",
    "load",
    "memfree",
    "nice",
    "line_buffer",
    "ungroup",
    "verbose",
    "dry_run",
    "bar",
    "warm",
    "use_gpu",
];
