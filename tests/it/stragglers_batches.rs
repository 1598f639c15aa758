//! Batches that a slow producer has, started on another too.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Batch, Builder, Error, OnError, Order, ProducerContext, Result};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

type Outputs = Result<Vec<Result<u64>>>;

/// Two producers, batches of four, and room for two of them. What holds item 1 does as `held` says, by how many
/// calls did before.
fn pool<F>(order: Order, held: F) -> AnyOrderRunner<Hooks>
where
    F: Fn(u64, &ProducerContext<'_>, &mut Vec<u64>) -> Outputs + Send + Sync + 'static,
{
    builder(doubler(held), order).build().unwrap()
}

fn builder(doubler: Hooks, order: Order) -> Builder<Hooks, RuntimeOrder> {
    let builder =
        AnyOrderRunner::builder(doubler).order(order).devices(2).window(8).batch(Batch::of(4));
    builder.on_error(OnError::Skip).speculate()
}

fn doubler<F>(held: F) -> Hooks
where
    F: Fn(u64, &ProducerContext<'_>, &mut Vec<u64>) -> Outputs + Send + Sync + 'static,
{
    let calls = AtomicU64::new(0);
    Hooks::new().by_batch(move |cx, inputs| match inputs.contains(&1) {
        true => held(calls.fetch_add(1, SeqCst), cx, inputs),
        false => doubled(inputs),
    })
}

fn doubled(inputs: &[u64]) -> Outputs {
    Ok(inputs.iter().map(|x| Ok(2 * x)).collect())
}

fn sorted(mut all: Vec<u64>) -> Vec<u64> {
    all.sort_unstable();
    all
}

fn evens(but: &[u64]) -> Vec<u64> {
    (0..40).filter(|x| !but.contains(x)).map(|x| 2 * x).collect()
}

#[test]
fn a_batch_that_is_stuck_is_started_elsewhere_and_the_run_does_not_wait() {
    no_hang(|| {
        for order in [Order::Input, Order::Completion] {
            let gate = Arc::new(Gate::new());
            let stuck = gate.clone();
            let mut pool = pool(order, move |call, _, inputs| {
                if call == 0 {
                    stuck.pass();
                }
                doubled(inputs)
            });
            assert_eq!(sorted(pool.run(0..40).unwrap()), evens(&[]), "each once");
            assert_eq!(pool.account().ok, 40);
            assert_eq!(pool.run(100..120).unwrap().len(), 20, "the other goes on without it");
            gate.open();
            pool.close().unwrap();
        }
    });
}

#[test]
fn a_batch_that_has_lost_is_told_so_while_the_run_goes_on() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (told, is_told) = (gate.clone(), gate);
        let doubler = doubler(move |call, cx, inputs| {
            while call == 0 && !cx.is_cancelled() {
                std::thread::yield_now();
            }
            if call == 0 {
                told.open();
                inputs.clear();
                return Err("it gives up, and nobody asks why".into());
            }
            doubled(inputs)
        });
        let mut pool = builder(doubler, Order::Input).build().unwrap();
        // The run ends only when it is told.
        let inputs = (0..41).inspect(move |&x| {
            if x == 40 {
                is_told.pass();
            }
        });
        assert_eq!(pool.run(inputs).unwrap().len(), 41);
        assert_eq!((pool.account().failed, pool.failures().len()), (0, 0));
    });
}

#[test]
fn the_rest_of_a_batch_that_was_split_is_not_kept_by_a_producer_that_is_stuck() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let mut pool = pool(Order::Input, move |call, _, inputs| match call {
            0 => Err("as a whole".into()),
            1 => {
                stuck.pass();
                doubled(inputs)
            }
            _ => doubled(inputs),
        });
        assert_eq!(pool.run(0..40).unwrap(), evens(&[]));
        gate.open();
        pool.close().unwrap();
    });
}

/// The helper fails the first batch, alone or not: as a whole and then each item by itself, or together where it has
/// taken the inputs. Until then the slow one waits, and fails them the same way if it is to.
fn failing(takes_inputs: bool, is_ok: impl Fn(Who, u32) -> bool + Send + Sync + 'static) -> Hooks {
    let (gate, slow) = (Gate::new(), OnceLock::new());
    Hooks::new().by_batch(move |cx, inputs| {
        if inputs[0] > 3 {
            return doubled(inputs);
        }
        let is_first = slow.set(cx.producer()).is_ok();
        if is_first {
            gate.pass();
        }
        let who = if slow.get() == Some(&cx.producer()) { Who::Slow } else { Who::Helper };
        if is_ok(who, cx.attempt()) {
            return doubled(inputs);
        }
        if takes_inputs || inputs[0] == 3 {
            gate.open();
        }
        if takes_inputs {
            inputs.clear();
        }
        Err("it fails".into())
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Slow,
    Helper,
}

#[test]
fn an_error_of_one_copy_of_a_batch_counts_only_when_the_other_fails_too() {
    no_hang(|| {
        for (both, takes_inputs) in [(false, true), (true, true), (false, false), (true, false)] {
            let doubler = failing(takes_inputs, move |who, _| who == Who::Slow && !both);
            let mut pool = builder(doubler, Order::Input).build().unwrap();
            let failed: &[u64] = if both { &[0, 1, 2, 3] } else { &[] };
            assert_eq!(pool.run(0..40).unwrap(), evens(failed), "{both} {takes_inputs}");
            assert_eq!(pool.failures().len(), failed.len());
            assert_eq!(pool.account().failed, failed.len() as u64);
        }
    });
}

#[test]
fn what_both_have_failed_of_a_batch_is_tried_again() {
    no_hang(|| {
        for takes_inputs in [false, true] {
            let doubler = failing(takes_inputs, |_, attempt| attempt > 1);
            let mut pool = builder(doubler, Order::Input).retries(1).build().unwrap();
            assert_eq!(pool.run(0..40).unwrap(), evens(&[]));
        }
    });
}

#[test]
fn what_the_helper_cannot_do_is_left_to_the_one_that_is_slow() {
    no_hang(|| {
        for is_cancelled in [false, true] {
            let gate = Arc::new(Gate::new());
            let mut pool = pool(Order::Input, move |call, cx, inputs| {
                if call == 0 {
                    gate.pass();
                    assert!(!cx.is_cancelled(), "item 2 is nobody else's");
                    return match is_cancelled {
                        false => doubled(inputs),
                        true => Err("as a whole".into()),
                    };
                }
                let outputs = inputs.iter().map(|&x| match x {
                    2 if inputs.len() > 1 => Err("not here".into()),
                    _ => Ok(2 * x),
                });
                let outputs = outputs.collect();
                gate.open();
                Ok(outputs)
            });
            assert_eq!(pool.run(0..40).unwrap(), evens(&[]));
            assert_eq!(pool.account().failed, 0);
        }
    });
}

#[test]
fn a_batch_that_has_lost_and_is_abandoned_fails_no_item() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let doubler = doubler(move |call, _, inputs| {
            if call == 0 {
                stuck.pass();
            }
            doubled(inputs)
        });
        let mut pool = builder(doubler, Order::Input)
            .item_timeout(Duration::from_secs(1))
            .min_producers(2)
            .build()
            .unwrap();
        // Without an end: the run goes on until the first producer is abandoned.
        let error = pool.run(0..).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 1, source: None, .. }), "{error:#}");
        assert_eq!(pool.account().failed, 0, "the other was done with them");
        gate.open();
    });
}

/// Two producers at the batch [0, 1]: what the slow one does with it when the helper, which was done with item 0 and
/// could not do item 1, has returned.
fn partly_won<F>(slow: F) -> Hooks
where
    F: Fn(&mut Vec<u64>) -> Outputs + Send + Sync + 'static,
{
    let (first, gate) = (OnceLock::new(), Gate::new());
    let is_won = Gate::new();
    Hooks::new().by_batch(move |cx, inputs| {
        if first.set(cx.producer()).is_ok() {
            gate.pass();
            return slow(inputs);
        }
        match inputs.contains(&0) {
            true => {
                gate.open();
                Ok(inputs.iter().map(|&x| if x == 0 { Ok(0) } else { Err("no".into()) }).collect())
            }
            false => {
                is_won.open();
                doubled(inputs)
            }
        }
    })
}

#[test]
fn a_batch_that_fails_when_some_of_it_is_won_names_the_rest_alone() {
    no_hang(|| {
        for on_error in [OnError::Skip, OnError::Stop] {
            let doubler = partly_won(|inputs| {
                // The helper delivers what it came to.
                std::thread::sleep(Duration::from_millis(100));
                inputs.clear();
                Err("it fails".into())
            });
            let builder = builder(doubler, Order::Input).batch(Batch::of(2)).window(4);
            let mut pool =
                builder.on_error(on_error).key(|x: &u64| format!("key {x}")).build().unwrap();
            let (result, report) = pool.run_with_report(0..2);
            assert_eq!((report.account.ok, report.account.failed), (1, 1));
            let failure = &report.failures[0];
            assert_eq!((failure.item, failure.key.as_deref()), (Some(1), Some("key 1")));
            assert_eq!(result.is_ok(), on_error == OnError::Skip);
        }
    });
}

#[test]
fn a_batch_that_takes_too_long_when_some_of_it_is_won_names_the_rest_alone() {
    no_hang(|| {
        let stuck = Arc::new(Gate::new());
        let until = stuck.clone();
        let doubler = partly_won(move |inputs| {
            until.pass();
            doubled(inputs)
        });
        let builder = builder(doubler, Order::Input).batch(Batch::of(2)).window(4);
        let limit = Duration::from_secs(1);
        let mut pool = builder.on_error(OnError::Stop).item_timeout(limit).build().unwrap();
        let error = pool.run(0..2).unwrap_err();
        assert_eq!((error.is_timeout(), error.item()), (true, Some(1)), "{error:#}");
        assert_eq!((pool.account().ok, pool.account().failed), (1, 1));
        stuck.open();
    });
}

#[test]
fn what_was_put_off_for_a_call_that_has_lost_is_not_waited_for() {
    no_hang(|| {
        let (slow, stuck) = (OnceLock::new(), Arc::new(Gate::new()));
        let (helps, is_in_part, until) = (Gate::new(), Gate::new(), stuck.clone());
        let doubler = Hooks::new().by_batch(move |cx, inputs| {
            let _ = slow.set(cx.producer());
            let is_slow = slow.get() == Some(&cx.producer());
            match (is_slow, &inputs[..]) {
                (true, [0, 1]) => helps.pass(),
                (false, [0, 1]) => helps.open(),
                (true, [0]) => {
                    is_in_part.open();
                    until.pass();
                    return doubled(inputs);
                }
                (false, [0]) => {
                    is_in_part.pass();
                    return doubled(inputs);
                }
                _ => {}
            }
            Err("item 1 is nobody's".into())
        });
        let builder = builder(doubler, Order::Input).devices(3).batch(Batch::of(2)).window(4);
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(0..2).unwrap(), [0], "while the slow one is stuck");
        assert_eq!(pool.account().failed, 1);
        stuck.open();
    });
}

#[test]
fn an_item_that_both_producers_have_handed_on_is_tried_and_counts() {
    no_hang(|| {
        let (inits, starts) = ([const { AtomicU64::new(0) }; 3], [const { AtomicU64::new(0) }; 3]);
        let (is_first, helps, gone) = (OnceLock::new(), Gate::new(), Arc::new(Counter::new()));
        let (are_gone, begun) = (gone.clone(), Arc::new(Gate::new()));
        let begins = begun.clone();
        let hooks = Hooks::new()
            .init(move |cx| match inits[cx.producer()].fetch_add(1, SeqCst) {
                0 => Ok(()),
                _ => {
                    gone.add(1);
                    Err("the device is gone".into())
                }
            })
            .work(move |cx, x| match x {
                0 => {
                    assert_eq!(
                        starts[cx.producer()].fetch_add(1, SeqCst),
                        0,
                        "by itself it panics"
                    );
                    match is_first.set(cx.producer()) {
                        Ok(()) => {
                            begins.open();
                            helps.pass();
                        }
                        Err(_) => helps.open(),
                    }
                    Err("as a whole".into())
                }
                1 => Err("bad".into()),
                2 => {
                    // Until both have handed item 1 on.
                    are_gone.reach(2);
                    std::thread::sleep(Duration::from_millis(100));
                    Ok(x)
                }
                _ => Ok(x),
            });
        let builder = AnyOrderRunner::builder(hooks).devices(3).window(6).batch(Batch::of(2));
        let mut pool = builder.on_error(OnError::Skip).speculate().build().unwrap();
        // Otherwise the third producer may find the batch of 2 slow first, and copy that.
        let items = (0..4).inspect(|&x| {
            if x == 2 {
                begun.pass();
            }
        });
        assert_eq!(pool.run(items).unwrap(), [2, 3]);
        assert_eq!(pool.account().failed, 2);
    });
}
