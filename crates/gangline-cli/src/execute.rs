//! Runs the jobs: lanes, processes, signals.

pub(crate) mod brake;
pub(crate) mod children;
pub(crate) mod commands;
mod conclude;
pub(crate) mod conversation;
mod dry_run;
pub(crate) mod failure;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod job_runner;
pub(crate) mod lane;
pub(crate) mod limits;
mod memory_watch;
pub(crate) mod process;
pub(crate) mod protocol;
pub(crate) mod readiness;
pub(crate) mod retries;
pub(crate) mod run;
pub(crate) mod sequence;
mod setup;
pub(crate) mod shared;
pub(crate) mod signals;
mod stops;
pub(crate) mod supervisor;
pub(crate) mod warm;
pub(crate) mod worker;
mod worker_slots;
