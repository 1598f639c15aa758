//! Results come in order, a failure takes its item's place, and the first in order is the run's.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::{
    AnyOrderRunner, Batch, Error, Hook, Order, OrderedRunner, ProducerContext, Result,
    UnorderedRunner,
};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

both_orders!(
    every_item_is_consumed_exactly_once,
    every_item_comes_out_of_a_stream_exactly_once,
    nothing_is_pulled_after_an_item_failed,
    nothing_is_pulled_while_the_state_of_a_failed_consumer_is_dropped,
    a_failure_does_not_wait_behind_results_for_a_slow_consumer,
);

/// Of every four items, the first finishes after the other three. The window is as large as there are
/// producers: with more, stragglers could hold all of them while what they wait for is not begun.
fn stragglers(done: &Arc<Counter>) -> impl Fn(&ProducerContext<'_>, u64) -> Result<u64> + use<> {
    let done = done.clone();
    move |_, x| {
        if x % 4 == 0 {
            done.reach(x / 4 * 3 + 3);
        } else {
            done.add(1);
        }
        Ok(x)
    }
}

#[track_caller]
fn check_order(order: Order, seen: Vec<u64>, count: u64) {
    let all: Vec<_> = (0..count).collect();
    match order {
        Order::Input => assert_eq!(seen, all),
        Order::Completion => assert_eq!(sorted(seen), all),
    }
}

fn every_item_is_consumed_exactly_once(order: Order) {
    for producers in [4, 8, 16] {
        let hooks = Hooks::new().work(stragglers(&Arc::default()));
        let mut pool = hooks.windowed(order, producers, producers);
        check_order(order, pool.run(0..400).unwrap(), 400);
    }
}

fn every_item_comes_out_of_a_stream_exactly_once(order: Order) {
    for producers in [4, 8, 16] {
        let hooks = Hooks::new().work(stragglers(&Arc::default()));
        let mut pool = hooks.windowed(order, producers, producers);
        check_order(order, pool.outputs(0..400).map(Result::unwrap).collect(), 400);
    }
}

#[test]
fn completion_order_does_not_wait_for_the_first() {
    no_hang(|| {
        let first = Arc::new(Gate::new());
        let (held, last) = (first.clone(), first.clone());
        let hooks = Hooks::new()
            .work(move |_, x| {
                if x == 0 {
                    held.pass();
                }
                Ok(x)
            })
            .consume(move |_, y| {
                if y == 99 {
                    last.open();
                }
                Ok(())
            });
        let seen = hooks.pool(Order::Completion, 2).run(0..100).unwrap();
        assert_eq!(seen.last(), Some(&0));
    });
}

/// Items fail in the order 7, 3; everything before 3 is held back until both have.
#[track_caller]
fn later_failure_first(fail: fn(u64) -> Result<u64>) -> (Error, AnyOrderRunner<Hooks>, Vec<u64>) {
    let (seventh, third) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let eighth = Gate::new();
    let consumed = Arc::new(std::sync::Mutex::new(vec![]));
    let seen = consumed.clone();
    let hooks = Hooks::new()
        .work(move |cx, x| match x {
            0 => {
                third.pass();
                Ok(x)
            }
            3 => {
                seventh.pass();
                third.open();
                fail(x)
            }
            7 => {
                eighth.pass();
                fail(x)
            }
            8 => {
                eighth.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                seventh.open();
                Ok(x)
            }
            _ => Ok(x),
        })
        .consume(move |_, y| {
            seen.lock().unwrap().push(y);
            Ok(())
        });
    let mut pool = hooks.windowed(Order::Input, 4, 16);
    let error = pool.run(0..).unwrap_err();
    let consumed = consumed.lock().unwrap().clone();
    (error, pool, consumed)
}

#[test]
fn of_several_failures_the_first_in_order_is_the_runs() {
    no_hang(|| {
        let (error, pool, consumed) = later_failure_first(|x| Err(format!("no {x}").into()));
        assert_eq!((error.item(), error.hook()), (Some(3), Some(Hook::ProducerWork)));
        assert_eq!(consumed, [0, 1, 2]);
        assert_eq!((pool.account().ok, pool.account().failed), (3, 1));
    });
}

#[test]
fn of_several_panics_the_first_in_order_is_the_runs() {
    no_hang(|| {
        let (error, pool, consumed) = later_failure_first(|x| panic!("no {x}"));
        assert_eq!((error.item(), error.is_panic()), (Some(3), true));
        assert_eq!(consumed, [0, 1, 2]);
        assert_eq!((pool.account().ok, pool.account().failed), (3, 1));
        assert!(format!("{error:#}").contains("no 3"), "{error:#}");
    });
}

/// Item 5 fails while item 0 is held back; what is consumed after that gives credits back.
fn nothing_is_pulled_after_an_item_failed(order: Order) {
    let (failed, sixth) = (Gate::new(), Gate::new());
    let pulled = Arc::new(AtomicU64::new(0));
    let at_failure = Arc::new(AtomicU64::new(0));
    let (pulls, marks) = (pulled.clone(), at_failure.clone());
    let hooks = Hooks::new()
        .work(move |cx, x| {
            match x {
                0 => failed.pass(),
                5 => {
                    sixth.pass();
                    return Err("no".into());
                }
                6 => {
                    sixth.open();
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                    marks.store(pulls.load(SeqCst), SeqCst);
                    failed.open();
                }
                _ => {}
            }
            Ok(x)
        })
        .consume(|_, _| {
            (0..20).for_each(|_| thread::yield_now());
            Ok(())
        });
    let mut pool = hooks.windowed(order, 3, 8);
    let items = (0..).inspect(|_| {
        pulled.fetch_add(1, SeqCst);
    });
    assert_eq!(pool.run(items).unwrap_err().item(), Some(5));
    let (pulled, before) = (pulled.load(SeqCst), at_failure.load(SeqCst));
    // One may have been on its way from the caller's iterator.
    assert!(pulled <= before + 1, "{pulled} were pulled, {before} before the failure");
}

/// An earlier failure of the consumer beats a later one of a producer, though that came first.
#[test]
fn a_failure_of_the_consumer_stands_before_later_items() {
    no_hang(|| {
        let failed = Arc::new(Gate::new());
        let (before, third) = (failed.clone(), Gate::new());
        let hooks = Hooks::new()
            .work(move |cx, x| match x {
                2 => {
                    third.pass();
                    Err("producer".into())
                }
                3 => {
                    third.open();
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                    failed.open();
                    Ok(x)
                }
                _ => Ok(x),
            })
            .consume(move |cx, y| {
                assert_eq!(y, 0);
                before.pass();
                assert!(!cx.is_cancelled(), "the items before a failure are still wanted");
                Err("consumer".into())
            });
        let error = hooks.windowed(Order::Input, 2, 8).run(0..).unwrap_err();
        assert_eq!((error.item(), error.hook()), (Some(0), Some(Hook::ConsumerWork)));
    });
}

#[test]
fn of_nothing_the_summary_is_that_of_the_initial_state() {
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let sum = same.fold(
        |_| Ok(7),
        |_, sum: &mut u64, y| {
            *sum += y;
            Ok(())
        },
    );
    let mut runner = OrderedRunner::new(sum, 3).unwrap();
    assert_eq!(runner.run([]).unwrap(), 7);
    assert_eq!(runner.run(1..4).unwrap(), 13, "each run has a fresh state");
    assert!(runner.outputs([]).next().is_none());
}

struct SlowToDrop(Arc<AtomicU64>);

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        for _ in 0..2_000 {
            thread::yield_now();
        }
        self.0.store(1, SeqCst);
    }
}

/// With a window of one, nothing may be pulled after item 0 failed.
fn nothing_is_pulled_while_the_state_of_a_failed_consumer_is_dropped(order: Order) {
    let dropped = Arc::new(AtomicU64::new(0));
    let marks = dropped.clone();
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let fold = same.fold(move |_| Ok(SlowToDrop(marks.clone())), |_, _, _| Err("no".into()));
    let mut pool = AnyOrderRunner::builder(fold).order(order).devices(2).window(1).build().unwrap();
    let pulled = Cell::new(0);
    let error = pool.run((0_u64..).inspect(|_| pulled.set(pulled.get() + 1))).err().unwrap();
    assert_eq!(error.item(), Some(0));
    assert_eq!(pulled.get(), 1, "pulled after the failure");
}

/// In order of completion; in input order what comes before it is still consumed.
fn a_failure_does_not_wait_behind_results_for_a_slow_consumer(order: Order) {
    let (is_busy, consumed) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (gets_busy, counts) = (is_busy.clone(), consumed.clone());
    let fails_meanwhile = move |x| {
        if x < 30 {
            return Ok(x);
        }
        is_busy.pass();
        Err("no".into())
    };
    let hooks = Hooks::new().work(move |_, x| fails_meanwhile(x)).consume(move |cx, _| {
        if counts.add(1) == 1 {
            gets_busy.open();
            while order == Order::Completion && !cx.is_cancelled() {
                thread::yield_now();
            }
        }
        Ok(())
    });
    let error = hooks.windowed(order, 1, 64).run(0..).unwrap_err();
    assert_eq!(error.item(), Some(30));
    let expected = if order == Order::Completion { 1 } else { 30 };
    assert_eq!(consumed.get(), expected);
}

/// While the consumer is busy with the first item, two producers finish the others in turns. The last
/// item of each may still be on its way when the consumer looks.
#[test]
fn what_was_finished_while_the_consumer_was_busy_is_not_sorted_by_producer() {
    no_hang(|| {
        let (turn, finished) = (Counter::new(), Arc::new(Counter::new()));
        let (busy, finishes) = (Arc::new(Counter::new()), finished.clone());
        let is_busy = busy.clone();
        let in_turns = map(
            |_| Ok(()),
            move |cx: &ProducerContext<'_>, (), x: u64| {
                turn.reach(x);
                is_busy.reach(x.min(1));
                turn.add(1);
                finishes.add(1);
                Ok((cx.producer(), x))
            },
        );
        let collect = in_turns.fold(
            |_| Ok(vec![]),
            move |_, all: &mut Vec<(usize, u64)>, x| {
                if all.is_empty() {
                    busy.add(1);
                    finished.reach(16);
                }
                all.push(x);
                Ok(())
            },
        );
        let builder =
            AnyOrderRunner::builder(collect).order(Order::Completion).devices(2).window(16);
        let all = builder.build().unwrap().run(0..16).unwrap();
        let is_last = |worker| all.iter().rposition(|&(who, _)| who == worker);
        let mut early: Vec<_> = all.clone();
        let mut last: Vec<_> = (0..2).filter_map(is_last).collect();
        last.sort_unstable();
        last.into_iter().rev().for_each(|at| _ = early.remove(at));
        assert!(early.is_sorted_by_key(|&(_, x)| x), "{all:?}");
    });
}

/// It sees that the run has failed elsewhere, and returns an error of its own, of an earlier item.
#[test]
fn a_hook_that_gives_up_does_not_take_the_place_of_the_failure() {
    for batch in [None, Some(Batch::of(1))] {
        no_hang(move || {
            for _ in 0..200 {
                let started = Counter::new();
                let runner = map(
                    |_| Ok(()),
                    move |cx: &ProducerContext<'_>, (), x: u64| {
                        started.add(1);
                        started.reach(2);
                        if x == 1 {
                            return Err("one".into());
                        }
                        while !cx.is_cancelled() {
                            thread::yield_now();
                        }
                        Err::<u64, _>("gave up".into())
                    },
                );
                let builder = UnorderedRunner::builder(one_by_one(runner)).devices(2);
                let builder = match batch {
                    Some(batch) => builder.batch(batch),
                    None => builder,
                };
                let error = builder.build().unwrap().run(0..2).unwrap_err();
                assert_eq!(error.item(), Some(1), "{error:#}");
            }
        });
    }
}
