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
//!   [`finish_in_part`](Scheduler::finish_in_part), [`fail_together`](Scheduler::fail_together),
//!   [`release`](Scheduler::release), [`expect`](Scheduler::expect), [`producer_joined`](Scheduler::producer_joined),
//!   [`producer_lost`](Scheduler::producer_lost).
//! - **Background items**: [`set_share`](Scheduler::set_share).
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
//!
//! # Which file decides what
//!
//! A decision is in one file. `scheduler` has the calls and puts the decisions in order.
//!
//! | question | file |
//! |---|---|
//! | in which order is a free producer offered parts, retries, new items and copies? | `scheduler`: `choose` |
//! | which new items make a batch, and does it wait for more? | `batch`, `pending` |
//! | how do calls and background items fill a batch together? | `pending_queues` |
//! | how much does the background get while calls wait? | `priority` |
//! | how large is a batch best for a device? | `batch::auto`, after `batch::timings` |
//! | how large a batch has a device memory for? | `batch::ceiling`, `batches` |
//! | how is a batch divided that failed, and which producer takes the parts? | `split` |
//! | which device tries an item that does not fit into the memory of its own? | `largest_device` |
//! | is a failed item tried again, and when? | `retry` |
//! | which producer tries it? | `retry_queue`, after `health` |
//! | is the item or its producer to blame? which producers are suspended or quarantined? | `health` |
//! | which outcome of several copies counts? | `items` |
//! | what does the end of a lease mean for its items, and what does a lost producer leave? | `workload` |
//! | which leases are held, and is one stale? | `lease` |
//! | when has a hook or the run taken too long? | `deadlines` |
//! | when is a slow item copied, which one, and before new items or after all? | `speculation` |
//! | how long do nearly all attempts take? | `attempt_times` |
//! | can more items come? | `flow` |
//! | which producers take part, which wait, and what does the backend hear of them? | `producers`, `waiters`, `events` |
//! | how many items are in flight? | `window` |
//! | how much memory may they take? | `budget` |
//! | in which order do results come out? | `reorder` |
//! | what may a remote producer hold before it begins? | `ahead`, `hand_over` |
//! | what happens to the withdrawn parts of an expansion? | `expansion` |
//!
//! `replay` runs a whole run in virtual time, for what another setting would have changed. `plain` and `causes` decide
//! nothing: they write texts and errors for all packages of gangline.

pub mod ahead;
mod answers;
mod attempt_times;
pub mod batch;
mod batches;
pub mod budget;
#[doc(hidden)]
pub mod causes;
mod config;
mod copied;
mod deadlines;
mod events;
pub mod expansion;
mod flow;
mod gpus;
pub mod hand_over;
mod health;
mod items;
pub mod largest_device;
mod lease;
mod pending;
mod pending_queues;
#[doc(hidden)]
pub mod plain;
mod priority;
mod producers;
pub mod reorder;
pub mod replay;
mod retry;
mod retry_queue;
mod scheduler;
mod speculation;
mod split;
mod time;
mod waiters;
pub mod window;
mod workload;

#[cfg(test)]
mod calls_first;
#[cfg(test)]
mod simulated_copies;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use self::answers::{Begin, EndedInPart, Memory, Next, Together, TooFewProducers, Until};
pub use self::config::{Bypass, Config, Meta, Order};
pub use self::copied::copies;
pub use self::deadlines::{Absence, Timeouts};
pub use self::events::{Expired, SchedulerEvent};
pub use self::flow::{Activity, Input};
pub use self::gpus::Gpus;
pub use self::health::ProducerHealth;
pub use self::items::{IndexHasher, IndexMap, Items, Outcome, Standing};
pub use self::lease::{Copies, Lease, LeaseId, Leases, Phase, Piece, ProducerId, Readiness};
pub use self::priority::{Priority, Share};
pub use self::retry::{Backoff, Decision, FailureFacts, FailureVerdict, Inputs, OnError};
pub use self::scheduler::Scheduler;
pub use self::speculation::{CopyCounts, LEAST_COPY_AFTER};
pub use self::time::{HumanDuration, RunTime};
