//! Runs that are cancelled at different moments: what is pulled, consumed and counted, and that the next run works.

use std::sync::Arc;
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Hook, Order};

use crate::hooks::both_orders;
use crate::probe::{Probe, check_afterwards, three};
use crate::support::{Counter, Gate};

both_orders!(
    cancelled_in_the_middle,
    cancelled_from_any_hook,
    one_token_ends_two_runners,
    cancelled_while_the_window_is_full,
    cancelled_while_the_head_is_stuck,
    cancelled_while_the_input_is_asked,
    cancelled_while_the_consumer_is_at_work,
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

fn cancelled_in_the_middle(order: Order) {
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

fn cancelled_from_any_hook(order: Order) {
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

fn one_token_ends_two_runners(order: Order) {
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
fn cancelled_while_the_window_is_full(order: Order) {
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
fn cancelled_while_the_head_is_stuck(order: Order) {
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

fn cancelled_while_the_input_is_asked(order: Order) {
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

fn cancelled_while_the_consumer_is_at_work(order: Order) {
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
