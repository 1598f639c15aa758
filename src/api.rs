//! What users hold: pools, their builder, pipelines, outputs, and runners made of closures.

pub(crate) mod batches;
pub(crate) mod boxed;
pub(crate) mod builder;
pub(crate) mod exclusive;
pub(crate) mod expand;
pub(crate) mod gather;
pub(crate) mod guard;
pub(crate) mod into_outputs;
pub(crate) mod map;
pub(crate) mod map_batches;
pub(crate) mod outputs;
pub(crate) mod pipeline;
pub(crate) mod pool;
pub(crate) mod service;
pub mod sink;
pub(crate) mod stage;
#[cfg(feature = "futures")]
pub(crate) mod streams;
pub(crate) mod task_results;
pub(crate) mod terminator;
pub(crate) mod work;
