//! Outputs as iterators and streams, and inputs as streams, by behaviour.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(feature = "futures")]
mod drivers;
#[path = "../it/hooks.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod hooks;
#[cfg(feature = "futures")]
mod laws;
#[cfg(feature = "futures")]
#[path = "../it/log.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod log;
mod owned;
#[cfg(feature = "futures")]
mod pipeline_outputs;
#[cfg(feature = "futures")]
mod pipelines;
#[cfg(feature = "futures")]
mod receiver_laws;
#[cfg(feature = "futures")]
mod runtimes;
#[cfg(feature = "futures")]
mod subscribers;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
#[cfg(feature = "futures")]
mod task_laws;
