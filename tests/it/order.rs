//! Results come in order, a failure takes its item's place, and the first in order is the run's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::{
    AnyOrderRunner, ConsumerContext, Error, Hook, Order, OrderedRunner, ProducerContext,
};
use gangline::{Result, Runner};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, no_hang};

both_orders!(
    every_item_is_consumed_exactly_once,
    every_item_comes_out_of_a_stream_exactly_once,
    a_failing_source_ends_the_run_at_its_item,
    a_panicking_source_ends_the_run_at_its_item,
    a_failed_item_is_the_last_of_a_stream,
    nothing_is_pulled_after_an_item_failed,
    nothing_is_consumed_after_the_consumer_failed,
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

#[track_caller]
fn check_input_error(order: Order, error: &Error, consumed: &[u64], item: u64) {
    assert!(error.is_input(), "{error:#}");
    assert_eq!((error.item(), error.hook()), (Some(item), None));
    assert!(format!("{error:#}").contains("torn page"), "{error:#}");
    if let Order::Input = order {
        assert_eq!(consumed, (0..item).collect::<Vec<_>>());
    }
}

/// A pool that also records what its consumer saw.
fn recording(order: Order) -> (AnyOrderRunner<Hooks>, Arc<std::sync::Mutex<Vec<u64>>>) {
    let consumed = Arc::new(std::sync::Mutex::new(vec![]));
    let seen = consumed.clone();
    let hooks = Hooks::new().consume(move |_, y| {
        seen.lock().unwrap().push(y);
        Ok(())
    });
    (hooks.pool(order, 3), consumed)
}

fn a_failing_source_ends_the_run_at_its_item(order: Order) {
    for bad in [0, 1, 50] {
        let (mut pool, consumed) = recording(order);
        let items = (0..100).map(|x| if x == bad { Err("torn page") } else { Ok(x) });
        let error = pool.try_run(items).unwrap_err();
        check_input_error(order, &error, &consumed.lock().unwrap(), bad);
        assert_eq!((pool.account().failed, pool.account().unread), (1, Some(99 - bad)));
    }
}

fn a_panicking_source_ends_the_run_at_its_item(order: Order) {
    for bad in [0, 1, 50] {
        let (mut pool, consumed) = recording(order);
        let calls = AtomicU64::new(0);
        let items = (0..100).inspect(|&x| {
            calls.fetch_add(1, SeqCst);
            assert!(x != bad, "torn page");
        });
        let error = pool.run(items).unwrap_err();
        check_input_error(order, &error, &consumed.lock().unwrap(), bad);
        assert!(error.is_panic());
        assert_eq!(calls.load(SeqCst), bad + 1, "the iterator was called again");
        assert_eq!((pool.account().failed, pool.account().unread), (1, Some(99 - bad)));
    }
}

fn a_failed_item_is_the_last_of_a_stream(order: Order) {
    let fails =
        |bad| Hooks::new().work(move |_, x| if x == bad { Err("no".into()) } else { Ok(x) });
    for bad in [0, 1, 30] {
        let mut pool = fails(bad).pool(order, 3);
        let mut stream = pool.outputs(0..100);
        let mut seen = vec![];
        let error = loop {
            match stream.next().expect("it fails before it ends") {
                Ok(y) => seen.push(y),
                Err(error) => break error,
            }
        };
        assert_eq!((error.item(), error.hook()), (Some(bad), Some(Hook::ProducerWork)));
        assert!(stream.next().is_none() && stream.next().is_none());
        drop(stream);
        if let Order::Input = order {
            assert_eq!(seen, (0..bad).collect::<Vec<_>>());
        }
        assert_eq!((pool.account().ok, pool.account().failed), (seen.len() as u64, 1));
    }
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

fn nothing_is_consumed_after_the_consumer_failed(order: Order) {
    for panics in [false, true] {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let hooks = Hooks::new().consume(move |_, y| {
            counted.fetch_add(1, SeqCst);
            match y {
                10 if panics => panic!("too much"),
                10 => Err("too much".into()),
                _ => Ok(()),
            }
        });
        let mut pool = hooks.pool(order, 3);
        let error = pool.run(0..).unwrap_err();
        assert_eq!((error.item(), error.hook()), (Some(10), Some(Hook::ConsumerWork)));
        assert_eq!(error.is_panic(), panics);
        assert!(format!("{error:#}").contains("too much"), "{error:#}");
        assert_eq!(error.device(), None);
        let account = pool.account();
        assert_eq!((account.ok + 1, account.failed), (calls.load(SeqCst), 1));
    }
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

/// Owns what a test wants to see dropped.
struct Sum;
impl Runner for Sum {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
        Ok(x)
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(7)
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
        *sum += y;
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        Ok(sum)
    }
}

#[test]
fn of_nothing_the_summary_is_that_of_the_initial_state() {
    let mut runner = OrderedRunner::new(Sum, 3).unwrap();
    assert_eq!(runner.run([]).unwrap(), 7);
    assert_eq!(runner.run(1..4).unwrap(), 13, "each run has a fresh state");
    assert!(runner.outputs([]).next().is_none());
}
