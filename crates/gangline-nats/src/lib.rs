// The labels of `links.md` come first, so links lead to the documentation here, and to files on a code host.
#![doc = include_str!("links.md")]
#![doc = include_str!("../docs/cluster.md")]
//!
//! # How it works inside
//!
//! For contributors. NATS JetStream carries the items, and each worker runs a service over its own devices.
//!
//! ## How workers map to the scheduler
//!
//! The scheduler decides by producer where an item is tried: retries elsewhere, quarantine, speculation. So each worker is
//! a producer. Workers come and go, and producers do not; so a pool has a *seat*, a lane with a thread of its own,
//! for each of the largest number of workers. A seat without a worker is detached: nothing waits for it. One lane
//! for all workers was rejected, since no decision of the scheduler could tell them apart.
//!
//! A lane leases items for its worker, but does not send a first attempt there: any idle worker may take it, which
//! the broker balances. Until a worker says that it begins the item, the lease is in preparation; then it is
//! handed over (`hand_over` of the scheduler) to that worker's lane. So the scheduler knows at each time which
//! worker has which item, and only items in a hook are blamed on a lost worker. What was tried before goes to
//! the worker of the lane that leased it.
//!
//! Workers take an item when a producer of theirs is idle, and none ahead. So no item waits behind another on a
//! slow worker, and nothing has to be recalled.
//!
//! ## The way of an item
//!
//! 1. `lane_run`: `LaneRun::lease` leases the item. `publish` encodes its input, adds a publication to the `board`, and hands
//!    the item to the coordinator's thread.
//! 2. `coordinator`: `publish` chooses which worker may take it: any, or one. `client/publishing` and `publisher` send
//!    the item until the broker has confirmed it.
//! 3. `part`, in a worker: `ask_for_items` asks for an item, `deliver` holds it, and `begin_items` has it submitted to the
//!    service of `hosting` once a producer is idle. Before its hook begins, the worker sends `Begun`: `LaneBoard::begin` moves the publication to the lane of
//!    this worker, and that lane takes over the lease.
//! 4. `part/work`: `publish_results` has the result published, and `take_stored_results` acknowledges the item.
//! 5. `coordinator`: `take_results` passes the result on to the lane. `lane_run/settling`: `settle` removes the publication,
//!    decodes the output and reports it to the scheduler.
//!
//! The result has a type at each place: `TaskAnswer` of the service (in `hosting`), `WorkerOutcome` on the wire, `Reply` in the
//! news of a lane.
//!
//! ## Values and their shells
//!
//! A worker is two values without client, tasks and clocks: `worker` says in which runs it takes part, and `part` what it
//! does in one of them. They take events with their times, and give actions. A shell performs the actions, and hands back
//! what they lead to: `worker_client` and `serving`. Shells repeat a request until the broker has answered it, and decide
//! nothing else.
//!
//! ## Terms
//!
//! | term | meaning |
//! |---|---|
//! | run | at the broker: the life of a pool, from build to close, by the name of `Nats::run_name`. On the board and in the lanes: one call of `Pool::run` |
//! | epoch | a random number of one coordinator; it tells its messages from those of an earlier one with the same run |
//! | key | the coordinator's entry in a bucket, a `RunKey`: workers join a run when its key comes, and leave when the key goes or gets old |
//! | card | a worker's entry in another bucket, a `Card`: shows coordinators that the worker lives, and in which runs it takes part |
//! | part | what a worker does in one run, from its join to its end. Parts are numbered, so that late news of one are not taken for the next |
//! | seat, lane | the place of one worker in a pool; its thread in the coordinator's process |
//! | publication | a message with an item, for one lease. A retry is another publication |
//! | notice, order | what a worker tells the coordinator; what the coordinator tells all workers of its run, or one |
//!
//! ## Large values
//!
//! Above 512 KiB, inputs and outputs are in the object store (`objects`), and messages name them. The coordinator removes an
//! input with its publication, an output once it was read, and all of a run at its start and its end.
//!
//! ## Threads
//!
//! `gangline-n` runs the client and the `coordinator`; lanes and it share the `board`. It runs no user code:
//! lanes encode and decode. In a worker, the main thread runs the client and both values, and the producers decode and
//! encode.
#![cfg(target_os = "linux")]

mod address;
mod board;
mod client;
mod cluster_builder;
mod cluster_error;
mod connection;
mod coordinator;
mod delivery;
mod entry;
mod environment;
mod event;
mod health;
mod hook_times;
mod host;
mod hosting;
mod in_cluster;
mod lane;
mod lane_run;
mod listing;
mod names;
mod nats;
mod objects;
mod part;
mod publication;
mod publisher;
mod readers;
mod reconciler;
mod services;
mod serving;
mod session;
#[cfg(all(test, not(shuttle)))]
mod simulation;
mod wire;
mod worker;
mod worker_client;

pub use self::cluster_builder::ClusterBuilder;
pub use self::cluster_error::ClusterError;
pub use self::entry::{ClusterRecipe, worker_main, worker_main_with};
pub use self::listing::{RecipeInfo, WorkerInfo, workers};
pub use self::nats::Nats;
