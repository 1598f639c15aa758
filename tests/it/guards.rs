//! A guarded input that blocks ends with its token, and with its run.

use std::sync::Arc;
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Hook, Order};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Item, Probe, check_summary, three};
use crate::support::{Counter, no_hang};

both_orders!(
    a_guarded_input_that_blocks_ends_with_a_run_that_fails,
    a_guarded_input_that_blocks_ends_with_a_run_that_is_stopped,
    a_guarded_input_at_the_source_of_a_chain_ends_with_its_last_run,
    an_input_that_blocks_for_ever_is_left_by_its_guard,
    a_token_ends_guarded_inputs_again_and_again,
);

/// The token is never used, and the sender lives on.
fn a_guarded_input_that_blocks_ends_with_a_run_that_fails(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    sender.send(0).unwrap();
    let mut pool = Hooks::new().work(|_, _| Err("no".into())).pool(order, 2);
    let input = pool.cancel_token().guard(receiver);
    assert_eq!(pool.run(input).unwrap_err().item(), Some(0));
    drop(sender);
}

fn a_guarded_input_that_blocks_ends_with_a_run_that_is_stopped(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    sender.send(0).unwrap();
    let hooks = Hooks::new().consume(|cx, _| {
        cx.stop();
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let input = pool.cancel_token().guard(receiver);
    pool.run(input).unwrap();
    assert_eq!(pool.account().ok, 1);
    drop(sender);
}

fn a_guarded_input_at_the_source_of_a_chain_ends_with_its_last_run(order: Order) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    (0..3).for_each(|x| sender.send(x).unwrap());
    let mut first = Hooks::new().windowed(order, 1, 1);
    let mut last = Hooks::new().work(|_, _| Err("no".into())).pool(order, 1);
    let input = first.cancel_token().guard(receiver);
    let error = last.try_run(first.outputs(input)).unwrap_err();
    assert_eq!(error.item(), Some(0));
    drop(sender);
}

fn an_input_that_blocks_for_ever_is_left_by_its_guard(order: Order) {
    for finish in [false, true] {
        let token = CancelToken::new();
        let probe = Probe::new();
        let tally = probe.tally();
        let mut runner = AnyOrderRunner::builder(probe)
            .devices(three())
            .order(order)
            .cancel_token(token.clone())
            .build()
            .unwrap();
        let (sender, receiver) = crossbeam_channel::unbounded();
        for value in 0..5 {
            sender.send(Item::new(value, &tally.inputs)).unwrap();
        }
        let input = token.guard(receiver);
        let consumed = tally.clone();
        let ender = thread::spawn(move || {
            consumed.succeeded(Hook::ConsumerWork).reach(5);
            if finish { token.drain() } else { token.cancel() }
        });
        let result = runner.run(input);
        ender.join().unwrap();
        match finish {
            true => check_summary(result.unwrap(), 0..5, order),
            false => assert!(result.unwrap_err().is_cancelled()),
        }
        assert_eq!((runner.account().ok, runner.account().unread), (5, None));
        drop(sender);
        tally.check_run_is_over();
        runner.close().unwrap();
        tally.check_closed();
    }
}

/// The senders live on, and nothing else is sent.
#[test]
fn a_guarded_standard_channel_ends_with_its_token_and_with_a_run_that_fails() {
    no_hang(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(0).unwrap();
        let mut pool = Hooks::new().work(|_, _| Err("no".into())).pool(Order::Input, 2);
        let input = pool.cancel_token().guard(receiver);
        assert_eq!(pool.run(input).unwrap_err().item(), Some(0));

        let consumed = Arc::new(Counter::default());
        let counts = consumed.clone();
        let hooks = Hooks::new().consume(move |_, _| {
            counts.add(1);
            Ok(())
        });
        let mut pool = hooks.pool(Order::Input, 2);
        let token = pool.cancel_token();
        let (sender, receiver) = std::sync::mpsc::sync_channel(4);
        (0..3).for_each(|x| sender.send(x).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                consumed.reach(3);
                token.drain();
            });
            pool.run(token.guard(receiver)).unwrap();
        });
        assert_eq!((pool.account().ok, pool.account().cancelled), (3, 0));
    });
}

/// The senders live on, and the token wakes the feeder. That the input then ends does not hide a cancel.
fn a_token_ends_guarded_inputs_again_and_again(order: Order) {
    for drains in [false, true] {
        let consumed = Arc::new(Counter::new());
        let counts = consumed.clone();
        let hooks = Hooks::new().consume(move |_, _| {
            counts.add(1);
            Ok(())
        });
        let mut pool = hooks.pool(order, 2);
        let token = pool.cancel_token();
        for round in 1..=200 {
            let (sender, receiver) = crossbeam_channel::unbounded();
            let items = token.guard(receiver);
            (0..3).for_each(|x| sender.send(x).unwrap());
            let result = thread::scope(|scope| {
                scope.spawn(|| {
                    consumed.reach(3 * round);
                    if drains { token.drain() } else { token.cancel() }
                });
                pool.run(items)
            });
            match drains {
                true => assert_eq!(result.unwrap().len(), 3),
                false => assert!(result.is_err_and(|error| error.is_cancelled()), "round {round}"),
            }
            sender.send(9).expect_err("the guard is gone, and with it the receiver");
        }
        assert_eq!(pool.run(0..20).unwrap().len(), 20);
    }
}
