//! The caller's and the consumer's threads of a run.
//!
//! [`feed`] pulls the caller's input, [`consume`] calls the consumer's hooks, [`link`] passes the results of one
//! stage to the next. [`expand`] makes many items of one, and [`gather`] one of many. A [`session`] begins and ends a run.

pub(crate) mod collector;
pub(crate) mod consume;
pub(crate) mod consuming;
#[cfg(feature = "futures")]
mod consuming_task;
pub(crate) mod expand;
pub(crate) mod feed;
pub(crate) mod gather;
mod in_progress;
pub(crate) mod joint;
mod last_stage;
pub(crate) mod lineup;
pub(crate) mod link;
pub(crate) mod outputs;
pub(crate) mod own_feeder;
pub(crate) mod pace;
#[cfg(feature = "futures")]
pub(crate) mod pipeline_outputs_task;
pub(crate) mod pipeline_stream;
#[cfg(feature = "futures")]
pub(crate) mod pipeline_task;
pub(crate) mod pipeline_totals;
#[cfg(feature = "futures")]
pub(crate) mod polled;
mod reckoning;
mod run_journal;
mod run_session;
pub(crate) mod run_totals;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod stages;
#[cfg(feature = "futures")]
pub(crate) mod stream_run;
pub(crate) mod streaming;
#[cfg(feature = "futures")]
pub(crate) mod task;
#[cfg(feature = "futures")]
mod task_feeding;

#[cfg(all(test, shuttle))]
mod model;
