//! The command line: the program `gangline`, on the public parts of this library.
//!
//! ```text
//!   args, options      what is typed, and what a file of options adds
//!   plan               lanes of it: where jobs come from, what they are, what they run on
//!   mark, template     the words of a command and what is put into them; pure
//!   inputs, job_file   jobs, lazily
//!   slot               which GPUs a worker has, and how its jobs learn of them
//!   run                a lane is one run of a `AnyOrderRunner`, with a runner that starts commands
//!   job_runner         that runner; what is done for each job it leaves to one of the next two
//!   commands, process  a command for each job: started in a group of its own, read, reaped
//!   warm, conversation, protocol   one process for each slot, a line of JSON for each job
//!   gate               what may still be started; groups: what runs, and signals to it
//!   signals, supervisor            nothing is left behind, whoever is killed
//!   capture, terminal, results, joblog, report   what comes out
//! ```

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
mod main;
mod mark;
mod options;
mod outcome;
mod path;
mod plan;
mod process;
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

pub use self::main::main;
pub use self::template::fill_any_bytes as fill_any_command;
