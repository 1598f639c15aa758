//! The suite of conformance: it passes what keeps the laws, and notices each flaw of a wrapper.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod flawed;

use std::error::Error as _;
use std::time::Duration;

use gangline::AnyOrderRunner;
use gangline::closures::BoxRunner;
use gangline::testing::Simulated;
use gangline::testing::conformance::{BrokenLaw, Law, Laws, check_all};

use self::flawed::{Flaw, Flawed};

#[test]
fn producers_on_threads_keep_the_laws() {
    check_all(|probe| AnyOrderRunner::builder(probe).devices(3)).unwrap();
}

#[test]
fn wrappers_that_forward_all_hooks_keep_the_laws() {
    check_all(|probe| AnyOrderRunner::builder(Simulated::new(probe)).devices(2)).unwrap();
    check_all(|probe| AnyOrderRunner::builder(BoxRunner::new(probe)).devices(2)).unwrap();
    check_all(|probe| AnyOrderRunner::builder(Flawed::new(probe, Flaw::None)).devices(2)).unwrap();
}

#[test]
fn one_device_is_too_few() {
    let error = check_all(|probe| AnyOrderRunner::builder(probe).devices(1)).unwrap_err();
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "the suite needs 2 devices or more, the builder has 1");
}

fn laws(flaw: Flaw) -> Laws<Flawed> {
    Laws::new(move |probe| AnyOrderRunner::builder(Flawed::new(probe, flaw)).devices(2))
}

#[track_caller]
fn broken(law: Law, outcome: Result<(), BrokenLaw>) {
    let error = outcome.expect_err("the flaw is noticed");
    assert_eq!(error.law, law, "{error:?}");
}

#[test]
fn a_hook_that_never_returns_is_a_hang() {
    let laws = laws(Flaw::HangsAfterErrors).limit(Duration::from_millis(300));
    broken(Law::NoHang, laws.no_hang());
}

#[test]
fn an_error_that_is_swallowed_is_not_accounted() {
    broken(Law::Accounted, laws(Flaw::SwallowsErrors).accounted());
}

#[test]
fn a_skipped_item_that_is_not_forwarded_is_not_accounted() {
    broken(Law::Accounted, laws(Flaw::KeepsSkipped).accounted());
}

#[test]
fn an_error_without_its_cause_is_not_named() {
    broken(Law::Named, laws(Flaw::HidesCauses).named());
}

#[test]
fn results_that_the_wrapper_keeps_exceed_the_window() {
    broken(Law::Bounded, laws(Flaw::ConsumesInPairs).bounded());
}

#[test]
fn swapped_results_are_not_in_order() {
    broken(Law::Ordered, laws(Flaw::SwapsResults).ordered());
}

#[test]
fn a_result_that_waits_for_the_next_is_not_prompt() {
    let laws = laws(Flaw::ConsumesInPairs).limit(Duration::from_millis(500));
    broken(Law::Prompt, laws.prompt());
}

#[test]
fn a_state_that_is_not_ended_is_not_paired() {
    broken(Law::Paired, laws(Flaw::EndsNoState).paired());
}

#[test]
fn a_hook_that_repeats_itself_for_ever_is_a_hang() {
    let laws = laws(Flaw::RepeatsUntilItPasses).limit(Duration::from_millis(500));
    broken(Law::NoHang, laws.no_hang());
}

#[test]
fn a_run_that_ends_well_although_it_was_cancelled_breaks_the_law() {
    broken(Law::Cancelled, laws(Flaw::LosesTheLast).cancelled());
}

#[test]
fn a_leaked_runner_is_not_clean() {
    let laws = laws(Flaw::LeaksStates).limit(Duration::from_millis(500));
    broken(Law::Clean, laws.clean());
}

#[test]
fn a_panic_that_is_caught_keeps_its_state() {
    broken(Law::Panics, laws(Flaw::CatchesPanics).panics());
}

#[test]
fn a_hook_for_batches_that_is_not_forwarded_gets_no_batch() {
    broken(Law::Batched, laws(Flaw::ForwardsNoBatches).batched());
}
