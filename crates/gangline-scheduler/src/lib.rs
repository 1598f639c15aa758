//! Decides which producer works on which items of a run, and whether a failed item is retried.
//!
//! A part of [gangline](https://docs.rs/gangline), published in step with it: its interface changes with each version,
//! so use gangline.
//!
//! [`Scheduler`] is a value without threads, clocks, channels or files. Its backend holds the users' values,
//! calls the hooks, and keeps the scheduler under a lock of its own. Every call returns at once. After each,
//! the backend takes all [events](Scheduler::poll_event), leaves the lock, and acts on them.
//!
//! A timeout, a lost race, a lost producer and a late answer are one thing: the lease is *stale*, item by
//! item. Several leases may cover one item. The first outcome that counts wins; an error waits for the other
//! copy.
//!
//! - **Items**: [`offer`](Scheduler::offer), [`adopt`](Scheduler::adopt), [`track`](Scheduler::track),
//!   [`withdraw`](Scheduler::withdraw), [`decide`](Scheduler::decide).
//! - **Producers**: [`lease`](Scheduler::lease), [`begin`](Scheduler::begin), [`finish`](Scheduler::finish),
//!   [`fail_together`](Scheduler::fail_together), [`release`](Scheduler::release),
//!   [`expect`](Scheduler::expect), [`producer_joined`](Scheduler::producer_joined),
//!   [`producer_lost`](Scheduler::producer_lost), [`take_replacement`](Scheduler::take_replacement).
//! - **The run**: [`feeder`](Scheduler::feeder), [`consumer`](Scheduler::consumer),
//!   [`input_ended`](Scheduler::input_ended), [`give_up_from`](Scheduler::give_up_from),
//!   [`abort`](Scheduler::abort).
//! - **Polls**: [`poll_event`](Scheduler::poll_event), [`poll_timeout`](Scheduler::poll_timeout),
//!   [`handle_timeout`](Scheduler::handle_timeout).
//! - **Getters**: [`health`](Scheduler::health), [`has_waiting_items`](Scheduler::has_waiting_items),
//!   [`learned`](Scheduler::learned).
//!
//! An item without a failure, batch or copy may bypass the scheduler until it fails or its hook times out: it is
//! *untracked*. Only the last two polls decide about expiry. So a thread that reads the clock just after the process
//! was stopped cannot expire a hook.

pub mod ahead;
mod answers;
mod assign;
pub mod batch;
mod config;
mod deadlines;
mod duration;
mod events;
pub mod expansion;
mod gpus;
pub mod hand_over;
mod health;
mod items;
mod lease;
mod pending;
pub mod reorder;
mod retry;
mod retry_queue;
mod scheduler;
mod speculation;
mod split;
mod time;
mod waiters;
pub mod window;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use self::answers::{Begin, Memory, Next, Together, TooFewProducers, Until};
pub use self::config::{Activity, Bypass, Config, Input, Meta, Order};
pub use self::deadlines::{Absence, Timeouts};
pub use self::duration::HumanDuration;
pub use self::events::{Event, Expired};
pub use self::gpus::Gpus;
pub use self::health::ProducerHealth;
pub use self::items::{Items, Outcome, Standing};
pub use self::lease::{
    Copies, Generation, Lease, LeaseId, Leases, Phase, Piece, ProducerId, Readiness,
};
pub use self::retry::{Backoff, Decision, Failure, Inputs, OnError, Verdict};
pub use self::scheduler::Scheduler;
pub use self::speculation::LEAST_COPY_AFTER;
pub use self::time::RunTime;
