//! Pipelines in which one item becomes many parts, and the parts come back together.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod again;
mod at_run_time;
mod bounds;
mod cancel;
mod faults;
mod limits;
mod memory;
mod order;
mod random;
mod reports;
mod support;
mod tiles;
