//! Errors that are skipped: what the consumer sees, what is recorded, and what still ends a run.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use gangline::error::MaxFailures;
use gangline::order::RuntimeOrder;
use gangline::testing::{Script, Simulated};
use gangline::{AnyOrderRunner, Batch, Builder, Error, Hook, OnError, Order, Runner, Verdict};
use proptest::prelude::*;

use crate::echo::{echo, echo_failing_at, together};
use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{map, no_hang, one_by_one};

both_orders! {
    items_that_fail_are_left_out,
    a_panic_costs_the_state_and_not_the_run,
    errors_of_the_input_leave_gaps,
    a_stream_yields_errors_and_goes_on,
    a_batch_that_fails_together_is_left_out_together,
    a_limit_that_refuses_an_item_leaves_it_out,
    too_many_failures_end_the_run,
    a_consumer_that_fails_ends_the_run,
    a_consumer_that_is_told_may_fail_or_stop,
    a_panic_of_the_input_ends_the_run,
    a_state_that_cannot_be_made_anew_ends_the_run,
}

pub(crate) fn builder<R: Runner + 'static>(runner: R, order: Order) -> Builder<R, RuntimeOrder> {
    AnyOrderRunner::builder(runner).order(order).devices(3).on_error(OnError::Skip)
}

pub(crate) fn fails_at_thirds() -> Hooks {
    Hooks::new().work(|_, x| if x % 3 == 0 { Err(format!("bad {x}").into()) } else { Ok(x) })
}

/// The numbers below `count` that are no multiple of three.
fn others(count: u64) -> Vec<u64> {
    (0..count).filter(|x| x % 3 != 0).collect()
}

pub(crate) fn items(errors: &[Error]) -> Vec<u64> {
    sorted(errors.iter().map(|error| error.item().unwrap()).collect())
}

fn items_that_fail_are_left_out(order: Order) {
    let mut pool = builder(fails_at_thirds(), order).build().unwrap();
    let outputs = pool.run(0..300).unwrap();
    if order == Order::Input {
        assert!(outputs.is_sorted());
        assert!(pool.failures().is_sorted_by_key(|error| error.item()));
    }
    assert_eq!(sorted(outputs), others(300));
    let account = pool.account();
    assert_eq!((account.ok, account.failed, account.cancelled), (200, 100, 0));
    assert_eq!(items(pool.failures()), (0..300).step_by(3).collect::<Vec<_>>());
    let error = pool.failures().iter().find(|error| error.item() == Some(3)).unwrap();
    assert_eq!((error.hook(), error.attempt()), (Some(Hook::ProducerWork), Some(1)));
    assert_eq!(error.source().unwrap().to_string(), "bad 3");
    assert_eq!(sorted(pool.run([1, 2]).unwrap()), [1, 2]);
    assert!(pool.failures().is_empty(), "those of the last run");
}

#[test]
fn without_a_policy_the_first_error_ends_the_run() {
    let mut pool = AnyOrderRunner::builder(fails_at_thirds()).devices(2).build().unwrap();
    assert_eq!(pool.run(1..9).unwrap_err().item(), Some(2));
    assert!(pool.failures().is_empty());
}

fn a_panic_costs_the_state_and_not_the_run(order: Order) {
    let inits = Arc::new(AtomicU64::new(0));
    let counted = inits.clone();
    let hooks = Hooks::new()
        .init(move |_| {
            counted.fetch_add(1, SeqCst);
            Ok(())
        })
        .work(|_, x| {
            assert!(x % 10 != 0, "bad {x}");
            Ok(x)
        });
    let mut pool = builder(hooks, order).build().unwrap();
    assert_eq!(pool.run(0..100).unwrap().len(), 90);
    assert_eq!(pool.account().failed, 10);
    assert!(pool.failures().iter().all(Error::is_panic));
    // One more for each panic, but for those that no item followed on their producer.
    let inits = inits.load(SeqCst);
    assert!((3 + 10 - 3..=3 + 10).contains(&inits), "{inits}");
}

fn errors_of_the_input_leave_gaps(order: Order) {
    for batch in [None, Some(Batch::of(4)), Some(Batch::up_to(4))] {
        for sized in [false, true] {
            let told = Arc::new(Mutex::new(Vec::new()));
            let mut builder = builder(recording(&told), order).window(8);
            if let Some(batch) = batch {
                builder = builder.batch(batch);
                if sized {
                    builder = builder.max_padded_size(1_000u64, |&x| 1 + x);
                }
            }
            let mut pool = builder.build().unwrap();
            let input =
                (0..100u64).map(|x| if x % 3 == 0 { Err(format!("no {x}")) } else { Ok(x) });
            let outputs = pool.try_run(input).unwrap();
            assert!(order == Order::Completion || outputs.is_sorted());
            assert_eq!(sorted(outputs), others(100));
            assert_eq!((pool.account().ok, pool.account().failed), (66, 34));
            assert!(pool.failures().iter().all(Error::is_input));
            let told = told.lock().unwrap();
            assert_eq!(sorted(told.clone()), (0..100).step_by(3).collect::<Vec<_>>());
            assert!(order == Order::Completion || told.is_sorted());
        }
    }
}

/// Notes the items that the consumer saw as skipped. Each comes with the index that it has in the input.
pub(crate) fn recording(skipped: &Arc<Mutex<Vec<u64>>>) -> Hooks {
    let skipped = skipped.clone();
    let check = |item: Option<u64>, x| assert_eq!(item, Some(x));
    Hooks::new()
        .work(move |cx, x| {
            check(cx.item(), x);
            Ok(x)
        })
        .consume(move |cx, x| {
            check(cx.item(), x);
            Ok(())
        })
        .skipped_with(move |cx, error| {
            assert_eq!(cx.item(), error.item());
            skipped.lock().unwrap().push(cx.item().unwrap());
            Ok(())
        })
}

fn a_stream_yields_errors_and_goes_on(order: Order) {
    let mut pool = builder(fails_at_thirds(), order).build().unwrap();
    let (mut outputs, mut errors) = (vec![], vec![]);
    for output in pool.try_outputs((0..90).map(|x| if x == 50 { Err("no") } else { Ok(x) })) {
        match output {
            Ok(y) => outputs.push(y),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(sorted(outputs).len(), 59);
    assert_eq!(errors.len(), 31);
    assert_eq!(errors.iter().filter(|error| error.is_input()).count(), 1);
    assert_eq!((pool.account().ok, pool.account().failed), (59, 31));
}

fn a_batch_that_fails_together_is_left_out_together(order: Order) {
    let builder =
        AnyOrderRunner::builder(together()).order(order).devices(1).on_error(OnError::Skip);
    let mut pool = builder.batch(Batch::of(4)).build().unwrap();
    assert_eq!(sorted(pool.run(0..12).unwrap()), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!((pool.account().ok, pool.account().failed), (8, 4));
    let failures = pool.failures();
    let first = failures.iter().find(|error| error.hook().is_some()).unwrap();
    assert_eq!(first.items(), [4, 5, 6, 7]);
    let others: Vec<_> = failures.iter().filter(|error| error.hook().is_none()).collect();
    assert_eq!(others.len(), 3);
    assert_eq!(others[0].to_string(), "item 5 failed in a batch with item 4");
    assert_eq!(pool.outputs(0..12).filter(|output| output.is_err()).count(), 4);
}

#[test]
fn ac4_one_bad_item_of_four_fails_alone_and_the_others_keep_their_results() {
    let echo = echo_failing_at(2);
    let calls = echo.calls();
    let builder =
        AnyOrderRunner::builder(echo).devices(1).on_error(OnError::Skip).batch(Batch::of(4));
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(0..4).unwrap(), [0, 1, 3]);
    assert_eq!(items(pool.failures()), [2]);
    assert_eq!(
        *calls.lock().unwrap(),
        [vec![0, 1, 2, 3], vec![0, 1], vec![2, 3], vec![2], vec![3]]
    );
}

fn a_limit_that_refuses_an_item_leaves_it_out(order: Order) {
    let builder = builder(echo(), order).batch(Batch::up_to(4));
    let mut pool =
        builder.max_batch_cost(50u64, |&x| x).window_memory(80u64, |&x| x, |&x| x).build().unwrap();
    let outputs = pool.run([1, 60, 2, 70, 3]).unwrap();
    assert_eq!(sorted(outputs), [1, 2, 3]);
    assert_eq!(items(pool.failures()), [1, 3]);
    assert_eq!((pool.account().ok, pool.account().failed), (3, 2));
}

fn too_many_failures_end_the_run(order: Order) {
    let mut pool = builder(fails_at_thirds(), order).max_failures(4).build().unwrap();
    assert_eq!(pool.run(0..12).unwrap().len(), 8, "four may fail");
    let error = pool.run(0..1_000).unwrap_err();
    let Error::TooManyFailures { failed, items, .. } = &error else { panic!("{error:#}") };
    assert_eq!((*failed, order == Order::Completion || *items == 13), (5, true), "{error:#}");
    assert!(error.source().unwrap().to_string().starts_with("producer_work failed for item"));
    assert_eq!(pool.account().failed, 5);

    let most = MaxFailures::share(0.2);
    let mut pool = builder(fails_at_thirds(), order).max_failures(most).build().unwrap();
    let error = pool.run(0..1_000_000).unwrap_err();
    let Error::TooManyFailures { items, .. } = error else { panic!("{error:#}") };
    // Judged at a failure. In order of completion many good items may come before that.
    assert!(items == 100 || (order == Order::Completion && items > 100), "{items}");
    let error = pool.run(0..12).unwrap_err();
    let says = "too many failures: 4 of 12 items; at most 20 % may fail";
    assert_eq!(error.to_string(), says, "judged at the end");
    let last = pool.outputs(0..12).last().unwrap().unwrap_err();
    assert_eq!(last.to_string(), says);
    assert!(pool.run([]).unwrap().is_empty());
}

#[test]
fn a_share_that_is_none_is_refused() {
    let builder =
        AnyOrderRunner::builder(Hooks::new()).devices(1).max_failures(MaxFailures::share(5.0));
    let error = builder.build().unwrap_err();
    assert_eq!(error.to_string(), "the share of max_failures must be between 0 and 1, got 5");
}

fn a_consumer_that_fails_ends_the_run(order: Order) {
    let failing = || Hooks::new().consume(|_, x| if x == 3 { Err("full".into()) } else { Ok(()) });
    let mut pool = builder(failing(), order).build().unwrap();
    let error = pool.run(0..9).unwrap_err();
    assert_eq!((error.item(), error.hook()), (Some(3), Some(Hook::ConsumerWork)));

    let tolerant =
        AnyOrderRunner::builder(failing()).order(order).devices(3).classify(|_| Verdict::Skip);
    let mut pool = tolerant.build().unwrap();
    assert_eq!(sorted(pool.run(0..9).unwrap()), [0, 1, 2, 4, 5, 6, 7, 8]);
    assert_eq!((pool.account().ok, pool.account().failed), (8, 1));

    let panicking = Hooks::new().consume(|_, x| {
        assert!(x != 3, "broken");
        Ok(())
    });
    let tolerant =
        AnyOrderRunner::builder(panicking).order(order).devices(3).classify(|_| Verdict::Skip);
    assert!(tolerant.build().unwrap().run(0..9).unwrap_err().is_panic(), "its state is broken");
}

#[test]
fn a_rule_tells_errors_apart() {
    let hooks = Hooks::new().work(|_, x| match x {
        3 => Err("harmless".into()),
        6 => Err("grave".into()),
        x => Ok(x),
    });
    let builder = AnyOrderRunner::builder(hooks).devices(2).classify(|error| {
        match error.source().unwrap().to_string().as_str() {
            "harmless" => Verdict::Skip,
            _ => Verdict::Stop,
        }
    });
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(0..9).unwrap_err().item(), Some(6));
    assert_eq!((pool.account().ok, pool.account().failed), (5, 2));
    assert_eq!(items(pool.failures()), [3], "also after an error");
}

#[test]
fn a_rule_that_panics_stops_the_run() {
    let builder =
        AnyOrderRunner::builder(fails_at_thirds()).devices(2).classify(|_| panic!("no idea"));
    let error = no_hang(move || builder.build().unwrap().run(1..9).unwrap_err());
    assert_eq!(error.item(), Some(2), "with the error that it was asked about");
    assert!(error.is_panic() && error.hook() == Some(Hook::ProducerWork), "{error:#}");
    let text = format!("{error:#}");
    assert!(
        text.starts_with("classifying an error panicked with \"no idea\": producer_work"),
        "{text}"
    );
}

#[test]
fn a_rule_that_panics_at_a_batch_or_an_input_is_told_of() {
    let squares =
        || map(|_| Ok(()), |_, (), x: u64| if x == 3 { Err("bad".into()) } else { Ok(x) });
    let builder = move || {
        AnyOrderRunner::builder(one_by_one(squares())).devices(1).classify(|_| panic!("no idea"))
    };
    let of_batch =
        no_hang(move || builder().batch(Batch::of(2)).build().unwrap().run(0..8).unwrap_err());
    let inputs = (0..8).map(|x| if x == 2 { Err("no such file") } else { Ok(x) });
    let of_input = no_hang(move || builder().build().unwrap().try_run(inputs).unwrap_err());
    assert_eq!((of_batch.item(), of_input.item()), (Some(3), Some(2)));
    assert!(of_input.is_input());
    for error in [of_batch, of_input] {
        assert!(format!("{error:#}").contains("no idea"), "{error:#}");
    }
}

fn a_consumer_that_is_told_may_fail_or_stop(order: Order) {
    for stops in [false, true] {
        let strict = Hooks::new()
            .work(|_, x| if x == 50 { Err("bad".into()) } else { Ok(x) })
            .skipped(move |cx| match stops {
                true => {
                    cx.stop();
                    Ok(())
                }
                false => Err("none may be left out".into()),
            });
        let mut pool = builder(strict, order).build().unwrap();
        let result = pool.run(0..100);
        assert_eq!(pool.account().failed, 1, "{:?}", pool.account());
        if stops {
            assert!(result.unwrap().len() <= 100);
        } else {
            let error = result.unwrap_err();
            assert_eq!((error.hook(), error.item()), (Some(Hook::ConsumerSkipped), Some(50)));
            assert_eq!(
                format!("{error:#}"),
                "consumer_skipped failed for item 50: none may be left out"
            );
        }
    }
}

fn a_panic_of_the_input_ends_the_run(order: Order) {
    let mut pool = builder(Hooks::new(), order).build().unwrap();
    let error = pool.run((0..9).inspect(|&x| assert!(x != 5, "broken"))).unwrap_err();
    assert!(error.is_input() && error.is_panic());
    assert_eq!((error.item(), pool.account().failed), (Some(5), 1));
}

fn a_state_that_cannot_be_made_anew_ends_the_run(order: Order) {
    let inits = Arc::new(AtomicU64::new(0));
    let hooks = Hooks::new()
        .init(move |_| match inits.fetch_add(1, SeqCst) {
            0 => Ok(()),
            _ => Err("worn out".into()),
        })
        .work(|_, x| {
            assert!(x != 4, "bad");
            Ok(x)
        });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).on_error(OnError::Skip);
    let mut pool = builder.build().unwrap();
    let error = pool.run(0..9).unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerInit), "{error:#}");
    assert_eq!(error.source().unwrap().to_string(), "worn out");
    let account = pool.account();
    // In order of completion an item that was skipped before may not be met any more.
    let expected = if order == Order::Input { 2..=2 } else { 1..=2 };
    assert!(expected.contains(&account.failed), "{account:?}");
    assert!(order == Order::Completion || account.ok == 4, "{account:?}");
}

#[test]
fn only_so_many_errors_are_kept() {
    let hooks = Hooks::new().work(|_, _| Err("bad".into()));
    let mut pool = builder(hooks, Order::Input).build().unwrap();
    assert!(pool.run(0..25_000).unwrap().is_empty());
    assert_eq!((pool.account().failed, pool.failures().len()), (25_000, 10_000));
    assert_eq!(pool.failures().last().unwrap().item(), Some(9_999));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A run in input order gives what is good and tells the rest, whatever the batches, and whichever
    /// way items fail.
    #[test]
    fn what_is_good_comes_through(
        kinds in proptest::collection::vec(0..6u8, 0..150),
        devices in 1usize..4,
        window in proptest::option::of(8usize..40),
        batch in proptest::option::of((1usize..8, any::<bool>())),
        padded in any::<bool>(),
        slow_calls in proptest::collection::vec(1u64..40, 0..3),
    ) {
        let script = slow_calls.iter().fold(Script::new(), |script, &call| script.fails_at(call));
        let fails_by_script = !slow_calls.is_empty();
        let count = kinds.len() as u64;
        let of = kinds.clone();
        let hooks = Hooks::new().work(move |_, x| match of[x as usize] {
            1 => Err("bad".into()),
            2 => panic!("bad"),
            _ => Ok(x),
        });
        let simulated = Simulated::new(hooks).on(0, script);
        let mut builder = AnyOrderRunner::builder(simulated).devices(devices).on_error(OnError::Skip);
        if let Some(window) = window {
            builder = builder.window(window);
        }
        if let Some((most, fixed)) = batch {
            builder = builder.batch(if fixed { Batch::of(most) } else { Batch::up_to(most) });
            if padded {
                builder = builder.max_padded_size(1_000u64, |&x| 1 + x % 50);
            }
        }
        let mut pool = builder.build().unwrap();
        let source = kinds.clone();
        let input = (0..count).map(move |x| if source[x as usize] == 3 { Err("no") } else { Ok(x) });
        let (outputs, account) = no_hang(move || (pool.try_run(input).unwrap(), pool.account()));
        let good: Vec<_> = (0..count).filter(|&x| !(1..=3).contains(&kinds[x as usize])).collect();
        prop_assert!(outputs.is_sorted());
        if fails_by_script {
            prop_assert!(outputs.iter().all(|x| good.contains(x)));
        } else {
            prop_assert_eq!(&outputs, &good);
        }
        prop_assert_eq!(account.ok, outputs.len() as u64);
        prop_assert_eq!(account.ok + account.failed, count);
        prop_assert_eq!(account.cancelled, 0);
    }
}

/// A stream that ended with an error is no input with a bad item.
#[test]
fn a_stream_that_ends_early_is_not_skipped_over() {
    let mut first = AnyOrderRunner::builder(Hooks::new()).devices(1).build().unwrap();
    first.close().unwrap();
    let mut second = builder(Hooks::new(), Order::Input).build().unwrap();
    let error = second.try_run(first.outputs(0..9)).unwrap_err();
    assert!(error.is_input(), "{error:#}");
    assert!(error.source().unwrap().to_string().contains("closed"));
}

#[test]
fn a_consumer_that_gives_up_at_a_cancel_is_not_left_out() {
    no_hang(|| {
        let stopping = |stops: bool| {
            let token = gangline::CancelToken::new();
            let cancelling = token.clone();
            let hooks = Hooks::new().consume(move |cx, _| {
                match stops {
                    true => cx.stop(),
                    false => cancelling.cancel(),
                }
                Err("gave up".into())
            });
            let builder = AnyOrderRunner::builder(hooks).devices(2).classify(|_| Verdict::Skip);
            let mut pool = builder.cancel_token(token).build().unwrap();
            (pool.run(0..9).unwrap_err(), pool.failures().len(), pool.account().failed)
        };
        let (error, kept, failed) = stopping(false);
        assert!(error.is_cancelled());
        assert_eq!((kept, failed), (0, 0));
        let (error, kept, failed) = stopping(true);
        assert_eq!((error.hook(), kept, failed), (Some(Hook::ConsumerWork), 0, 1));
    });
}

/// A million bad items in a row are no million messages, and no million places on a shelf.
#[test]
fn gaps_take_no_room() {
    no_hang(|| {
        let builder = builder(echo(), Order::Input).batch(Batch::of(2)).window(64);
        let mut pool = builder.max_padded_size(1_000u64, |&x| x).build().unwrap();
        let input =
            (0..200_000u64).map(|x| if x % 50_000 == 0 { Ok(1 + x % 7) } else { Err("no") });
        assert_eq!(pool.try_run(input).unwrap().len(), 4);
        assert_eq!(pool.account().failed, 199_996);
    });
}

#[test]
fn a_state_that_cannot_be_made_anew_ends_a_run_of_batches_too() {
    no_hang(|| {
        let inits = Arc::new(AtomicU64::new(0));
        let hooks = Hooks::new()
            .init(move |_| match inits.fetch_add(1, SeqCst) {
                0 | 1 => Ok(()),
                _ => Err("worn out".into()),
            })
            .work(|_, x| {
                assert!(x % 10 != 4, "bad");
                Ok(x)
            });
        let builder =
            AnyOrderRunner::builder(hooks).devices(2).on_error(OnError::Skip).batch(Batch::of(1));
        let error = builder.build().unwrap().run(0..1_000).unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerInit), "{error:#}");
    });
}

/// Without a rule for its type, a closure is a runner that skips like any other.
#[test]
fn closures_skip_too() {
    let parse = map(|_| Ok(()), |_, (), text: &str| Ok(text.parse::<u8>()?));
    let mut pool =
        AnyOrderRunner::builder(parse).devices(2).on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run(["1", "x", "3"]).unwrap(), [1, 3]);
}
