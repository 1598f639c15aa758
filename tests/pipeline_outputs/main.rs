//! The outputs of a pipeline as an iterator.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod early_ends;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
mod laws;
mod outputs;
#[path = "../pipeline_reports/rows.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod rows;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
