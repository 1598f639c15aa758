//! Batches on devices that run out of memory, and the simulated devices that tests do that with.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use gangline::error::{Measure, OutOfMemory};
use gangline::order::InputOrder;
use gangline::testing::{Call, Fault, Script, Simulated};
use gangline::{AnyOrderRunner, Batch, Builder, Order, OrderedRunner};
use proptest::prelude::*;

use crate::echo::{echo, echo_failing_at};
use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::no_hang;

both_orders! {
    every_item_is_worked_on_whatever_the_memory,
    items_that_cost_nothing_run_out_of_memory_too,
    a_dead_device_ends_the_run,
}

fn simulated(script: Script) -> Simulated<Hooks> {
    Simulated::new(echo()).everywhere(script)
}

fn builder(runner: Simulated<Hooks>) -> Builder<Simulated<Hooks>, InputOrder> {
    OrderedRunner::builder(runner).devices(1)
}

fn sizes(calls: &[Call]) -> Vec<usize> {
    calls.iter().map(|call| call.items.len()).collect()
}

fn range(items: u64) -> Vec<u64> {
    (0..items).collect()
}

#[test]
fn a_batch_that_does_not_fit_is_split_without_blame() {
    let runner = simulated(Script::new().out_of_memory_above(3));
    let mut runner = builder(runner).batch(Batch::of(10)).build().unwrap();
    assert_eq!(runner.run(0..10).unwrap(), range(10));
    let calls = runner.runner().calls();
    assert_eq!(sizes(&calls), [10, 5, 2, 2, 2, 2, 2]);
    assert!(matches!(calls[0].fault, Some(Fault::OutOfMemory { most: 3, .. })));
    assert_eq!(runner.learned_batch_limits(), [Some(2)]);
    assert_eq!(runner.account().ok, 10);
}

#[test]
fn the_size_that_worked_is_kept_for_later_batches_and_runs() {
    let runner = simulated(Script::new().out_of_memory_above(5));
    let mut runner = builder(runner).batch(Batch::of(8)).build().unwrap();
    runner.run(0..16).unwrap();
    assert_eq!(sizes(&runner.runner().calls()), [8, 4, 4, 4, 4]);
    runner.run(0..6).unwrap();
    assert_eq!(sizes(&runner.runner().calls())[5..], [4, 2]);
    runner.close().unwrap();
    assert!(runner.learned_batch_limits().is_empty());
    runner.activate().unwrap();
    assert_eq!(runner.learned_batch_limits(), [None], "its memory may be another");
}

#[test]
fn it_grows_back_slowly() {
    let runner = simulated(Script::new().out_of_memory_above(5));
    let mut runner = builder(runner).batch(Batch::of(8)).build().unwrap();
    runner.run(0..2_000).unwrap();
    let calls = runner.runner().calls();
    let short = calls.iter().filter(|call| call.fault.is_some()).count();
    assert!(sizes(&calls).iter().filter(|&&size| size == 5).count() > 100);
    assert!(short < 8, "{short} of {} calls were out of memory", calls.len());
    assert!(runner.learned_batch_limits()[0] >= Some(5));
}

#[test]
fn each_device_learns_for_itself() {
    let small = Script::new().out_of_memory_above(2).slower_by(Duration::from_millis(1));
    let runner = Simulated::new(echo())
        .on(1, small)
        .everywhere(Script::new().slower_by(Duration::from_millis(1)));
    let builder = OrderedRunner::builder(runner).devices(2).batch(Batch::of(8));
    let mut runner = builder.build().unwrap();
    // A device may get no batch of a short run.
    let ceilings = loop {
        assert_eq!(runner.run(0..400).unwrap(), range(400));
        let ceilings = runner.learned_batch_limits();
        if ceilings[1].is_some() {
            break ceilings;
        }
    };
    assert_eq!(ceilings[0], None);
    assert!(ceilings[1].is_some_and(|extent| extent <= 3), "{ceilings:?}");
}

#[test]
fn one_item_that_does_not_fit_fails_by_itself() {
    let runner = simulated(Script::new().out_of_memory_above(0));
    let mut runner = builder(runner).batch(Batch::of(4)).build().unwrap();
    let error = runner.run(0..4).unwrap_err();
    assert_eq!(error.item(), Some(0));
    assert_eq!(
        format!("{error:#}"),
        "producer_work_batch failed for item 0 on cpu (producer 0, attempt 1): out of memory: \
         simulated: memory for 0 items only"
    );
    assert!(error.source().unwrap().is::<OutOfMemory>());
    assert_eq!(sizes(&runner.runner().calls()), [4, 2, 1]);
}

#[test]
fn a_guilty_item_is_found_on_a_small_device_too() {
    let small = Script::new().out_of_memory_above(4);
    let simulated = Simulated::new(echo_failing_at(11)).everywhere(small);
    let builder = OrderedRunner::builder(simulated).devices(1).batch(Batch::of(16));
    let mut runner = builder.build().unwrap();
    let error = runner.run(0..16).unwrap_err();
    assert_eq!((error.item(), runner.account().ok), (Some(11), 11), "{error:#}");
    assert_eq!(sizes(&runner.runner().calls()), [16, 8, 4, 4, 4, 2, 2, 1, 1]);
}

#[test]
fn the_ceiling_is_one_of_what_is_limited() {
    let runner = simulated(Script::new().out_of_memory_above(3));
    let builder = builder(runner).batch(Batch::of(8)).max_batch_cost(800u64, |_| 100);
    let mut runner = builder.build().unwrap();
    assert_eq!(runner.run(0..8).unwrap(), range(8));
    assert_eq!(sizes(&runner.runner().calls()), [8, 4, 2, 2, 2, 2]);
    assert_eq!(runner.learned_batch_limits(), [Some(200)]);
}

#[test]
fn a_call_that_panics_once_costs_nothing_but_the_state() {
    let panicking = simulated(Script::new().panics_at(1));
    let mut runner = builder(panicking).batch(Batch::of(4)).build().unwrap();
    assert_eq!(runner.run(0..4).unwrap(), range(4), "the batch came back whole");
    assert_eq!(runner.learned_batch_limits(), [None], "a panic like any other");
}

/// What they cost does not say in what parts to try them.
fn items_that_cost_nothing_run_out_of_memory_too(order: Order) {
    for measure in [Measure::Cost, Measure::Padded] {
        let runner = simulated(Script::new().out_of_memory_above(3));
        let builder = AnyOrderRunner::builder(runner).order(order).devices(1).batch(Batch::of(8));
        let nearly_nothing = |&x: &u64| u64::from(x == 5);
        let builder = match measure {
            Measure::Cost => builder.max_batch_cost(10, nearly_nothing),
            _ => builder.max_padded_size(10, nearly_nothing),
        };
        let mut pool = builder.build().unwrap();
        assert_eq!(sorted(pool.run(0..16).unwrap()), range(16));
    }
}

fn a_dead_device_ends_the_run(order: Order) {
    let runner = Simulated::new(echo()).on(1, Script::new().dies_at(3));
    let builder = AnyOrderRunner::builder(runner).order(order).devices(2).batch(Batch::of(4));
    let mut pool = builder.build().unwrap();
    let error = pool.run(0..).unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "simulated: the device died at call 3");
    assert_eq!(pool.account().failed, 1);
    let died = pool.runner().calls().iter().filter(|call| call.producer == 1).count();
    assert!(died >= 3);
    pool.close().unwrap();
    let error = pool.activate().unwrap_err();
    assert_eq!(error.hook(), Some(gangline::Hook::ProducerInit), "it stays dead");
}

#[test]
fn single_items_see_the_script_too() {
    let runner = Simulated::new(Hooks::new()).on(0, Script::new().fails_at(3));
    let mut runner = OrderedRunner::new(Arc::new(runner), 1).unwrap();
    let error = runner.run(0..5).unwrap_err();
    assert_eq!(error.item(), Some(2));
    assert_eq!(error.source().unwrap().to_string(), "simulated: call 3 fails");
    assert_eq!(runner.run(0..5).unwrap(), range(5), "once");
}

fn every_item_is_worked_on_whatever_the_memory(order: Order) {
    for most in [1, 2, 3, 7, 100] {
        let runner = simulated(Script::new().out_of_memory_above(most));
        let builder =
            AnyOrderRunner::builder(runner).order(order).devices(3).batch(Batch::up_to(9));
        let mut pool = builder.build().unwrap();
        assert_eq!(crate::hooks::sorted(pool.run(0..300).unwrap()), range(300));
        assert_eq!(pool.account().ok, 300);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn outputs_equal_the_sequential_ones_whatever_the_faults(
        items in 0u64..200,
        most in 1usize..20,
        rule in any::<bool>(),
        memory in proptest::collection::vec(1usize..20, 1..4),
        faults in proptest::collection::vec((0usize..3, 1u64..20, any::<bool>()), 0..3),
        sized in any::<bool>(),
    ) {
        let batch = if rule { Batch::of(most) } else { Batch::up_to(most) };
        let mut simulated = Simulated::new(echo());
        for (worker, &memory) in memory.iter().enumerate() {
            let mut script = Script::new().out_of_memory_above(memory);
            for &(_, call, panics) in faults.iter().filter(|fault| fault.0 == worker) {
                script = if panics { script.panics_at(call) } else { script.fails_at(call) };
            }
            simulated = simulated.on(worker, script);
        }
        let mut builder = OrderedRunner::builder(simulated).devices(memory.len()).batch(batch);
        if sized {
            builder = builder.max_padded_size(2_000u64, |&x| 1 + x % 100);
        }
        let mut runner = builder.build().unwrap();
        let (result, account) = no_hang(move || (runner.run(0..items), runner.account()));
        let accounted = account.ok + account.failed + account.cancelled;
        prop_assert_eq!(accounted + account.unread.unwrap(), items);
        match result {
            Ok(outputs) => prop_assert_eq!(outputs, range(items)),
            // A fault that hits a batch of one, or a call of the second try, is its item's.
            Err(error) => {
                prop_assert!(!faults.is_empty(), "{:#}", error);
                prop_assert_eq!(error.items().len(), 1);
                prop_assert_eq!(Some(account.ok), error.item(), "those before it were consumed");
            }
        }
    }
}
