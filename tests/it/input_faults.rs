//! Inputs that panic, fail, block or lie about their length.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::{iter, thread};

use gangline::{AnyOrderRunner, Error, Hook, Order};

use crate::hooks::both_orders;
use crate::probe::{Item, Probe, check_afterwards, check_summary, output};
use crate::support::{Counter, Gate, map};

both_orders!(
    the_input_panics_at_any_item,
    the_input_panics_before_its_first_item,
    the_input_panics_while_the_consumer_waits,
    the_input_fails_at_any_item,
    the_consumer_stops_an_endless_input,
    an_input_that_blocks_is_left_when_it_returns,
    the_input_is_the_stream_of_another_runner,
    a_size_hint_that_lies_changes_no_result,
    a_size_hint_that_panics_changes_no_result,
    an_empty_input_calls_both_hooks_of_the_consumer,
    an_input_that_ended_is_not_asked_again,
    an_input_may_borrow_and_stay_on_its_thread,
);

/// The error is of the input, at `item`, with this cause.
#[track_caller]
fn check_input(error: &Error, item: u64, is_panic: bool, cause: &str) {
    assert!(error.is_input() && !error.is_cancelled() && !error.is_closed(), "{error:#}");
    assert_eq!(error.item(), Some(item), "{error:#}");
    assert_eq!(error.is_panic(), is_panic, "{error:#}");
    assert_eq!((error.hook(), error.device()), (None, None), "{error:#}");
    let text = format!("{error:#}");
    assert!(text.contains(&format!("item {item}")) && text.ends_with(cause), "{text}");
}

#[track_caller]
fn check_failed_input(runner: AnyOrderRunner<Probe>, bad: u64) {
    let tally = runner.runner().tally();
    assert_eq!(tally.pulled.get(), bad + 1);
    assert_eq!(runner.account().failed, 1);
    if runner.order() == Order::Input {
        assert_eq!(tally.seen(), (0..bad).collect::<Vec<_>>(), "all before it are consumed");
    }
    assert_eq!(tally.called(Hook::ConsumerEnd).get(), 0);
    check_afterwards(runner);
}

fn the_input_panics_at_any_item(order: Order) {
    for bad in [0, 7, 30] {
        let mut runner = Probe::new().on_three(order);
        let tally = runner.runner().tally();
        let input = tally.input_with(0..100, |item| assert!(item != bad, "no item {item}"));
        let error = runner.run(input).unwrap_err();
        check_input(&error, bad, true, &format!("no item {bad}"));
        check_failed_input(runner, bad);
    }
}

fn the_input_panics_before_its_first_item(order: Order) {
    struct Unwilling;
    impl IntoIterator for Unwilling {
        type Item = Item;
        type IntoIter = iter::Empty<Item>;
        fn into_iter(self) -> iter::Empty<Item> {
            panic!("no items at all");
        }
    }
    let mut runner = Probe::new().on_three(order);
    let error = runner.run(Unwilling).unwrap_err();
    check_input(&error, 0, true, "no items at all");
    assert_eq!(runner.account().failed, 1);
    let error = runner.outputs(Unwilling).next().unwrap().unwrap_err();
    check_input(&error, 0, true, "no items at all");
    let summary = runner.run(runner_input(&Probe::new())).unwrap();
    check_summary(summary, 0..5, order);
}

/// Five items that are counted elsewhere.
fn runner_input(of: &Probe) -> impl Iterator<Item = Item> + use<> {
    of.tally().input(0..5)
}

/// Everything before was consumed, so the consumer sleeps.
fn the_input_panics_while_the_consumer_waits(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    let consumed = tally.clone();
    let input = tally.input_with(0..100, move |item| {
        if item == 30 {
            consumed.succeeded(Hook::ConsumerWork).reach(30);
            panic!("no more");
        }
    });
    check_input(&runner.run(input).unwrap_err(), 30, true, "no more");
    assert_eq!(runner.account().ok, 30);
    check_failed_input(runner, 30);
}

fn the_input_fails_at_any_item(order: Order) {
    for bad in [0, 7, 30] {
        let mut runner = Probe::new().on_three(order);
        let tally = runner.runner().tally();
        let items = tally.input(0..100).enumerate().map(|(i, item)| match i as u64 == bad {
            true => Err(std::io::Error::other("torn line")),
            false => Ok(item),
        });
        let error = runner.try_run(items).unwrap_err();
        check_input(&error, bad, false, "torn line");
        let cause = std::error::Error::source(&error).unwrap();
        assert!(cause.is::<std::io::Error>());
        check_failed_input(runner, bad);
    }
}

fn the_consumer_stops_an_endless_input(order: Order) {
    for window in [1, 8, 64] {
        let consumed = Counter::new();
        let probe = Probe::new().on_consumer(Hook::ConsumerWork, move |cx| {
            if consumed.add(1) == 100 {
                cx.stop();
            }
            Ok(())
        });
        let mut runner = probe.on_three_within(window, order);
        let tally = runner.runner().tally();
        let summary = runner.run(tally.input(0..u64::MAX)).unwrap();
        assert_eq!(summary.len(), 100);
        if order == Order::Input {
            check_summary(summary, 0..100, order);
        }
        assert!(tally.pulled.get() <= 100 + window as u64, "{}", tally.pulled.get());
        assert_eq!((runner.account().ok, runner.account().failed), (100, 0));
        assert_eq!(tally.called(Hook::ConsumerEnd).get(), 1);
        check_afterwards(runner);
    }
}

/// The time that the input takes is not ours: the run ends as soon as it returns.
fn an_input_that_blocks_is_left_when_it_returns(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let (tally, token) = (runner.runner().tally(), runner.cancel_token());
    let (blocked, unblocked) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (enter, leave) = (blocked.clone(), unblocked.clone());
    let canceller = thread::spawn(move || {
        blocked.pass();
        token.cancel();
        unblocked.open();
    });
    let input = tally.input_with(0..1_000_000, move |item| {
        if item == 4 {
            enter.open();
            leave.pass();
        }
    });
    assert!(runner.run(input).unwrap_err().is_cancelled());
    canceller.join().unwrap();
    assert_eq!(tally.pulled.get(), 5, "none is pulled after the cancel");
    assert!(tally.called(Hook::ProducerWork).get() <= 4, "nor worked on");
    check_afterwards(runner);
}

fn the_input_is_the_stream_of_another_runner(order: Order) {
    let bad = 30;
    let mut first = AnyOrderRunner::builder(map(
        |_| Ok(()),
        move |_, _, x: u64| if x == bad { Err("it broke".into()) } else { Ok(x) },
    ))
    .devices(2)
    .order(order)
    .build()
    .unwrap();
    let mut second = AnyOrderRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(output(x))))
        .devices(2)
        .order(order)
        .build()
        .unwrap();
    let mut outputs = second.try_run(first.outputs(0..30)).unwrap();
    outputs.sort_unstable();
    assert_eq!(outputs, (0..30).map(output).collect::<Vec<_>>());
    let error = second.try_run(first.outputs(0..100)).unwrap_err();
    assert!(error.is_input());
    let cause = std::error::Error::source(&error).unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!((cause.hook(), cause.item()), (Some(Hook::ProducerWork), Some(bad)));
    if order == Order::Input {
        assert_eq!(error.item(), Some(bad));
        assert_eq!(first.account().ok, bad);
    }
    let mut outputs = second.try_run(first.outputs(0..30)).unwrap();
    outputs.sort_unstable();
    assert_eq!(outputs, (0..30).map(output).collect::<Vec<_>>(), "both work again");
}

struct Lying<I> {
    items: I,
    says: fn() -> (usize, Option<usize>),
}

impl<I: Iterator> Iterator for Lying<I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.items.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.says)()
    }
}

#[track_caller]
fn check_hint(says: fn() -> (usize, Option<usize>), order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    let summary = runner.run(Lying { items: tally.input(0..50), says }).unwrap();
    check_summary(summary, 0..50, order);
    assert_eq!(runner.account().ok, 50);
    let items = Lying { items: tally.input(0..50), says };
    let outputs = runner.outputs(items).map(|item| item.unwrap().value);
    assert_eq!(outputs.sum::<u64>(), (0..50).map(output).sum::<u64>());
    assert_eq!(runner.account().ok, 50);
    let fails = tally.input_with(0..50, |item| assert!(item < 20, "no more"));
    let error = runner.run(Lying { items: fails, says }).unwrap_err();
    check_input(&error, 20, true, "no more");
    runner.close().unwrap();
    tally.check_closed();
}

fn a_size_hint_that_lies_changes_no_result(order: Order) {
    check_hint(|| (0, None), order);
    check_hint(|| (0, Some(0)), order);
    check_hint(|| (7, Some(7)), order);
    check_hint(|| (9, Some(3)), order);
    check_hint(|| (usize::MAX, Some(usize::MAX)), order);
    check_hint(|| (usize::MAX, None), order);
}

fn a_size_hint_that_panics_changes_no_result(order: Order) {
    check_hint(|| panic!("how should I know"), order);
}

fn an_empty_input_calls_both_hooks_of_the_consumer(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    for runs in 1..=2 {
        assert_eq!(runner.run(tally.input(0..0)).unwrap(), []);
        assert_eq!(tally.called(Hook::ConsumerInit).get(), runs);
        assert_eq!(tally.called(Hook::ConsumerEnd).get(), runs);
    }
    assert_eq!(tally.called(Hook::ConsumerWork).get(), 0);
    assert!(runner.outputs(tally.input(0..0)).next().is_none());
    check_afterwards(runner);
}

fn an_input_that_ended_is_not_asked_again(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    // The probe's input says so when it is asked again.
    check_summary(runner.run(tally.input(0..40)).unwrap(), 0..40, order);
    let mut stream = runner.outputs(tally.input(0..40));
    assert_eq!(stream.by_ref().count(), 40);
    assert!((0..5).all(|_| stream.next().is_none()), "fused");
    drop(stream);
    assert_eq!(runner.account().ok, 40);
    assert_eq!(runner.account().unread, Some(0));
    runner.close().unwrap();
    tally.check_closed();
}

fn an_input_may_borrow_and_stay_on_its_thread(order: Order) {
    let mut runner = AnyOrderRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(output(x))))
        .devices(2)
        .order(order)
        .build()
        .unwrap();
    let (values, asked) = (vec![5, 6, 7], Rc::new(Cell::new(0)));
    let input = values.iter().inspect(|_| asked.set(asked.get() + 1)).copied();
    let mut outputs = runner.run(input).unwrap();
    outputs.sort_unstable();
    assert_eq!((outputs, asked.get()), (vec![16, 19, 22], 3));
}
