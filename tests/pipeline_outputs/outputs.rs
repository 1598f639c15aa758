//! What comes out, and what is pulled meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{AnyOrderRunner, Hook, OnError, Pipeline};
use gangline::{Batch, Order, map_batches};

use crate::hooks::{Hooks, sorted};
use crate::rows::{Stage, failing, orders, skipping};
use crate::support::{Gate, no_hang};

fn stage(hooks: Hooks, order: Order, window: usize) -> Stage {
    AnyOrderRunner::builder(hooks).order(order).devices(2).window(window).build().unwrap()
}

fn plus(n: u64) -> Hooks {
    Hooks::new().work(move |_, x| Ok(x + n))
}

#[test]
fn outputs_are_those_of_a_run() {
    no_hang(|| {
        for orders in orders(3) {
            let is_ordered = orders.iter().all(|order| *order == Order::Input);
            for windows in [[1, 1, 1], [1, 7, 2], [64, 3, 64]] {
                let a = stage(plus(1), orders[0], windows[0]);
                let mut b = stage(plus(10), orders[1], windows[1]);
                let mut c = stage(plus(100), orders[2], windows[2]);
                let mut row = a.then(&mut b).then(&mut c);
                for items in [0, 1, 300] {
                    let seen: Vec<u64> = row.outputs(0..items).map(Result::unwrap).collect();
                    let seen = if is_ordered { seen } else { sorted(seen) };
                    assert_eq!(seen, (0..items).map(|x| x + 111).collect::<Vec<_>>());
                    let account = row.account();
                    assert_eq!((account.ok, account.cancelled), (items, 0));
                    assert_eq!(account.unread, Some(0));
                }
            }
        }
    });
}

#[test]
fn no_consumer_is_asked() {
    let silent = || {
        Hooks::new()
            .consumer_init(|_| panic!("no consumer"))
            .consume(|_, _| panic!("no consumer"))
            .consumer_end(|_| panic!("no consumer"))
    };
    let (a, mut b) = (stage(silent(), Order::Input, 4), stage(silent(), Order::Input, 4));
    assert_eq!(a.then(&mut b).outputs(0..50).filter(Result::is_ok).count(), 50);
}

/// In the second stage the first item waits for the second, for which the first stage has room only then.
#[test]
fn the_input_is_pulled_while_the_caller_waits_for_a_result() {
    no_hang(|| {
        for orders in orders(2) {
            let gate = Arc::new(Gate::new());
            let waits = Hooks::new().work(move |_, x| {
                match x {
                    0 => gate.pass(),
                    _ => gate.open(),
                }
                Ok(x)
            });
            let a = stage(Hooks::new(), orders[0], 1);
            let mut b = stage(waits, orders[1], 2);
            let seen: Vec<u64> = a.then(&mut b).outputs(0..20).map(Result::unwrap).collect();
            assert_eq!(sorted(seen), (0..20).collect::<Vec<_>>());
        }
    });
}

#[test]
fn batches_of_later_stages_may_be_larger_than_earlier_windows() {
    no_hang(|| {
        for orders in orders(2) {
            let most = Arc::new(AtomicU64::new(0));
            let seen_by = most.clone();
            let batched = map_batches(
                |_| Ok(()),
                move |_, (), xs: &mut Vec<u64>| {
                    seen_by.fetch_max(xs.len() as u64, SeqCst);
                    Ok(xs.drain(..).map(Ok).collect())
                },
            );
            let a = stage(Hooks::new(), orders[0], 1);
            let b = AnyOrderRunner::builder(batched).order(orders[1]).devices(2);
            let mut b = b.batch(Batch::of(4)).window(8).build().unwrap();
            let seen: Vec<u64> = a.then(&mut b).outputs(0..101).map(Result::unwrap).collect();
            assert_eq!(sorted(seen), (0..101).collect::<Vec<_>>());
            assert_eq!(most.load(SeqCst), 4, "whole batches come, however narrow the stage before");
        }
    });
}

#[test]
fn no_more_is_pulled_than_the_windows_hold() {
    no_hang(|| {
        let pulled = AtomicU64::new(0);
        let a = stage(Hooks::new(), Order::Input, 3);
        let mut b = stage(Hooks::new(), Order::Input, 2);
        let mut row = a.then(&mut b);
        let items = (0..).inspect(|_| _ = pulled.fetch_add(1, SeqCst));
        let mut outputs = row.outputs(items);
        assert_eq!(pulled.load(SeqCst), 0, "nothing before the first `next`");
        for taken in 1..100 {
            assert!(outputs.next().unwrap().is_ok());
            assert!(pulled.load(SeqCst) <= taken + 5, "{pulled:?} for {taken}");
        }
    });
}

#[test]
fn a_failure_comes_out_in_its_place_whichever_stage_failed() {
    no_hang(|| {
        for failed in 0..3 {
            let row: Vec<Stage> = (0..3)
                .map(|number| stage(failing(move |x| number == failed && x == 7), Order::Input, 5))
                .collect();
            let [mut a, mut b, mut c] = row.try_into().unwrap();
            let mut row = Pipeline::new(&mut a).then(&mut b).then(&mut c);
            let mut outputs = row.outputs(0..50);
            let before: Vec<u64> = outputs.by_ref().take(7).map(Result::unwrap).collect();
            assert_eq!(before, (0..7).collect::<Vec<_>>());
            let error = outputs.next().unwrap().unwrap_err();
            assert_eq!((error.item(), error.hook()), (Some(7), Some(Hook::ProducerWork)));
            assert!(outputs.next().is_none() && outputs.next().is_none());
            drop(outputs);
            let account = row.account();
            assert_eq!((account.ok, account.failed), (7, 1));
            assert!(row.report().to_string().contains("failed after"));
            drop(row);
            let failures = [a.account().failed, b.account().failed, c.account().failed];
            assert_eq!(failures, std::array::from_fn(|number| u64::from(number == failed)));
        }
    });
}

#[test]
fn a_skipped_item_is_an_error_in_between() {
    no_hang(|| {
        for failed in 0..2 {
            let row: Vec<Stage> = (0..2)
                .map(|number| {
                    let hooks = failing(move |x| number == failed && x % 5 == 0);
                    skipping(hooks, Order::Input).build().unwrap()
                })
                .collect();
            let [a, mut b] = row.try_into().unwrap();
            let mut row = a.then(&mut b);
            let seen: Vec<Result<u64, _>> = row.outputs(0..20).collect();
            assert_eq!(seen.len(), 20);
            for (x, result) in (0..).zip(seen) {
                match result {
                    Ok(y) => assert_eq!(y, x),
                    Err(error) => assert_eq!((error.item(), x % 5), (Some(x), 0)),
                }
            }
            assert_eq!((row.account().ok, row.account().failed), (16, 4));
        }
    });
}

#[test]
fn too_many_failures_end_it() {
    no_hang(|| {
        let a = skipping(failing(|x| x % 2 == 0), Order::Input).build().unwrap();
        let b = AnyOrderRunner::builder(failing(|x| x % 2 == 1)).on_error(OnError::Skip);
        let mut b = b.devices(1).max_failures(3_u64).build().unwrap();
        let seen: Vec<_> = a.then(&mut b).outputs(0..100).collect();
        let error = seen.last().unwrap().as_ref().unwrap_err();
        assert!(error.to_string().contains("at most 3 may fail"), "{error}");
        assert!(seen.len() < 12, "{}", seen.len());
    });
}
