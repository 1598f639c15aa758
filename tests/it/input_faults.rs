//! A catalogue of faults, group B: the input. The name of a test begins with the number of the
//! fault and says what is expected of it.
//!
//! Not here yet, since something is missing for it:
//!
//! - B2 with errors that are skipped over: policies for errors.
//! - B4, as far as it is about processor time: a way to ask for that of one thread.
//! - B11: batches.

use std::cell::Cell;
use std::iter;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Error, Hook, Order, OrderedRunner};

use crate::probe::{
    Alive, Census, Item, Probe, both_orders, check_afterwards, check_summary, output, three,
};
use crate::support::{Counter, Gate, map};

both_orders!(
    b1_the_input_panics_at_any_item,
    b1_the_input_panics_before_its_first_item,
    b1_the_input_panics_while_the_consumer_waits,
    b2_the_input_fails_at_any_item,
    b3_the_consumer_stops_an_endless_input,
    b3_the_consumer_stops_before_anything_is_pulled,
    b4_results_flow_while_the_input_pauses,
    b5_an_input_that_blocks_for_ever_is_left_by_its_guard,
    b5_an_input_that_blocks_is_left_when_it_returns,
    b6_the_input_runs_another_runner,
    b6_the_input_is_the_stream_of_another_runner,
    b7_a_size_hint_that_lies_changes_no_result,
    b7_a_size_hint_that_panics_changes_no_result,
    b8_an_empty_input_calls_both_hooks_of_the_consumer,
    b9_items_whose_destructor_panics_are_dropped_quietly,
    b10_an_input_that_ended_is_not_asked_again,
    b10_an_input_may_borrow_and_stay_on_its_thread,
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

fn b1_the_input_panics_at_any_item(order: Order) {
    for bad in [0, 7, 30] {
        let mut runner = Probe::new().on_three(order);
        let tally = runner.runner().tally();
        let input = tally.input_with(0..100, |item| assert!(item != bad, "no item {item}"));
        let error = runner.run(input).unwrap_err();
        check_input(&error, bad, true, &format!("no item {bad}"));
        check_failed_input(runner, bad);
    }
}

fn b1_the_input_panics_before_its_first_item(order: Order) {
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
fn b1_the_input_panics_while_the_consumer_waits(order: Order) {
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

fn b2_the_input_fails_at_any_item(order: Order) {
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

fn b3_the_consumer_stops_an_endless_input(order: Order) {
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

fn b3_the_consumer_stops_before_anything_is_pulled(order: Order) {
    let probe = Probe::new().on_consumer(Hook::ConsumerInit, |cx| {
        cx.stop();
        Ok(())
    });
    let mut runner = probe.on_three(order);
    let tally = runner.runner().tally();
    assert_eq!(runner.run(tally.input(0..100)).unwrap(), []);
    assert_eq!(tally.pulled.get(), 0);
    assert_eq!(tally.called(Hook::ConsumerWork).get(), 0);
    check_afterwards(runner);
}

/// Each item is given only once the one before it was consumed.
fn b4_results_flow_while_the_input_pauses(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    let consumed = tally.clone();
    let input =
        tally.input_with(0..300, move |item| consumed.succeeded(Hook::ConsumerWork).reach(item));
    check_summary(runner.run(input).unwrap(), 0..300, order);
    check_afterwards(runner);
}

fn b5_an_input_that_blocks_for_ever_is_left_by_its_guard(order: Order) {
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

/// The time that the input takes is not ours: the run ends as soon as it returns.
fn b5_an_input_that_blocks_is_left_when_it_returns(order: Order) {
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

fn b6_the_input_runs_another_runner(order: Order) {
    let mut inner = Probe::new().on_three(order);
    let mut outer = Probe::new().on_three(order);
    let (inner_tally, tally) = (inner.runner().tally(), outer.runner().tally());
    let input = tally.input_with(0..20, |item| {
        let summary = inner.run(inner_tally.input(item..item + 5)).unwrap();
        check_summary(summary, item..item + 5, order);
    });
    check_summary(outer.run(input).unwrap(), 0..20, order);
    check_afterwards(outer);
    inner.close().unwrap();
    inner_tally.check_closed();
}

fn b6_the_input_is_the_stream_of_another_runner(order: Order) {
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

fn b7_a_size_hint_that_lies_changes_no_result(order: Order) {
    check_hint(|| (0, None), order);
    check_hint(|| (0, Some(0)), order);
    check_hint(|| (7, Some(7)), order);
    check_hint(|| (9, Some(3)), order);
    check_hint(|| (usize::MAX, Some(usize::MAX)), order);
    check_hint(|| (usize::MAX, None), order);
}

fn b7_a_size_hint_that_panics_changes_no_result(order: Order) {
    check_hint(|| panic!("how should I know"), order);
}

fn b8_an_empty_input_calls_both_hooks_of_the_consumer(order: Order) {
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

/// An item with a destructor that panics, unless it was worked on.
struct Grenade {
    value: u64,
    is_armed: bool,
    _alive: Alive,
}

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(!self.is_armed || thread::panicking(), "an item that nobody wants");
    }
}

/// The inputs that were given out, and the outputs that were not consumed, all panic when dropped.
fn b9_items_whose_destructor_panics_are_dropped_quietly(order: Order) {
    let census = Arc::<Census>::default();
    let worked = Arc::new(Counter::new());
    let count = worked.clone();
    let work = map(
        |_| Ok(()),
        move |_, _, mut item: Grenade| {
            count.add(1);
            if item.value == 20 {
                item.is_armed = false;
                return Err("it broke".into());
            }
            Ok(item)
        },
    );
    let runner = work.fold(
        |_| Ok(0),
        move |_, sum: &mut u64, mut item: Grenade| {
            item.is_armed = false;
            *sum += item.value;
            if item.value == 10 {
                worked.reach(12);
                return Err("enough".into());
            }
            Ok(())
        },
    );
    let mut runner =
        AnyOrderRunner::builder(runner).devices(3).order(order).window(24).build().unwrap();
    let grenades = |values: std::ops::Range<u64>| {
        let census = census.clone();
        values.map(move |value| Grenade { value, is_armed: true, _alive: Alive::new(&census) })
    };
    for _ in 0..3 {
        let error = runner.run(grenades(0..100)).unwrap_err();
        assert!(error.hook().is_some() && !error.is_panic(), "{error:#}");
        assert_eq!(census.alive(), 0, "all are dropped");
        assert_eq!(runner.run(grenades(0..10)).unwrap(), 45, "the runner works again");
    }
    let mut stream = runner.outputs(grenades(0..15));
    let mut first = stream.next().unwrap().unwrap();
    first.is_armed = false;
    drop(stream);
    drop(first);
    assert_eq!(census.alive(), 0, "all are dropped");
    runner.close().unwrap();
}

fn b10_an_input_that_ended_is_not_asked_again(order: Order) {
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

fn b10_an_input_may_borrow_and_stay_on_its_thread(order: Order) {
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

/// A panic of an input's destructor is no reason to lose the results.
#[test]
fn b9_an_input_whose_destructor_panics_changes_no_result() {
    struct Clingy(std::ops::Range<u64>);
    impl Iterator for Clingy {
        type Item = u64;
        fn next(&mut self) -> Option<u64> {
            self.0.next()
        }
    }
    impl Drop for Clingy {
        fn drop(&mut self) {
            assert!(thread::panicking(), "I was not finished");
        }
    }
    let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2).unwrap();
    assert_eq!(runner.run(Clingy(0..5)).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(runner.run(0..2).unwrap(), [0, 1]);
}
