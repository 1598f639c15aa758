//! Outputs that end before the input does.

use std::sync::Arc;
use std::thread;

use gangline::{AnyOrderRunner, Order, Pipeline};

use crate::hooks::{Hooks, sorted};
use crate::rows::{Stage, orders};
use crate::support::{Counter, Gate, no_hang};

fn row(orders: &[Order]) -> [Stage; 2] {
    let stage = |order: Order| {
        AnyOrderRunner::builder(Hooks::new()).order(order).devices(2).window(4).build().unwrap()
    };
    [stage(orders[0]), stage(orders[1])]
}

/// All of it works as before, alone and together.
#[track_caller]
fn check_works([a, b]: &mut [Stage; 2]) {
    assert_eq!(sorted(a.run(0..9).unwrap()), (0..9).collect::<Vec<_>>());
    assert_eq!(sorted(b.run(0..9).unwrap()), (0..9).collect::<Vec<_>>());
    assert_eq!(
        sorted(Pipeline::new(&mut *a).then(&mut *b).run(0..99).unwrap()),
        (0..99).collect::<Vec<_>>()
    );
    assert_eq!(
        Pipeline::new(&mut *b).then(&mut *a).outputs(0..99).filter(Result::is_ok).count(),
        99
    );
}

#[test]
fn dropped_outputs_leave_nothing_behind() {
    no_hang(|| {
        for orders in orders(2) {
            for taken in [0, 1, 20] {
                let mut row = row(&orders);
                let [a, b] = &mut row;
                let mut both = Pipeline::new(&mut *a).then(&mut *b);
                assert_eq!(both.outputs(0..).take(taken).filter(Result::is_ok).count(), taken);
                let account = both.account();
                assert_eq!(account.ok, taken as u64);
                assert_eq!(account.failed, 0);
                drop(both);
                check_works(&mut row);
            }
        }
    });
}

#[test]
fn leaked_outputs_are_ended_by_the_next_run() {
    no_hang(|| {
        for orders in orders(2) {
            for taken in [0, 1, 20] {
                for alone in [true, false] {
                    let mut row = row(&orders);
                    let [a, b] = &mut row;
                    let mut both = Pipeline::new(&mut *a).then(&mut *b);
                    let mut outputs = both.outputs(0..);
                    (0..taken).for_each(|_| assert!(outputs.next().unwrap().is_ok()));
                    std::mem::forget(outputs);
                    if alone {
                        std::mem::forget(both);
                    } else {
                        assert_eq!(both.run(0..9).unwrap().len(), 9);
                        drop(both);
                    }
                    check_works(&mut row);
                }
            }
        }
    });
}

#[test]
fn pools_of_leaked_outputs_can_be_closed_and_dropped() {
    no_hang(|| {
        let mut row = row(&[Order::Input; 2]);
        let [a, b] = &mut row;
        let mut both = Pipeline::new(&mut *a).then(&mut *b);
        let mut outputs = both.outputs(0..);
        assert!(outputs.next().unwrap().is_ok());
        std::mem::forget(outputs);
        drop(both);
        let [mut a, b] = row;
        a.close().unwrap();
        drop(b);
        a.activate().unwrap();
        assert_eq!(a.run(0..9).unwrap().len(), 9);
    });
}

#[test]
fn a_cancel_ends_the_wait_for_a_result() {
    no_hang(|| {
        for orders in orders(2) {
            for stage in 0..2 {
                let begun = Arc::new(Counter::new());
                let mut row: [Stage; 2] = std::array::from_fn(|number| {
                    let begun = begun.clone();
                    let hooks = Hooks::new().work(move |cx, x| {
                        if number == 1 && x == 3 {
                            begun.add(1);
                            while !cx.is_cancelled() {
                                thread::yield_now();
                            }
                        }
                        Ok(x)
                    });
                    let builder = AnyOrderRunner::builder(hooks).order(orders[number]);
                    builder.devices(2).window(4).build().unwrap()
                });
                let token = row[stage].cancel_token();
                let waits = begun.clone();
                let canceller = thread::spawn(move || {
                    waits.reach(1);
                    token.cancel();
                });
                let [a, b] = &mut row;
                let last = Pipeline::new(&mut *a).then(&mut *b).outputs(0..).last().unwrap();
                assert!(last.unwrap_err().is_cancelled());
                canceller.join().unwrap();
                assert!(
                    Pipeline::new(&mut *a)
                        .then(&mut *b)
                        .outputs(10..20)
                        .all(|output| output.is_ok())
                );
            }
        }
    });
}

/// The drain comes while the caller waits for a result, with no room in the first stage.
#[test]
fn a_drain_wakes_the_caller() {
    no_hang(|| {
        let (begun, gate) = (Arc::new(Counter::new()), Arc::new(Gate::new()));
        let (begins, waits) = (begun.clone(), gate.clone());
        let slow = Hooks::new().work(move |_, x| {
            begins.add(1);
            waits.pass();
            Ok(x)
        });
        let a = AnyOrderRunner::builder(slow).devices(1).window(1).build().unwrap();
        let mut b = AnyOrderRunner::builder(Hooks::new()).devices(1).build().unwrap();
        let token = a.cancel_token();
        let drainer = thread::spawn(move || {
            begun.reach(1);
            token.drain();
            gate.open();
        });
        assert_eq!(a.then(&mut b).outputs(0..).filter(Result::is_ok).count(), 1);
        drainer.join().unwrap();
    });
}

#[test]
fn refused_outputs_are_one_error() {
    let mut row = row(&[Order::Input; 2]);
    row[1].close().unwrap();
    let [a, b] = &mut row;
    let mut both = Pipeline::new(a).then(b);
    let mut outputs = both.outputs(0..5);
    assert_eq!(outputs.size_hint(), (1, Some(1)));
    assert!(outputs.next().unwrap().unwrap_err().is_closed());
    assert!(outputs.next().is_none());
}
