//! What a build with candle and rayon has more: devices in the hooks, and a rayon pool for each producer.

#![cfg(feature = "candle")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod candle;
mod cpu_threads;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
#[path = "../it/probe.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod probe;
// The threads of a rayon pool use up memory too, and hooks run on them.
#[path = "../it/process_ends.rs"]
mod process_ends;
#[path = "../it/random_runs.rs"]
mod random_runs;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
