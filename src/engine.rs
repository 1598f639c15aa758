//! The caller's and the consumer's threads of a run.
//!
//! A [`line`] of one or several stages is driven by the [`run_driver`], if a consumer ends the run, or the
//! [`outputs_driver`], if a caller takes the outputs. [`feed`] pulls the input, [`consume`] calls the consumer's hooks,
//! [`link`] passes the results of one stage to the next. [`expand`] makes many items of one, and [`gather`] one of many.

mod collector;
pub(crate) mod consume;
pub(crate) mod expand;
pub(crate) mod feed;
mod feeding;
pub(crate) mod gather;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod outputs;
mod outputs_driver;
pub(crate) mod own_feeder;
pub(crate) mod pool;
mod reckoning;
pub(crate) mod run_driver;
pub(crate) mod service;
mod session;
mod stage;
pub(crate) mod totals;

#[cfg(all(test, shuttle))]
mod model;
