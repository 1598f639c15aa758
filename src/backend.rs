//! What a backend in another crate uses: one that puts producers elsewhere than on threads or into child processes.
//!
//! Hidden, and no part of the public API: it changes with each version, so a crate that uses it depends on exactly one.
//! gangline-nats does; child processes are attached in the same way.
//!
//! # How to write a backend
//!
//! A producer leases items and finishes them. Where its hooks run does not matter to the scheduler. Three values make a
//! backend:
//!
//! | value | is made | does |
//! |---|---|---|
//! | a [`PoolBackend`] | by the user, who gives it to `Builder::backend` | checks the [settings](GivenSettings) when the pool is built, and says [where producers are](PlacedProducers): a place for each, and what makes their backends |
//! | a [`Backend`] | for each place, on the producer's own thread, where it is used and dropped | starts, works in each run, ends |
//! | a [`LeaseDesk`] | in [`work_on`](Backend::work_on), for one run | leases items and settles them |
//!
//! The pool does the rest: it feeds, keeps the order and the window, decides about retries and quarantine, writes the journal
//! and the report.
//!
//! # In a run
//!
//! [`work_on`](Backend::work_on) loops until the desk says `Leave`. It may hold several leases at once:
//!
//! ```text
//! match desk.try_lease() {
//!     Work(lease)      => take_inputs(lease); begin it at the scheduler when its hook begins; have the hook called
//!                         keep_inputs, if the item may be tried again and another process has a copy
//!                         settle(lease, outcome) once, or release(lease) if no hook has begun it
//!     Wait, WaitUntil  => sleep_for_lease, until the bell rings: of an answer, of a lease, of the end
//!     Leave            => release what no hook has begun, wait for the others or end them; desk.leave(), and leave()
//! }
//! ```
//!
//! # What it promises
//!
//! - Each lease is ended once. A late or repeated answer is dropped: its lease is over by then.
//! - A hook that exceeds its limit in [`TimeLimits`] is ended, and its lease settled with that error. A backend that waits for
//!   a hook which cannot be ended hangs the pool.
//! - A process that dies costs the item in its hook one attempt, and others none: [`note_crash`](LeaseDesk::note_crash), then
//!   `settle`, and `release` for the rest.
//! - [`Shared`] hears of each `producer_init`, of a state that is there, and of its end. [`is_ready`](Backend::is_ready) says the
//!   same.
//! - No code of the user, and nothing that waits, runs inside of [`schedule`](LeaseDesk::schedule). The user's values are dropped
//!   by [`drop_quietly`], since a destructor may panic.
//! - Every wait has a partner that wakes it: a bell that the desk, or [`Wanted`], rings. Nothing polls.
//! - Errors name the hook and the [site](ProducerSetup::site). What the backend itself says is an error of its own crate, in
//!   `WorkerError::Backend`.
//!
//! Time is [`now`] everywhere, so that a simulation can set it. With the feature `simulation`, a run is driven by hand, in one
//! thread.

use crate::device::Devices;
#[cfg(feature = "rayon")]
use crate::device::candle_variables;

#[cfg(all(feature = "processes", target_os = "linux"))]
pub use crate::backends::process::in_processes::InProcesses;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub use crate::backends::process::worker_entry::check_may_start;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub use crate::backends::remote::codec::CodecFormat;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub use crate::backends::remote::failure::{CallFailure, ErrorCodec, RemoteFailure};
#[cfg(all(feature = "processes", target_os = "linux"))]
pub use crate::backends::remote::item_codec::{ItemCodec, Relay, Terms, unsent};
pub use crate::base::panic::{catch, drop_quietly};
pub use crate::concurrency::bell::Bell;
#[cfg(all(feature = "simulation", not(shuttle)))]
pub use crate::concurrency::set_time_of_test;
pub use crate::concurrency::spawn::{CallerSubscriber, SpawnError, SubscriberGuard, spawn};
pub use crate::concurrency::{Condvar, Mutex, MutexGuard, lock, now};
pub use crate::error::untried::is_untried;
pub use crate::observe::run_stats::SeatTime;
pub use crate::producers::backend::{Backend, NextStep};
pub use crate::producers::lease_desk::LeaseDesk;
pub use crate::producers::leasing::leave;
pub use crate::producers::pool_backend::{
    BatchLimits, GivenSettings, PlacedProducers, PoolBackend,
};
pub use crate::producers::producer_factory::{Capacity, MakeBackend};
pub use crate::producers::seat_record::{AttemptRecord, SeatRecord};
pub use crate::producers::shared::Shared;
pub use crate::run::Run;
#[cfg(all(feature = "simulation", not(shuttle)))]
pub use crate::run::by_hand::{HandRules, RunHands, run_by_hand};
pub use crate::run::time_limits::TimeLimits;
pub use crate::runner::{BatchHook, ProducerSetup, Wanted};

/// The variables of the environment that a process needs whose producers have these devices, beside those that it has.
pub fn variables_of(devices: &Devices) -> Vec<(&'static str, String)> {
    #[cfg(feature = "rayon")]
    return candle_variables(devices.count_on_cpu());
    #[cfg(not(feature = "rayon"))]
    return {
        _ = devices;
        vec![]
    };
}
