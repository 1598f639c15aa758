//! Workers, brokers and coordinators that are killed at random, while a run writes a file.
//!
//! The file has to be that of a run on threads, byte by byte: no line is missing, and none is there twice.
//! `GANGLINE_KILLS=full` kills as often as a night allows, and `GANGLINE_KILLS_SEED` draws other moments.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(target_os = "linux")]
#[path = "../cluster/broker.rs"]
#[expect(dead_code, reason = "the tests in `cluster` use the rest")]
mod broker;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/chores.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod chores;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/draw.rs"]
mod draw;
#[cfg(target_os = "linux")]
mod kills;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/lines.rs"]
mod lines;
#[cfg(target_os = "linux")]
#[path = "../cluster/proxy.rs"]
#[expect(dead_code, reason = "no connection is cut here")]
mod proxy;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod store;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/suite.rs"]
mod suite;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    gangline_nats::worker_main(&[&lines::LINES]);
    lines::coordinate_if_asked(stage::in_a_cluster);
    suite::run(&[kills::TESTS]);
}
