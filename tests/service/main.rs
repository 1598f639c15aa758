//! Services, by behaviour.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod answers;
mod batches;
mod end;
mod give_up;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
mod many_callers;
mod open_streams;
mod policies;
mod queue;
mod reports;
mod runtimes;
mod streams;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;
mod tower;
