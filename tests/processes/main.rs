//! Producers in child processes, by behaviour.
//!
//! The program has a `main` of its own: the children run it too, and it has to begin with `worker_main`. With the
//! usual test harness, each child would run all tests again.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(target_os = "linux")]
mod ahead;
#[cfg(target_os = "linux")]
mod batches;
#[cfg(target_os = "linux")]
mod chores;
#[cfg(target_os = "linux")]
mod crashes;
#[cfg(target_os = "linux")]
mod ends;
#[cfg(target_os = "linux")]
mod errors;
#[cfg(target_os = "linux")]
mod expansions;
#[cfg(target_os = "linux")]
mod impostors;
#[cfg(target_os = "linux")]
mod laws;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod random_kills;
#[cfg(target_os = "linux")]
mod reports;
#[cfg(target_os = "linux")]
mod runs;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    impostors::serve_if_asked();
    gangline::worker_main(&[&chores::CHORES, &chores::TOLD, &laws::PROBE, &laws::WRAPPED]);
    orphans::coordinate_if_asked();
    let mut arguments = libtest_mimic::Arguments::from_args();
    // One at a time: a test kills whatever children this process has.
    arguments.test_threads = Some(1);
    let all = [
        runs::TESTS,
        laws::TESTS,
        ahead::TESTS,
        crashes::TESTS,
        errors::TESTS,
        batches::TESTS,
        expansions::TESTS,
        limits::TESTS,
        ends::TESTS,
        impostors::TESTS,
        orphans::TESTS,
        reports::TESTS,
        random_kills::TESTS,
    ];
    let trial = |&(name, test): &(&str, fn())| {
        libtest_mimic::Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = all.concat().iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
