//! Producers in child processes: the frames and messages between the two sides, the worker's side, and the
//! keeper, which is the backend of one child. Here, a *worker* is such a child; its *coordinator* is the process that has
//! started it.
//!
//! # The way of a call
//!
//! 1. `shift`, in the coordinator, leases items. `hook_calls` encodes one call of the hook for them, and `child` sends
//!    it. While items are short, further calls are sent before the first is answered: see `ahead`.
//! 2. In the child, the main thread reads frames (`connection`). The thread of the hooks decodes the inputs, calls the hook
//!    and answers (`hooks`). Both write through `outlet`.
//! 3. `waiting`: the keeper's thread waits for the answer, the end of the child, a time limit, or the bell that a run rings.
//! 4. `hook_calls` decodes the answer, and `Shift::settle` reports the outcomes to the scheduler.
//!
//! The coordinator's side is `keeper`, which owns the child; `keeping`, its trait `Backend`; `shift`, its part in one run;
//! and `worker_process`, which starts the child and has it make its state. `frame` and `message` belong to both sides,
//! and so does `backend/remote`.

mod ahead;
#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
mod child;
mod connection;
mod frame;
mod hook_calls;
mod hooks;
pub(crate) mod keeper;
mod keeping;
pub(crate) mod message;
mod outlet;
mod printed;
pub(crate) mod processes;
mod shift;
mod waiting;
pub(crate) mod worker_entry;
pub(crate) mod worker_process;
