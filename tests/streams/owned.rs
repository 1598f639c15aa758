//! Outputs that own their pool.

use std::sync::Arc;
use std::sync::mpsc::channel;

use gangline::{AnyOrderRunner, CancelToken, Error, OnError, Order, OrderedRunner};

use crate::hooks::{Gauge, Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    they_are_those_of_outputs,
    producers_start_before_the_first_is_asked_for,
    items_in_flight_never_exceed_the_window,
    a_source_that_pauses_delays_no_result,
    dropping_them_ends_the_producers,
    dropping_them_does_not_wait_for_a_source_that_blocks,
    the_pool_comes_back,
    a_source_that_panics_is_the_last_error,
    a_failed_item_is_the_last_error,
    a_skipped_item_is_an_error_among_others,
    a_cancel_is_the_last_error,
    everything_is_accounted_for,
);

fn they_are_those_of_outputs(order: Order) {
    let outputs = Hooks::new().work(|_, x| Ok(2 * x)).pool(order, 3).into_outputs(0..1000);
    let outputs: Vec<u64> = outputs.map(Result::unwrap).collect();
    if order == Order::Input {
        assert!(outputs.is_sorted());
    }
    assert_eq!(sorted(outputs), (0..1000).map(|x| 2 * x).collect::<Vec<_>>());
}

fn producers_start_before_the_first_is_asked_for(order: Order) {
    let begun = Arc::new(Counter::new());
    let begins = begun.clone();
    let hooks = Hooks::new().work(move |_, x| {
        begins.add(1);
        Ok(x)
    });
    let outputs = hooks.windowed(order, 2, 6).into_outputs(0..100);
    begun.reach(6);
    assert_eq!(outputs.count(), 100);
}

fn items_in_flight_never_exceed_the_window(order: Order) {
    let gauge = Gauge::default();
    let reading = gauge.clone();
    let items = (0..200_u64).inspect(move |_| reading.up());
    let mut outputs = Hooks::new().windowed(order, 2, 5).into_outputs(items);
    while outputs.next().is_some() {
        gauge.down();
    }
    assert!(gauge.most() <= 5, "{}", gauge.most());
}

fn a_source_that_pauses_delays_no_result(order: Order) {
    let (sender, items) = channel();
    let mut outputs = Hooks::new().pool(order, 1).into_outputs(items);
    for x in 0..10 {
        sender.send(x).unwrap();
        assert_eq!(outputs.next().unwrap().unwrap(), x, "the source still waits for the next");
    }
    drop(sender);
    assert!(outputs.next().is_none() && outputs.next().is_none());
}

fn dropping_them_ends_the_producers(order: Order) {
    let ended = Arc::new(Counter::new());
    let ends = ended.clone();
    let hooks = Hooks::new().end(move |_| {
        ends.add(1);
        Ok(())
    });
    let mut outputs = hooks.pool(order, 2).into_outputs(0..);
    outputs.next().unwrap().unwrap();
    drop(outputs);
    assert_eq!(ended.get(), 2);
}

/// Counts how many of it there are.
struct Alive(Arc<Counter>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

fn dropping_them_does_not_wait_for_a_source_that_blocks(order: Order) {
    let (gate, inside, dropped) = (Arc::new(Gate::new()), Arc::new(Gate::new()), Arc::default());
    let (passed, entered, alive) = (gate.clone(), inside.clone(), Alive(Arc::clone(&dropped)));
    let items = (0..10).inspect(move |&x| {
        let _ = &alive;
        if x == 1 {
            entered.open();
            passed.pass();
        }
    });
    let worked = Arc::new(Counter::new());
    let works = worked.clone();
    let hooks = Hooks::new().work(move |_, x| {
        works.add(1);
        Ok(x)
    });
    let mut outputs = hooks.pool(order, 1).into_outputs(items);
    assert_eq!(outputs.next().unwrap().unwrap(), 0);
    inside.pass();
    let mut pool = outputs.into_pool();
    assert_eq!(pool.account().ok, 1);
    assert_eq!(pool.run(5..8).unwrap(), [5, 6, 7]);
    drop(pool);
    assert_eq!((dropped.get(), worked.get()), (0, 4), "the source has not returned");
    gate.open();
    dropped.reach(1);
    assert_eq!(worked.get(), 4, "what it returns goes nowhere");
}

fn the_pool_comes_back(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    for round in 0..5 {
        let mut outputs = pool.into_outputs(0..);
        outputs.nth(round).unwrap().unwrap();
        pool = outputs.into_pool();
        assert_eq!(sorted(pool.run(0..10).unwrap()), (0..10).collect::<Vec<_>>());
    }
    assert_eq!(pool.order(), order);
}

fn a_source_that_panics_is_the_last_error(order: Order) {
    let items = (0..10_u64).inspect(|&x| assert!(x < 3, "the source breaks"));
    let results: Vec<_> = Hooks::new().pool(order, 1).into_outputs(items).collect();
    let error = results.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, Error::InputPanicked { item: 3, .. }), "{error:?}");
}

fn failing(order: Order, on_error: OnError) -> AnyOrderRunner<Hooks> {
    let hooks = Hooks::new().work(|_, x| if x == 4 { Err("four".into()) } else { Ok(x) });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(on_error);
    builder.build().unwrap()
}

fn a_failed_item_is_the_last_error(order: Order) {
    let mut outputs = failing(order, OnError::Stop).into_outputs(0..);
    let failed = outputs.by_ref().find_map(Result::err).unwrap();
    assert_eq!(failed.item(), Some(4));
    assert!(outputs.next().is_none());
    assert_eq!(outputs.account().failed, 1);
}

fn a_skipped_item_is_an_error_among_others(order: Order) {
    let mut outputs = failing(order, OnError::Skip).into_outputs(0..10);
    let (ok, failed): (Vec<_>, Vec<_>) = outputs.by_ref().partition(Result::is_ok);
    assert_eq!((ok.len(), failed.len()), (9, 1));
    assert_eq!((outputs.account().ok, outputs.account().failed), (9, 1));
}

fn a_cancel_is_the_last_error(order: Order) {
    let token = CancelToken::new();
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    let (_sender, items) = channel();
    let mut outputs = builder.cancel_token(token.clone()).build().unwrap().into_outputs(items);
    token.cancel();
    assert!(outputs.next().unwrap().unwrap_err().is_cancelled());
    assert!(outputs.next().is_none());
}

fn everything_is_accounted_for(order: Order) {
    let mut outputs = Hooks::new().windowed(order, 1, 4).into_outputs(0..100);
    assert_eq!(outputs.size_hint(), (0, Some(100)));
    outputs.nth(9).unwrap().unwrap();
    assert_eq!((outputs.account().ok, outputs.account().cancelled), (10, 0));
    let pool = outputs.into_pool();
    let account = pool.account();
    assert_eq!(account.ok, 10);
    assert!(account.cancelled <= 4, "{account:?}");
    assert_eq!(10 + account.cancelled + account.unread.unwrap(), 100);
    assert_eq!(pool.report().account, account);
}

#[test]
fn a_closed_pool_is_the_only_error() {
    let mut pool = OrderedRunner::new(Hooks::new(), 1).unwrap();
    pool.close().unwrap();
    let mut outputs = pool.into_outputs(0..9);
    assert_eq!(outputs.size_hint(), (1, Some(1)));
    assert!(outputs.next().unwrap().unwrap_err().is_closed());
    assert!(outputs.next().is_none());
}

#[test]
fn an_input_that_fails_is_skipped_like_an_item() {
    let skip = OnError::Skip;
    let builder = OrderedRunner::builder(Hooks::new()).devices(1).on_error(skip);
    let items = ["1", "x", "3"].map(str::parse::<u64>);
    let results: Vec<_> = builder.build().unwrap().try_into_outputs(items).collect();
    assert!(results[1].as_ref().unwrap_err().is_input());
    assert_eq!(results.iter().flatten().collect::<Vec<_>>(), [&1, &3]);
}

#[test]
fn they_go_to_another_thread() {
    let sum = no_hang(|| {
        fn outputs() -> impl Iterator<Item = u64> + Send + 'static {
            let pool = OrderedRunner::new(Hooks::new(), 2).unwrap();
            pool.into_outputs(0..10).map(Result::unwrap)
        }
        let outputs = outputs();
        std::thread::spawn(move || outputs.sum::<u64>()).join().unwrap()
    });
    assert_eq!(sum, 45);
}
