#![cfg_attr(doc, doc = include_str!("links.md"))]
#![cfg_attr(doc, doc = include_str!("../docs/command-line.md"))]
//!
//! # This crate
//!
//! As a library it has the parts of the program, used by `src/main.rs` and the fuzzer only:
//!
//! ```text
//!   program    reads the words and calls what they name; error, exit: how it ends
//!   args       the options, and what a file of options adds
//!   plan       lanes: where jobs come from, what they are, what they run on; a template is filled without a shell
//!              job_run, rules                what was typed, resolved once: the rooms below never see arguments
//!   execute    a lane is one run of an `AnyOrderRunner`: job_runner, and behind it
//!              commands, process             a command for each job, in a process group of its own
//!              warm, conversation, protocol  one process for each slot, a line of JSON for each job
//!              remote, command_runner        a job on another machine: the slot here that waits, the runner there
//!              remote_job, remote_file       what travels between them; remote_report: the rows of workers
//!              worker, worker_program        `gangline worker`: workers of a cluster, started again when they crash
//!              brake, memory_watch           when a job may start; which one makes room when memory is scarce
//!              held                          what has ended and is not in the journal yet
//!              groups, signals, supervisor   no process outlives the run, whichever process is killed
//!              exit_watch, stops             how the end of a process is noticed, and that it has stopped
//!   check      `gangline check`: sends samples to a warm worker alone and in lists, and compares the answers
//!              slot, lists                   the check of one slot; the runner that sends lists
//!              findings, equality            judge the answers
//!              text, json                    print the findings
//!   dockerfile prints a Dockerfile for a worker
//!   serve      `gangline serve`: the values of HTTP requests are jobs
//!              workers, answering            the service, and its runner on warm workers
//!              routes, app, predict          the routes, what they share, the answers
//!              host, form, multipart         what a request is for, and in which form its body is
//!              values, body                  reading the values of a request
//!              background                    values of a file, where no request waits
//!              connections, caller_stream    connections: their limits and end; callers that leave or read nothing
//!              delivery, memory, open_count  answers until they are read, the memory for them, and the wait for them
//!              phase, figures                the phases of the server, its figures
//!   output     what jobs print, results, the job log, reports
//! ```
//!
//! A job is an item, a slot is a producer, and `producer_work` starts a command and reads its output. Order, the window,
//! retries, the journal and reports come from the library.
//!
//! - **Retries.** The hook records the outcome of a job's last attempt, since in input order the consumer comes later. So
//!   the hook decides whether another attempt follows, and says so in its error; `classify` passes that on. A retry stays
//!   on its slot (`RetryHere`), as `{gpu}` and `{%}` promise. A job that has lost its warm worker goes to another slot.
//! - **Gate.** A job is read when the one before it has started. The window only bounds outputs that wait.
//! - **Groups.** Each job leads a process group. Its entry is reserved before the job starts and removed before the job is
//!   reaped, so a signal never reaches a stranger. `PR_SET_PDEATHSIG` follows the starting thread, and needs `unsafe`.
//! - **Supervisor.** The process that the user starts supervises the one with the jobs. It is a child subreaper: if the
//!   other is killed, it inherits the jobs and kills them. The other ends when its supervisor does.

#![cfg(target_os = "linux")]

mod args;
mod bell;
mod broker;
mod check;
mod config;
mod devices;
mod dockerfile;
mod error;
mod execute;
mod exit;
mod fleet;
mod host_name;
mod locking;
mod manual;
mod output;
mod plain;
mod plan;
mod program;
mod reports;
mod serve;

#[cfg(doc)]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/from-parallel.md")]
pub mod from_parallel {}

#[cfg(doc)]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/warm-workers.md")]
pub mod warm_workers {}

#[cfg(doc)]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/serving.md")]
pub mod serving {}

#[cfg(fuzzing)]
pub use self::execute::protocol::any_bytes::read_any_bytes as read_any_worker_line;
#[cfg(fuzzing)]
pub use self::plan::table::any_bytes::read_any_bytes as read_any_table;
#[cfg(fuzzing)]
pub use self::plan::template::laws::fill_any_bytes as fill_any_command;
pub use self::program::main;
#[cfg(fuzzing)]
pub use self::serve::any_bytes::read_any_bytes as read_any_request;
