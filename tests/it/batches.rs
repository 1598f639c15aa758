//! Batches: how they are formed, what the hook sees, and how one that fails is handled.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use gangline::error::BuildError;
use gangline::error::OutputCount;
use gangline::{
    AnyOrderRunner, Batch, CancelToken, Error, Hook, OnError, Order, OrderedRunner,
    ProducerContext, Result, Runner,
};
use proptest::prelude::*;

use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

both_orders! {
    every_rule_gives_what_single_items_give,
    what_is_there_is_worked_on_while_the_source_pauses,
    an_incomplete_batch_waits_no_longer_than_it_was_told,
    a_fixed_batch_is_completed_by_the_end_of_the_input,
    a_window_that_is_no_multiple_of_the_batch_does_not_hang,
    a_window_with_room_for_more_than_one_batch_keeps_two_producers_busy,
    a_cancel_ends_a_run_whose_batch_waits_for_more,
    a_finish_completes_the_batch_that_waits,
    a_finish_completes_the_batch_that_waits_while_the_input_blocks,
    a_stream_forms_batches_too,
    an_item_that_fails_in_a_good_batch_fails_alone,
    an_error_that_panics_when_it_is_shown_is_that_of_its_item,
}

/// Doubles numbers by the batch.
fn good() -> Hooks {
    Hooks::new().by_batch(|_, inputs| Ok(doubled(inputs)))
}

/// Fails as a whole where one of the items is bad, with all inputs in their place.
fn failing(is_bad: impl Fn(u64) -> bool + Send + Sync + 'static) -> Hooks {
    Hooks::new().by_batch(move |_, inputs| match inputs.iter().any(|&x| is_bad(x)) {
        true => Err("bad".into()),
        false => Ok(doubled(inputs)),
    })
}

fn doubled(inputs: &[u64]) -> Vec<Result<u64>> {
    inputs.iter().map(|x| Ok(2 * x)).collect()
}

fn evens(items: u64) -> Vec<u64> {
    (0..items).map(|x| 2 * x).collect()
}

fn every_rule_gives_what_single_items_give(order: Order) {
    let soon = Duration::from_micros(100);
    for batch in [Batch::of(7), Batch::up_to(7), Batch::of(7).within(soon), Batch::of(1)] {
        let mut pool = good().batched(order, 3, batch);
        for items in [0, 1, 7, 500] {
            let mut outputs = pool.run(0..items).unwrap();
            if order == Order::Completion {
                outputs.sort_unstable();
            }
            assert_eq!(outputs, evens(items), "{batch:?}");
            assert_eq!(pool.account().ok, items);
        }
        assert!(pool.runner().sizes().iter().all(|size| (1..=7).contains(size)), "{batch:?}");
    }
}

#[test]
fn a_fixed_batch_is_short_only_at_the_end() {
    let mut runner = good().batched(Order::Input, 1, Batch::of(4));
    assert_eq!(runner.run(0..10).unwrap(), evens(10));
    assert_eq!(runner.runner().sizes(), [4, 4, 2]);
    assert_eq!(*runner.runner().calls().lock().unwrap().last().unwrap(), [8, 9]);
}

#[test]
fn a_narrow_window_does_not_break_fixed_batches_up() {
    let doubler = good();
    let builder = OrderedRunner::builder(doubler).devices(1).batch(Batch::of(4)).window(4);
    let mut runner = builder.build().unwrap();
    assert_eq!(runner.run(0..100).unwrap(), evens(100));
    assert_eq!(runner.runner().sizes(), [4; 25]);
}

/// Each of the first two batches waits for the other.
fn a_window_with_room_for_more_than_one_batch_keeps_two_producers_busy(order: Order) {
    for window in [5, 6, 7] {
        no_hang(move || {
            let begun = Arc::new(Counter::new());
            let runner = map(
                |_| Ok(()),
                move |_, (), x: u64| {
                    begun.add(1);
                    begun.reach(2);
                    Ok(x)
                },
            );
            let builder = AnyOrderRunner::builder(one_by_one(runner)).order(order).devices(2);
            let builder = builder.batch(Batch::up_to(4)).window(window);
            assert_eq!(builder.build().unwrap().run(0..300).unwrap().len(), 300);
        });
    }
}

fn what_is_there_is_worked_on_while_the_source_pauses(order: Order) {
    all_but_the_last_are_consumed_before_it_is_read(order, Batch::up_to(8));
}

fn an_incomplete_batch_waits_no_longer_than_it_was_told(order: Order) {
    let batch = Batch::of(8).within(Duration::from_millis(1));
    all_but_the_last_are_consumed_before_it_is_read(order, batch);
}

/// The source waits for what it gave out to be consumed.
fn all_but_the_last_are_consumed_before_it_is_read(order: Order, batch: Batch) {
    no_hang(move || {
        let consumed = Arc::new(Counter::new());
        let seen = consumed.clone();
        let runner = map(|_| Ok(()), |_, (), x: u64| Ok(x)).fold(
            |_| Ok(()),
            move |_, (), _| {
                seen.add(1);
                Ok(())
            },
        );
        let runner = one_by_one(runner);
        let builder = AnyOrderRunner::builder(runner).order(order).devices(2).batch(batch);
        let wait_at_last = |&x: &u64| {
            if x == 5 {
                consumed.reach(5);
            }
        };
        builder.build().unwrap().run((0..6).inspect(wait_at_last)).unwrap();
    });
}

fn a_fixed_batch_is_completed_by_the_end_of_the_input(order: Order) {
    no_hang(move || {
        let mut pool = good().batched(order, 3, Batch::of(100));
        assert_eq!(pool.run(0..5).unwrap().len(), 5);
        assert_eq!(pool.runner().sizes(), [5]);
    });
}

fn a_window_that_is_no_multiple_of_the_batch_does_not_hang(order: Order) {
    no_hang(move || {
        for (devices, batch, window) in [(1, 4, 6), (2, 4, 5), (3, 2, 3), (2, 8, 8), (3, 5, 7)] {
            let builder = AnyOrderRunner::builder(good()).order(order).devices(devices);
            let builder = builder.batch(Batch::of(batch)).window(window);
            assert_eq!(builder.build().unwrap().run(0..300).unwrap().len(), 300);
        }
    });
}

fn waiting_for_four(order: Order) -> (AnyOrderRunner<Hooks>, CancelToken) {
    let pool = good().batched(order, 2, Batch::of(4));
    let token = pool.cancel_token().clone();
    (pool, token)
}

fn three_of_four() -> (Sender<u64>, Receiver<u64>) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    (0..3).for_each(|x| sender.send(x).unwrap());
    (sender, receiver)
}

fn a_cancel_ends_a_run_whose_batch_waits_for_more(order: Order) {
    no_hang(move || {
        let (mut pool, token) = waiting_for_four(order);
        let (sender, receiver) = three_of_four();
        let emptied = Arc::new(Gate::new());
        let input = token.guard(receiver).inspect({
            let emptied = emptied.clone();
            move |&x| {
                if x == 2 {
                    emptied.open();
                }
            }
        });
        let canceller = std::thread::spawn(move || {
            emptied.pass();
            token.cancel();
        });
        assert!(pool.run(input).unwrap_err().is_cancelled());
        canceller.join().unwrap();
        assert_eq!(pool.account().ok, 0);
        drop(sender);
    });
}

fn a_finish_completes_the_batch_that_waits(order: Order) {
    no_hang(move || {
        let (mut pool, token) = waiting_for_four(order);
        let (sender, receiver) = three_of_four();
        let finisher = token.clone();
        let input = token.guard(receiver).inspect(move |&x| {
            if x == 2 {
                finisher.drain();
            }
        });
        assert_eq!(pool.run(input).unwrap().len(), 3);
        drop(sender);
    });
}

/// Until the items before were worked on.
fn a_finish_completes_the_batch_that_waits_while_the_input_blocks(order: Order) {
    let worked = Arc::new(Counter::new());
    let working = worked.clone();
    let doubler = Hooks::new().by_batch(move |_, inputs| {
        working.add(inputs.len() as u64);
        Ok(doubled(inputs))
    });
    let mut pool = doubler.batched(order, 2, Batch::of(4));
    let token = pool.cancel_token();
    for round in 0..30 {
        let source = (0..4).inspect(|&x| {
            if x == 2 {
                // So that producers most likely sleep.
                (0..200).for_each(|_| std::thread::yield_now());
                token.drain();
                worked.reach(3 * round + 2);
            }
        });
        // The input had been asked for the third before it was told to end.
        assert_eq!(sorted(pool.run(source).unwrap()), evens(3));
    }
}

fn a_stream_forms_batches_too(order: Order) {
    no_hang(move || {
        let mut pool = good().batched(order, 2, Batch::of(4));
        let mut outputs: Vec<_> = pool.outputs(0..50).collect::<Result<_, _>>().unwrap();
        outputs.sort_unstable();
        assert_eq!(outputs, evens(50));
        let sizes = pool.runner().sizes();
        assert!(sizes.iter().filter(|&&size| size == 4).count() > 5, "{sizes:?}");
    });
}

fn an_item_that_fails_in_a_good_batch_fails_alone(order: Order) {
    let doubler = Hooks::new().by_batch(|_, inputs| {
        let each = inputs.drain(..);
        Ok(each.map(|x| if x == 5 { Err("five".into()) } else { Ok(2 * x) }).collect())
    });
    let mut pool = doubler.batched(order, 1, Batch::of(8));
    let error = pool.run(0..8).unwrap_err();
    assert_eq!((error.item(), error.hook()), (Some(5), Some(Hook::ProducerWorkBatch)));
    assert_eq!(error.source().unwrap().to_string(), "five");
    assert_eq!(pool.runner().sizes(), [8], "a batch that came back is not tried again");
    assert_eq!(pool.account().failed, 1);
    assert!(order == Order::Completion || pool.account().ok == 5, "{:?}", pool.account());
}

/// An error with a text that panics.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

fn an_error_that_panics_when_it_is_shown_is_that_of_its_item(order: Order) {
    let doubler = Hooks::new().by_batch(|_, inputs| match inputs.contains(&3) {
        true => Err(Unspeakable.into()),
        false => Ok(doubled(inputs)),
    });
    let mut pool = doubler.batched(order, 2, Batch::of(4));
    let error = pool.run(0..8).unwrap_err();
    assert_eq!(error.item(), Some(3));
    assert!(error.source().unwrap().is::<Unspeakable>());
}

#[test]
fn h7_a_failed_batch_is_split_until_the_guilty_item_stands_alone() {
    for bad in 0..16 {
        let mut pool = failing(move |x| x == bad).batched(Order::Input, 1, Batch::of(16));
        let error = pool.run(0..16).unwrap_err();
        assert_eq!((error.item(), error.attempt()), (Some(bad), Some(1)), "{error:#}");
        assert_eq!(pool.account().ok, bad, "those before it are consumed");
        let extra = pool.runner().sizes().len() - 1;
        assert!(extra <= 2 * 4, "{extra} calls more for one bad item of 16");
    }
}

#[test]
fn a_batch_that_lost_inputs_fails_together() {
    let doubler = Hooks::new().by_batch(|_, inputs| {
        inputs.pop();
        Err("lost".into())
    });
    let mut pool = doubler.batched(Order::Input, 1, Batch::of(4));
    let error = pool.run(0..4).unwrap_err();
    assert_eq!(error.items(), [0, 1, 2, 3]);
    assert_eq!(
        error.to_string(),
        "producer_work_batch failed for 4 items from 0 to 3 on cpu (producer 0, attempt 1)"
    );
    assert_eq!((pool.account().failed, pool.account().cancelled), (4, 0));
}

#[test]
fn a_wrong_number_of_outputs_is_an_error_and_never_a_shift() {
    for (outputs, drains) in [(3, false), (3, true), (5, true), (0, false)] {
        let doubler = Hooks::new().by_batch(move |_, inputs| {
            let count = if inputs.len() == 4 { outputs } else { inputs.len() };
            let given = (0..count as u64).map(Ok).collect();
            if drains {
                inputs.clear();
            }
            Ok(given)
        });
        let mut pool = doubler.batched(Order::Input, 1, Batch::of(4));
        let error = pool.run(0..4).unwrap_err();
        assert_eq!(error.items().len(), 4);
        let count: &OutputCount = error.source().unwrap().downcast_ref().unwrap();
        assert_eq!((count.inputs, count.outputs), (4, outputs));
    }
}

#[test]
fn a_panic_with_all_inputs_in_place_is_searched_for_too() {
    let inits = Arc::new(Counter::new());
    let counts = inits.clone();
    let doubler = Hooks::new()
        .init(move |_| {
            counts.add(1);
            Ok(())
        })
        .by_batch(|_, inputs| {
            assert!(!inputs.contains(&5), "five");
            Ok(doubled(inputs))
        });
    let mut pool = doubler.batched(Order::Input, 1, Batch::of(8));
    let error = pool.run(0..8).unwrap_err();
    assert_eq!((error.item(), error.is_panic()), (Some(5), true), "{error:#}");
    assert_eq!(error.source().unwrap().to_string(), "five");
    assert_eq!(pool.account().ok, 5);
    // Made once for the building and once after each panic but the last: [0-7], [4-7], [4, 5], [5].
    assert_eq!(inits.get(), 4);
    assert_eq!(pool.run(0..4).unwrap(), evens(4));
    assert_eq!(inits.get(), 5);
}

#[test]
fn the_default_hook_works_on_each_item_by_itself() {
    let runner =
        one_by_one(map(|_| Ok(()), |cx: &ProducerContext<'_>, (), x: u64| Ok((cx.item(), x))));
    let builder = OrderedRunner::builder(runner).devices(2).batch(Batch::of(4));
    let outputs = builder.build().unwrap().run(10..20).unwrap();
    let expected: Vec<_> = (0..10).map(|i| (Some(i), 10 + i)).collect();
    assert_eq!(outputs, expected);
}

#[test]
fn closures_that_take_batches_get_them() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    let odd = gangline::map_batches(
        |_| Ok(0u64),
        move |_, calls: &mut u64, xs: &mut Vec<u64>| {
            *calls += 1;
            seen.lock().unwrap().push(xs.len());
            Ok(xs.iter().map(|&x| if x == 5 { Err("five".into()) } else { Ok(x + 1) }).collect())
        },
    );
    let builder = OrderedRunner::builder(odd.results()).devices(1).batch(Batch::of(4));
    let mut pool = builder.on_error(OnError::Skip).build().unwrap();
    let results = pool.run(0..10).unwrap();
    assert_eq!(*sizes.lock().unwrap(), [4, 4, 2]);
    assert_eq!(results.iter().filter(|task| task.result.is_ok()).count(), 9);
    assert!(results[5].result.as_ref().is_err_and(|failure| failure.item == Some(5)));
}

#[test]
fn closures_that_take_batches_get_single_items_without_a_rule() {
    let swap = gangline::map_batches(
        |_| Ok(()),
        |_, (), xs: &mut Vec<u64>| {
            assert_eq!(xs.len(), 1);
            Ok(xs.drain(..).filter(|x| *x != 3).map(Ok).collect())
        },
    );
    let mut pool = OrderedRunner::new(swap, 2).unwrap();
    assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2]);
    let error = pool.run(0..9).unwrap_err();
    assert_eq!(error.item(), Some(3));
    assert!(format!("{error:#}").ends_with("0 outputs were given for 1 inputs"), "{error:#}");
}

#[test]
fn a_closure_for_single_items_is_given_no_batches() {
    fn refused<R: Runner + 'static>(runner: R) -> Error {
        OrderedRunner::builder(runner).devices(1).batch(Batch::of(4)).build().unwrap_err()
    }
    let same = || gangline::map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let folded = same().fold(
        |_| Ok(0),
        |_, sum: &mut u64, x| {
            *sum += x;
            Ok(())
        },
    );
    for error in [
        refused(same()),
        refused(folded),
        refused(same().results()),
        refused(Arc::new(Box::new(same()))),
        refused(gangline::testing::Simulated::new(same())),
    ] {
        assert!(matches!(error, Error::Build(BuildError::SingleItems { .. })), "{error}");
        assert!(error.to_string().contains("`map_batches`"), "{error}");
    }
}

#[test]
fn pointers_to_runners_forward_batches() {
    let boxed: Box<Hooks> = Box::new(good());
    let builder = OrderedRunner::builder(Arc::new(boxed)).devices(1).batch(Batch::of(4));
    let mut runner = builder.build().unwrap();
    assert_eq!(runner.run(0..8).unwrap(), evens(8));
    assert_eq!(runner.runner().sizes(), [4, 4]);
}

#[test]
fn impossible_batches_are_refused() {
    let builder = || OrderedRunner::builder(good()).devices(1);
    let error = builder().batch(Batch::up_to(0)).build().unwrap_err();
    assert_eq!(error.to_string(), "batch must have room for at least 1 item, got 0");
    let error = builder().batch(Batch::of(8)).window(7).build().unwrap_err();
    assert!(
        matches!(error, Error::Build(BuildError::Window { window: 7, least: 8, .. })),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn outputs_equal_the_sequential_ones_up_to_the_first_bad_item(
        items in 0u64..200,
        most in 1usize..20,
        fixed in any::<bool>(),
        devices in 1usize..4,
        extra in 0usize..20,
        bad in proptest::option::of(0u64..200),
        panics in any::<bool>(),
    ) {
        let batch = if fixed { Batch::of(most) } else { Batch::up_to(most) };
        let doubler = Hooks::new().by_batch(move |_, inputs| {
            let is_bad = inputs.iter().any(|&x| Some(x) == bad);
            assert!(!(is_bad && panics), "bad");
            if is_bad { Err("bad".into()) } else { Ok(doubled(inputs)) }
        });
        let builder = OrderedRunner::builder(doubler).devices(devices).batch(batch);
        let mut runner = builder.window(most + extra).build().unwrap();
        let bad = bad.filter(|&bad| bad < items);
        let outcome = no_hang(move || (runner.run(0..items), runner.account()));
        let (result, account) = outcome;
        prop_assert_eq!(account.ok, bad.unwrap_or(items));
        match bad {
            None => prop_assert_eq!(result.unwrap(), evens(items)),
            Some(bad) => {
                prop_assert_eq!(result.unwrap_err().item(), Some(bad));
                prop_assert_eq!(account.failed, 1);
            }
        }
    }
}
