//! Runs the jobs: lanes, processes, signals.

pub(crate) mod brake;
pub(crate) mod children;
pub(crate) mod commands;
mod conclude;
pub(crate) mod conversation;
mod done_places;
pub(crate) mod dry_run;
mod earlier_jobs;
mod exit_watch;
pub(crate) mod failure;
mod gpu_watch;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod job_runner;
pub(crate) mod lane;
pub(crate) mod limits;
pub(crate) mod list_failure;
mod memory_watch;
pub(crate) mod own_broker;
pub(crate) mod process;
pub(crate) mod protocol;
pub(crate) mod readiness;
mod records;
pub(crate) mod retries;
pub(crate) mod run;
pub(crate) mod running_time;
pub(crate) mod sequence;
pub(crate) mod setup;
pub(crate) mod shared;
pub(crate) mod signals;
mod start_history;
mod stops;
pub(crate) mod supervisor;
pub(crate) mod threads;
pub(crate) mod warm;
pub(crate) mod worker;
mod worker_program;
mod worker_slots;

#[cfg(feature = "nats")]
mod command_runner;
#[cfg(feature = "nats")]
mod remote;
#[cfg(feature = "nats")]
mod remote_file;
#[cfg(feature = "nats")]
mod remote_job;
#[cfg(feature = "nats")]
mod remote_report;
#[cfg(feature = "nats")]
mod served_program;

#[cfg(feature = "nats")]
pub(crate) use self::command_runner::serve_commands;

#[cfg(not(feature = "nats"))]
pub(crate) fn serve_commands() -> Result<u8, crate::error::CliError> {
    Err(crate::error::usage(
        "this needs the feature `nats`, without which this program was compiled",
    ))
}

/// The first argument of the process that `gangline worker --serve commands` starts.
pub(crate) const SERVE_COMMANDS: &str = "serve-commands";
