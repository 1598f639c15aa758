//! Producers as threads of this process, with the values that they work on.
//!
//! Each run has its own [`Run`](run::Run), shared by all its threads, so nothing of one run reaches the next.
//! The [`handover`] moves items to the producers and results back. [`producer`] and [`work`] call the hooks.

pub(crate) mod abort_guard;
pub(crate) mod call;
pub(crate) mod deadline_thread;
pub(crate) mod failures;
pub(crate) mod handover;
pub(crate) mod item_names;
pub(crate) mod item_observer;
pub(crate) mod journal_writer;
pub(crate) mod leasing;
pub(crate) mod lifetime;
pub(crate) mod limits;
pub(crate) mod lost_producer;
pub(crate) mod measures;
pub(crate) mod no_output;
pub(crate) mod ordered_merge;
pub(crate) mod outbox;
pub(crate) mod participants;
pub(crate) mod parts;
pub(crate) mod producer;
pub(crate) mod producer_factory;
pub(crate) mod producer_loop;
pub(crate) mod producer_threads;
pub(crate) mod producers;
pub(crate) mod ready;
pub(crate) mod recording;
pub(crate) mod run;
pub(crate) mod run_clock;
pub(crate) mod run_settings;
pub(crate) mod run_shape;
pub(crate) mod settle;
pub(crate) mod shared;
pub(crate) mod spans;
pub(crate) mod taken;
pub(crate) mod weights;
pub(crate) mod work;
