//! Producers in child processes: the frames and messages between the two sides, the worker's side, and the
//! keeper, which is the backend of one child.

mod ahead;
#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
mod calls;
pub(crate) mod check;
mod child;
pub(crate) mod codec;
mod connection;
mod event_bell;
mod frame;
mod hooks;
pub(crate) mod keeper;
mod keeping;
pub(crate) mod message;
mod outlet;
mod printed;
pub(crate) mod processes;
pub(crate) mod recipe;
pub(crate) mod remote;
mod sent;
mod shift;
mod waiting;
pub(crate) mod worker;
pub(crate) mod worker_process;
