//! Outputs as iterators and streams, and inputs as streams, by behaviour.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod drivers;
#[path = "../it/hooks.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod hooks;
mod laws;
#[path = "../it/log.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod log;
mod owned;
mod pipeline_outputs;
mod pipelines;
mod receiver_laws;
mod runtimes;
mod subscribers;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
mod task_laws;
