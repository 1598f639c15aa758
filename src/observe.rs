//! What is seen of runs: events, accounts, reports and progress.

pub mod event;
pub(crate) mod event_log;
pub(crate) mod failure;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observing;
#[cfg(feature = "progress")]
pub(crate) mod progress;
pub(crate) mod provenance;
pub mod report;
pub(crate) mod run_stats;
