//! Producers on other machines, by behaviour: with real workers and a real broker.
//!
//! The program has a `main` of its own: the workers run it too, and it has to begin with `worker_main`.
//! `nats-server` has to be installed.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(target_os = "linux")]
mod batches;
#[cfg(target_os = "linux")]
mod broker;
#[cfg(target_os = "linux")]
mod broker_faults;
#[cfg(target_os = "linux")]
mod bugs;
#[cfg(target_os = "linux")]
mod causes;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/chores.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod chores;
#[cfg(target_os = "linux")]
mod confirmations;
#[cfg(target_os = "linux")]
mod coordinators;
#[cfg(target_os = "linux")]
mod deployment;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg(target_os = "linux")]
mod large;
#[cfg(target_os = "linux")]
mod laws;
#[cfg(target_os = "linux")]
mod leases;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/it/log.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod log;
#[cfg(target_os = "linux")]
mod lost_workers;
#[cfg(target_os = "linux")]
mod messages;
#[cfg(target_os = "linux")]
mod policies;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod proxy;
#[cfg(target_os = "linux")]
mod refusals;
#[cfg(target_os = "linux")]
mod reports;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod security;
#[cfg(target_os = "linux")]
mod shared_bytes;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/suite.rs"]
mod suite;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    bugs::subscribe_if_asked();
    gangline_nats::worker_main(&[
        chores::recipe(),
        &laws::PROBE,
        &messages::SLEEPER,
        &shared_bytes::DOUBLED,
    ]);
    coordinators::coordinate_if_asked();
    suite::run(&[
        runs::TESTS,
        batches::TESTS,
        processes::TESTS,
        laws::TESTS,
        large::TESTS,
        shared_bytes::TESTS,
        policies::TESTS,
        lost_workers::TESTS,
        leases::TESTS,
        confirmations::TESTS,
        fleet::TESTS,
        messages::TESTS,
        refusals::TESTS,
        reports::TESTS,
        broker_faults::TESTS,
        causes::TESTS,
        coordinators::TESTS,
        bugs::TESTS,
        security::TESTS,
        deployment::TESTS,
    ]);
}
