//! Outputs that own their pool.

use std::sync::Arc;
use std::sync::mpsc::channel;

use gangline::{AnyOrderRunner, CancelToken, Order, OrderedRunner};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    producers_start_before_the_first_is_asked_for,
    a_source_that_pauses_delays_no_result,
    dropping_them_ends_the_producers,
    dropping_them_does_not_wait_for_a_source_that_blocks,
    the_pool_comes_back,
    what_is_left_to_read_is_known_while_they_last,
    what_a_blocking_source_has_left_is_known,
    a_cancel_is_the_last_error,
    everything_is_accounted_for,
);

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

fn what_is_left_to_read_is_known_while_they_last(order: Order) {
    let mut outputs = Hooks::new().windowed(order, 1, 2).into_outputs(0..9);
    for taken in 1..=9 {
        outputs.next().unwrap().unwrap();
        let unread = outputs.account().unread.unwrap();
        assert!((7..=9).contains(&(unread + taken)), "{unread} after {taken}");
    }
    assert_eq!(outputs.account().unread, Some(0));
}

/// The source returns its third item once the pool is back.
fn what_a_blocking_source_has_left_is_known(order: Order) {
    let (gate, inside) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (passed, entered) = (gate.clone(), inside.clone());
    let items: Vec<u64> = (0..9).collect();
    let items = items.into_iter().inspect(move |&x| {
        if x == 2 {
            entered.open();
            passed.pass();
        }
    });
    let outputs = Hooks::new().pool(order, 1).into_outputs(items);
    inside.pass();
    let account = outputs.into_pool().account();
    gate.open();
    let pulled = account.ok + account.failed + account.cancelled;
    assert_eq!((pulled, account.unread), (2, Some(7)), "{account:?}");
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
