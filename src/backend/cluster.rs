//! Producers on other machines: NATS JetStream carries the items, and each worker runs a service over its own
//! devices.
//!
//! # How workers map to the scheduler
//!
//! The scheduler decides by producer where an item is tried: retries elsewhere, quarantine, speculation. So each worker is
//! a producer. Workers come and go, and producers do not; so a pool has a *seat*, a lane with a thread of its own,
//! for each of the largest number of workers. A seat without a worker is detached: nothing waits for it. One lane
//! for all workers was rejected, since no decision of the scheduler could tell them apart.
//!
//! A lane leases items for its worker, but does not send a first attempt there: any idle worker may take it, which
//! the broker balances. Until a worker says that it begins the item, the lease is in preparation; then it is
//! [handed over](crate::scheduler::hand_over) to that worker's lane. So the scheduler knows at each time which
//! worker has which item, and only items in a hook are blamed on a lost worker. What was tried before goes to
//! the worker of the lane that leased it.
//!
//! Workers take an item when a producer of theirs is idle, and none ahead. So no item waits behind another on a
//! slow worker, and nothing has to be recalled.
//!
//! # Large values
//!
//! Above 512 KiB, inputs and outputs are in the [object store](objects), and messages name them. The coordinator removes an
//! input with its publication, an output once it was read, and all of a run at its start and its end.
//!
//! # Threads
//!
//! `gangline-n` runs the client and the [`coordinator`]; lanes and it share the [`board`]. It runs no user code:
//! lanes encode and decode. In a worker, the main thread runs the client, and the producers decode and encode.

pub(crate) mod board;
mod connection;
mod coordinator;
mod ending;
pub(crate) mod environment;
mod event;
pub(crate) mod hosting;
pub(crate) mod lane;
pub(crate) mod listing;
mod names;
pub(crate) mod nats;
mod news;
mod objects;
mod publisher;
mod reconciler;
mod serving;
mod session;
mod slots;
mod wire;
pub(crate) mod worker;
