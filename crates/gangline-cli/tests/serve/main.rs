//! `gangline serve` as a user starts it: the program, its workers, and callers that write bytes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

mod background;
mod browser;
mod caller;
mod faults;
mod figures;
mod guide;
mod life;
mod load;
mod metrics;
mod page;
mod requests;
mod server;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod support;
