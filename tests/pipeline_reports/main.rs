//! One account, report, progress and list of failures for a pipeline, and its journal.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod account;
mod failures;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
mod progress;
mod report;
mod rows;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
