//! The arguments of `gangline worker` and `gangline workers`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::limit::duration;
use crate::args::sections;

/// Start a program as a worker of a cluster, and again whenever it crashes
#[derive(Debug, Args)]
#[command(after_help = sections::WORKER)]
#[command(override_usage = "gangline worker [OPTIONS] [--] PROGRAM...")]
pub(crate) struct WorkerArgs {
    /// The program, which calls `gangline::worker_main` first, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    #[arg(value_parser = clap::value_parser!(OsString))]
    pub(crate) program: Vec<OsString>,
    /// Take items from the broker at URL: nats://host:4222, tls://host:4222 [default: GANGLINE_NATS]
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Work on these devices: cuda:all, cuda:0-3, cpu*4 [default: GANGLINE_DEVICES, or all]
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<String>,
    /// Run each producer in a child process, whose crash costs one attempt and not the worker
    #[arg(long, action = ArgAction::SetTrue)]
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
