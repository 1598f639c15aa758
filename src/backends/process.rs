//! Producers in child processes: the frames and messages between the two sides, the worker's side, and the
//! keeper, which is the backend of one child. Here, a *worker* is such a child; its *coordinator* is the process that has
//! started it.
//!
//! # The way of a call
//!
//! 1. `shift`, in the coordinator, leases items. `hook_calls` encodes one call of the hook for them, and `child` sends
//!    it. While items are short, further calls are sent before the first is answered: see `ahead`.
//! 2. In the child, the thread `gangline-r` reads frames (`connection`) and queues calls (`queued_calls`). The main thread decodes
//!    the inputs, calls the hook (`hooks`) and answers (`answers`). Meanwhile the thread `gangline-h` answers the batch before,
//!    and decodes the next. All write through `outlet`.
//! 3. `waiting`: the keeper's thread waits for the answer, the end of the child, a time limit, or the bell that a run rings.
//! 4. `hook_calls` decodes the answer, and `Shift::settle` reports the outcomes to the scheduler.
//!
//! Large bodies and [`SharedBytes`](crate::process::SharedBytes) go through shared memory: see `backends/memory`. `memory_writer`
//! lends ranges of it, `memory_reader` borrows them, and `outgoing` sends its descriptors. What is above them sees whole frames
//! only, with the bytes that they name beside them.
//!
//! The coordinator's side is `keeper`, which owns the child; `keeping`, its trait `Backend`; `shift`, its part in one run;
//! and `worker_process`, which starts the child and has it make its state. `child_process` is that process, which was started by
//! its program, or forked by the process of a `fork_server`; `preparation` starts that server, and
//! `fork_link` has its messages. `frame` and `message` belong to both sides,
//! and so does `backends/remote`.

mod ahead;
mod answers;
#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
mod child;
mod child_process;
mod connection;
mod fork_link;
pub(crate) mod fork_server;
mod frame;
mod hook_calls;
mod hooks;
pub(crate) mod in_processes;
pub(crate) mod keeper;
mod keeping;
#[cfg(test)]
mod memory_law;
mod memory_reader;
mod memory_writer;
pub(crate) mod message;
mod outgoing;
mod outlet;
mod preparation;
mod printed;
pub(crate) mod processes;
mod queued_calls;
mod shift;
mod spare_buffers;
mod waiting;
pub(crate) mod worker_entry;
pub(crate) mod worker_process;
