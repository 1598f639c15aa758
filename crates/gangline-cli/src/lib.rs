//! The parts of the program `gangline`, used by `src/main.rs` and the fuzzer only.
//!
//! ```text
//!   args, options      the arguments, and options from a file
//!   plan               lanes: the source of jobs, their commands, their devices
//!   mark, template     the words of a command and their substitution; pure
//!   inputs, job_file   the jobs, read lazily
//!   slot               the GPUs of a slot, and how its jobs are given them
//!   run                a lane is one run of an `AnyOrderRunner`, with a runner that starts commands
//!   job_runner         that runner; it delegates each job to one of the next two
//!   commands, process  a command for each job: started in a group of its own, read, reaped
//!   warm, conversation, protocol   one process for each slot, a line of JSON for each job
//!   gate               decides which jobs may start; groups: running processes, and signals to them
//!   signals, supervisor            no process outlives the run, whichever process is killed
//!   capture, terminal, results, joblog, report   outputs and records
//! ```

#![cfg(target_os = "linux")]

mod args;
mod bell;
mod capture;
mod commands;
mod config;
mod conversation;
mod devices;
mod error;
mod exit;
mod gate;
mod gated;
mod groups;
mod halt;
mod inputs;
mod job;
mod job_file;
mod job_runner;
mod joblog;
mod lane;
mod limit;
mod lines;
mod mark;
mod options;
mod outcome;
mod path;
mod plain;
mod plan;
mod process;
mod program;
mod protocol;
mod quotes;
mod readiness;
mod report;
mod results;
mod run;
mod sequence;
mod shared;
mod signals;
mod slot;
mod supervisor;
mod template;
mod terminal;
mod warm;

pub use self::program::main;
#[cfg(fuzzing)]
pub use self::template::laws::fill_any_bytes as fill_any_command;
