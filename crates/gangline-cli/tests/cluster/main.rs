//! `gangline worker` and `gangline workers`, with a real broker.
//!
//! The program has a `main` of its own: the workers run it too, and it has to begin with `worker_main`.
//! `nats-server` has to be installed.

#![cfg_attr(
    target_os = "linux",
    expect(clippy::unwrap_used, reason = "a panic is how a test fails")
)]
#![cfg_attr(
    target_os = "linux",
    expect(unreachable_pub, reason = "`pub` is for the library's tests")
)]

#[cfg(target_os = "linux")]
#[path = "../../../gangline-nats/tests/cluster/broker.rs"]
#[expect(dead_code, reason = "the library's tests use the rest")]
mod broker;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/chores.rs"]
#[expect(dead_code, reason = "the library's tests use the rest")]
mod chores;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod commands_ends;
#[cfg(target_os = "linux")]
mod credentials;
#[cfg(target_os = "linux")]
mod deployment;
#[cfg(target_os = "linux")]
mod listing;
#[cfg(target_os = "linux")]
#[path = "../../../gangline-nats/tests/cluster/proxy.rs"]
#[expect(dead_code, reason = "the library's tests use it")]
mod proxy;
#[cfg(target_os = "linux")]
mod serving;
#[cfg(target_os = "linux")]
mod shell_cluster;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/remote/suite.rs"]
mod suite;
#[cfg(target_os = "linux")]
mod supervision;
#[cfg(target_os = "linux")]
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the tests of `gangline run` use the rest")]
mod support;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    gangline_nats::worker_main(&[chores::recipe()]);
    suite::run(&[
        supervision::TESTS,
        serving::TESTS,
        commands::TESTS,
        commands_ends::TESTS,
        listing::TESTS,
        deployment::TESTS,
        credentials::TESTS,
    ]);
}
