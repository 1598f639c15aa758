//! Producers in child processes, by behaviour.
//!
//! The program has a `main` of its own: the children run it too, and it has to begin with `worker_main`. With the
//! usual test harness, each child would run all tests again.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(target_os = "linux")]
use gangline::process::AnyRecipe;

#[cfg(target_os = "linux")]
mod ahead;
#[cfg(target_os = "linux")]
mod batches;
#[cfg(target_os = "linux")]
#[path = "../remote/chores.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod chores;
#[cfg(target_os = "linux")]
mod crashes;
#[cfg(target_os = "linux")]
#[path = "../remote/draw.rs"]
mod draw;
#[cfg(target_os = "linux")]
mod ends;
#[cfg(target_os = "linux")]
mod errors;
#[cfg(target_os = "linux")]
mod expansions;
#[cfg(target_os = "linux")]
mod impostors;
#[cfg(target_os = "linux")]
mod journals;
#[cfg(target_os = "linux")]
mod large;
#[cfg(target_os = "linux")]
mod laws;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
#[path = "../remote/lines.rs"]
mod lines;
#[cfg(target_os = "linux")]
#[path = "../it/log.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod log;
#[cfg(target_os = "linux")]
mod lost_devices;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod overlap;
#[cfg(target_os = "linux")]
mod prints;
#[cfg(target_os = "linux")]
mod random_kills;
#[cfg(target_os = "linux")]
mod reports;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
#[path = "../remote/suite.rs"]
mod suite;
#[cfg(target_os = "linux")]
mod terminations;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    impostors::serve_if_asked();
    let recipes: [&dyn AnyRecipe; 12] = [
        &chores::CHORES,
        &chores::PACKED,
        &laws::PROBE,
        &laws::WRAPPED,
        &lines::LINES,
        &crashes::UNIQUE,
        &large::LETTERS,
        &large::BUNDLES,
        &large::IMAGES,
        &overlap::PREPARED,
        &overlap::FINISHED,
        &ends::NOTING,
    ];
    gangline::worker_main(&recipes);
    orphans::coordinate_if_asked();
    lines::coordinate_if_asked(journals::in_processes);
    suite::run(&[
        runs::TESTS,
        laws::TESTS,
        large::TESTS,
        ahead::TESTS,
        crashes::TESTS,
        errors::TESTS,
        lost_devices::TESTS,
        batches::TESTS,
        overlap::TESTS,
        expansions::TESTS,
        limits::TESTS,
        ends::TESTS,
        terminations::TESTS,
        impostors::TESTS,
        orphans::TESTS,
        reports::TESTS,
        prints::TESTS,
        journals::TESTS,
        random_kills::TESTS,
    ]);
}
