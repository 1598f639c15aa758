//! A catalogue of faults, group C: life cycle and concurrency, C8 to C15. The name of a test begins
//! with the number of the fault and says what is expected of it.
//!
//! Not here yet, since something is missing for it:
//!
//! - C13: time limits, which must not count the time in which the process is stopped.
//! - C14: producers in processes of their own.
//! - C15: progress and reports.
//!
//! C10 and C11, where threads run out: `process_ends`.

use std::sync::{Arc, Barrier};
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Hook, Order};

use crate::probe::{Probe, both_orders, check_afterwards, check_summary, three};
use crate::support::{Counter, Gate};

both_orders!(
    c8_cancelled_before_the_start,
    c8_cancelled_in_the_middle,
    c8_cancelled_after_the_end,
    c8_cancelled_from_any_hook,
    c8_cancelled_while_it_is_built,
    c8_finished_before_the_start,
    c8_finished_in_the_middle,
    c8_one_token_ends_two_runners,
    c9_cancelled_while_the_window_is_full,
    c9_cancelled_while_the_head_is_stuck,
    c9_cancelled_while_the_input_is_asked,
    c9_cancelled_while_the_consumer_is_at_work,
    c10_a_device_twice_is_two_producers,
    c10_no_device_is_an_error,
    c10_more_producers_than_items_and_than_cores,
    c12_a_window_of_nothing_is_an_error,
    c12_a_window_of_one_is_serial,
    c12_an_endless_window_takes_no_memory,
);

/// The next run works: a cancel is spent by what it ended.
#[track_caller]
fn check_cancelled(runner: AnyOrderRunner<Probe>, error: &gangline::Error) {
    assert!(error.is_cancelled(), "{error:#}");
    assert_eq!((error.hook(), error.item(), error.is_panic()), (None, None, false));
    let tally = runner.runner().tally();
    assert_eq!(runner.account().failed, 0);
    assert_eq!(tally.called(Hook::ConsumerEnd).get(), 0);
    check_afterwards(runner);
}

fn c8_cancelled_before_the_start(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    runner.cancel_token().cancel();
    let error = runner.run(tally.input(0..20)).unwrap_err();
    assert_eq!(tally.pulled.get(), 0);
    check_cancelled(runner, &error);

    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    runner.cancel_token().cancel();
    let error = runner.outputs(tally.input(0..20)).next().unwrap().unwrap_err();
    assert_eq!(tally.pulled.get(), 0);
    check_cancelled(runner, &error);
}

fn c8_cancelled_in_the_middle(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let (tally, token) = (runner.runner().tally(), runner.cancel_token());
    let consumed = tally.clone();
    let canceller = thread::spawn(move || {
        consumed.succeeded(Hook::ConsumerWork).reach(100);
        token.cancel();
    });
    let error = runner.run(tally.input(0..u64::MAX)).unwrap_err();
    canceller.join().unwrap();
    check_cancelled(runner, &error);
}

/// With nothing in progress it ends the next run, and only that.
fn c8_cancelled_after_the_end(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
    tally.check_account(runner.account());
    runner.cancel_token().cancel();
    runner.cancel_token().cancel();
    assert!(runner.cancel_token().is_cancelled());
    assert!(runner.run(tally.input(0..20)).unwrap_err().is_cancelled());
    check_afterwards(runner);
}

fn c8_cancelled_from_any_hook(order: Order) {
    for hook in [Hook::ProducerWork, Hook::ConsumerInit, Hook::ConsumerWork] {
        let token = CancelToken::new();
        let (ours, probe) = (token.clone(), Probe::new());
        let probe = match hook {
            Hook::ProducerWork => probe.on_producer(hook, move |cx| {
                if cx.item() == Some(10) {
                    ours.cancel();
                    assert!(cx.is_cancelled());
                }
                Ok(())
            }),
            _ => probe.on_consumer(hook, move |cx| {
                if cx.item().is_none_or(|item| item == 10) {
                    ours.cancel();
                    assert!(cx.is_cancelled());
                }
                Ok(())
            }),
        };
        let mut runner = AnyOrderRunner::builder(probe)
            .devices(three())
            .order(order)
            .cancel_token(token)
            .build()
            .unwrap();
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..1_000_000)).unwrap_err();
        if hook == Hook::ConsumerInit {
            assert_eq!(tally.pulled.get(), 0);
        }
        check_cancelled(runner, &error);
    }
}

fn c8_cancelled_while_it_is_built(order: Order) {
    let token = CancelToken::new();
    let (ours, cancelled) = (token.clone(), Arc::new(Gate::new()));
    let probe = Probe::new().on_producer(Hook::ProducerInit, move |cx| {
        if cx.producer() == 1 {
            ours.cancel();
            cancelled.open();
        }
        cancelled.pass();
        assert!(cx.is_cancelled());
        Ok(())
    });
    let tally = probe.tally();
    let builder = AnyOrderRunner::builder(probe).devices(three()).order(order);
    let error = builder.cancel_token(token.clone()).build().unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
    tally.check_closed();
    assert_eq!(tally.called(Hook::ProducerEnd).get(), 3);
    // It is spent: the same token builds another.
    let builder = AnyOrderRunner::builder(Probe::new()).devices(three()).order(order);
    check_afterwards_of_nothing(builder.cancel_token(token).build().unwrap());
}

fn check_afterwards_of_nothing(mut runner: AnyOrderRunner<Probe>) {
    let input = runner.runner().tally().input(0..0);
    assert_eq!(runner.run(input).unwrap(), []);
    check_afterwards(runner);
}

fn c8_finished_before_the_start(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    runner.cancel_token().drain();
    assert_eq!(runner.run(tally.input(0..20)).unwrap(), []);
    assert_eq!(tally.pulled.get(), 0);
    assert_eq!(tally.called(Hook::ConsumerEnd).get(), 1);
    check_afterwards(runner);
}

/// What was given out is still worked on and consumed.
fn c8_finished_in_the_middle(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let (tally, token) = (runner.runner().tally(), runner.cancel_token());
    let input = tally.input_with(0..1_000_000, move |item| {
        if item == 40 {
            token.drain();
        }
    });
    check_summary(runner.run(input).unwrap(), 0..41, order);
    assert_eq!(runner.account().cancelled, 0);
    check_afterwards(runner);
}

fn c8_one_token_ends_two_runners(order: Order) {
    let token = CancelToken::new();
    let both = Arc::new(Counter::new());
    let runners = [0, 1].map(|_| {
        let both = both.clone();
        let probe = Probe::new().on_consumer(Hook::ConsumerWork, move |cx| {
            if cx.item() == Some(5) {
                both.add(1);
            }
            Ok(())
        });
        let builder = AnyOrderRunner::builder(probe).devices(three()).order(order);
        builder.cancel_token(token.clone()).build().unwrap()
    });
    let threads = runners.map(|mut runner| {
        thread::spawn(move || {
            let tally = runner.runner().tally();
            let error = runner.run(tally.input(0..u64::MAX)).unwrap_err();
            check_cancelled(runner, &error);
        })
    });
    both.reach(2);
    token.cancel();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The consumer is at work, everything else waits: for credits, for items.
fn c9_cancelled_while_the_window_is_full(order: Order) {
    let gate = Arc::new(Gate::new());
    let probe = Probe::new();
    let tally = probe.tally();
    let wait = gate.clone();
    let probe = probe.on_consumer(Hook::ConsumerWork, move |_| {
        wait.pass();
        Ok(())
    });
    let mut runner = probe.on_three_within(8, order);
    let token = runner.cancel_token();
    let worked = tally.clone();
    let canceller = thread::spawn(move || {
        worked.succeeded(Hook::ProducerWork).reach(8);
        worked.called(Hook::ConsumerWork).reach(1);
        token.cancel();
        gate.open();
    });
    let error = runner.run(tally.input(0..1000)).unwrap_err();
    canceller.join().unwrap();
    assert_eq!((tally.pulled.get(), runner.account().ok), (8, 1));
    check_cancelled(runner, &error);
}

/// The consumer waits for item 0, which is at work; the window is full.
fn c9_cancelled_while_the_head_is_stuck(order: Order) {
    let gate = Arc::new(Gate::new());
    let wait = gate.clone();
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        if cx.item() == Some(0) {
            wait.pass();
        }
        Ok(())
    });
    let mut runner = probe.on_three_within(8, order);
    let (tally, token) = (runner.runner().tally(), runner.cancel_token());
    let worked = tally.clone();
    let canceller = thread::spawn(move || {
        worked.succeeded(Hook::ProducerWork).reach(7);
        token.cancel();
        gate.open();
    });
    let error = runner.run(tally.input(0..u64::MAX)).unwrap_err();
    canceller.join().unwrap();
    if order == Order::Input {
        assert_eq!((tally.pulled.get(), runner.account().ok), (8, 0));
    }
    check_cancelled(runner, &error);
}

fn c9_cancelled_while_the_input_is_asked(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let (tally, token) = (runner.runner().tally(), runner.cancel_token());
    let consumed = tally.clone();
    let input = tally.input_with(0..1000, move |item| {
        if item == 9 {
            consumed.succeeded(Hook::ConsumerWork).reach(9);
            token.cancel();
        }
    });
    let error = runner.run(input).unwrap_err();
    assert_eq!((tally.pulled.get(), runner.account().ok), (10, 9));
    check_cancelled(runner, &error);
}

fn c9_cancelled_while_the_consumer_is_at_work(order: Order) {
    let token = CancelToken::new();
    let cancels = token.clone();
    let probe = Probe::new().on_consumer(Hook::ConsumerWork, move |cx| {
        if cx.item() == Some(2) {
            thread::scope(|scope| scope.spawn(|| cancels.cancel()).join()).unwrap();
        }
        Ok(())
    });
    let builder = AnyOrderRunner::builder(probe).devices(three()).order(order).window(3);
    let mut runner = builder.cancel_token(token).build().unwrap();
    let tally = runner.runner().tally();
    let error = runner.run(tally.input(0..1000)).unwrap_err();
    if order == Order::Input {
        assert_eq!(runner.account().ok, 3, "the item that was being consumed counts");
    }
    check_cancelled(runner, &error);
}

fn c10_a_device_twice_is_two_producers(order: Order) {
    let both = Barrier::new(2);
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        assert_eq!(cx.device(), cx.devices().first().unwrap());
        if cx.item() < Some(2) {
            both.wait();
        }
        Ok(())
    });
    let mut runner =
        AnyOrderRunner::builder(probe).devices(["cpu", "cpu"]).order(order).build().unwrap();
    assert_eq!(runner.devices().len(), 2);
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
    assert_eq!(tally.called(Hook::ProducerInit).get(), 2);
    check_afterwards(runner);
}

fn c10_no_device_is_an_error(order: Order) {
    let probe = Probe::new();
    let tally = probe.tally();
    let error = AnyOrderRunner::builder(probe).devices(0).order(order).build().unwrap_err();
    assert!(matches!(error, gangline::Error::Devices { .. }), "{error:#}");
    assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
    assert!(AnyOrderRunner::builder(Probe::new()).devices("").order(order).build().is_err());
}

fn c10_more_producers_than_items_and_than_cores(order: Order) {
    let mut runner =
        AnyOrderRunner::builder(Probe::new()).devices(200).order(order).build().unwrap();
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..3)).unwrap(), 0..3, order);
    check_afterwards(runner);
    assert_eq!(tally.called(Hook::ProducerEnd).get(), 200);
}

fn c12_a_window_of_nothing_is_an_error(order: Order) {
    let probe = Probe::new();
    let tally = probe.tally();
    let error =
        AnyOrderRunner::builder(probe).devices(2).order(order).window(0).build().unwrap_err();
    assert!(
        matches!(error, gangline::Error::Build(gangline::error::BuildError::Window { .. })),
        "{error:#}"
    );
    assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
}

fn c12_a_window_of_one_is_serial(order: Order) {
    let mut runner = Probe::new().on_three_within(1, order);
    let tally = runner.runner().tally();
    let summary = runner.run(tally.input(0..100)).unwrap();
    check_summary(summary.clone(), 0..100, Order::Input);
    assert_eq!(tally.most_outstanding(), 1);
    check_afterwards(runner);
}

fn c12_an_endless_window_takes_no_memory(order: Order) {
    let mut runner = Probe::new().on_three_within(usize::MAX, order);
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..1000)).unwrap(), 0..1000, order);
    check_afterwards(runner);
}
