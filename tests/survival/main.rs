//! What a pool survives: limits that hold to the end, producers that are lost, replaced, ended or recycled.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod ends;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
mod init_in_run;
mod lost_devices;
mod lost_items;
mod memory;
mod recycled;
mod refused;
mod replaced;
mod replaced_elsewhere;
#[path = "../it/support.rs"]
mod support;
mod wrapped;
