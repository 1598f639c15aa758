//! `stop` and `drain` end a run without failing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::{AnyOrderRunner, Error, Hook, Order};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Probe, check_afterwards, check_summary};
use crate::support::{Counter, Gate};

both_orders!(
    stopped_in_consumer_init,
    stopped_at_any_item,
    stopped_and_failed,
    stopped_and_panicked,
    stopped_by_a_thread_of_the_hook,
    failures_after_a_stop_do_not_count,
    a_stop_is_seen_by_the_producers,
    finished_with_the_feeder_waiting_for_the_window,
    finished_in_the_callers_iterator,
    finished_in_consumer_init,
    finished_in_a_stream,
    finished_and_failed,
    finished_and_then_cancelled,
    finished_before_the_start,
    finished_in_the_middle,
);

fn endings() -> (Arc<AtomicU64>, Hooks) {
    let ends = Arc::new(AtomicU64::new(0));
    let counts = ends.clone();
    let hooks = Hooks::new().consumer_end(move |_| {
        counts.fetch_add(1, SeqCst);
        Ok(())
    });
    (ends, hooks)
}

#[track_caller]
fn check_works(pool: &mut AnyOrderRunner<Hooks>) {
    assert_eq!(pool.run(1_000..1_020).unwrap().len(), 20);
    assert_eq!(pool.outputs(1_000..1_020).filter(Result::is_ok).count(), 20);
}

fn stopped_in_consumer_init(order: Order) {
    for fails in [false, true] {
        let (ends, hooks) = endings();
        let armed = AtomicBool::new(true);
        let hooks = hooks.consumer_init(move |cx| {
            if !armed.swap(false, SeqCst) {
                return Ok(());
            }
            cx.stop();
            if fails { Err("no".into()) } else { Ok(()) }
        });
        let mut pool = hooks.pool(order, 2);
        let result = pool.run((0..).inspect(|_| panic!("nothing is to be pulled")));
        match result {
            Ok(seen) => assert!(seen.is_empty() && !fails),
            Err(error) => assert_eq!(error.hook(), fails.then_some(Hook::ConsumerInit)),
        }
        assert_eq!(ends.load(SeqCst), u64::from(!fails));
        check_works(&mut pool);
    }
}

fn stopped_at_any_item(order: Order) {
    for last in [0, 1, 40, 99] {
        let (ends, hooks) = endings();
        let after = AtomicBool::new(false);
        let hooks = hooks.consume(move |cx, y| {
            assert!(y >= 1_000 || !after.load(SeqCst), "consumed after the stop");
            if y == last {
                cx.stop();
                cx.stop();
                after.store(true, SeqCst);
            }
            Ok(())
        });
        let mut pool = hooks.pool(order, 3);
        let seen = pool.run(0..100).unwrap();
        assert_eq!((seen.last(), ends.load(SeqCst)), (Some(&last), 1));
        if let Order::Input = order {
            assert_eq!(seen, (0..=last).collect::<Vec<_>>());
        }
        let account = pool.account();
        assert_eq!((account.ok, account.failed), (seen.len() as u64, 0));
        check_works(&mut pool);
    }
}

#[track_caller]
fn check_failed_after_stop(order: Order, fail: fn() -> gangline::Result<()>) -> Error {
    let (ends, hooks) = endings();
    let hooks = hooks.consume(move |cx, y| {
        if y == 7 {
            cx.stop();
            return fail();
        }
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let error = pool.run(0..).unwrap_err();
    assert_eq!((error.item(), error.hook()), (Some(7), Some(Hook::ConsumerWork)));
    assert_eq!(ends.load(SeqCst), 0);
    check_works(&mut pool);
    error
}

fn stopped_and_failed(order: Order) {
    assert!(!check_failed_after_stop(order, || Err("no".into())).is_panic());
}

fn stopped_and_panicked(order: Order) {
    assert!(check_failed_after_stop(order, || panic!("no")).is_panic());
}

fn stopped_by_a_thread_of_the_hook(order: Order) {
    let hooks = Hooks::new().consume(|cx, y| {
        if y == 7 {
            thread::scope(|scope| {
                scope.spawn(|| cx.stop());
            });
        }
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    assert_eq!(pool.run(0..).unwrap().last(), Some(&7));
    check_works(&mut pool);
}

/// Other items are in work when the consumer stops; they fail, panic or succeed after that.
fn failures_after_a_stop_do_not_count(order: Order) {
    let at_work = Arc::new(Counter::new());
    let others = at_work.clone();
    let hooks = Hooks::new()
        .work(move |cx, x| {
            if (1..4).contains(&x) {
                at_work.add(1);
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
            }
            match x {
                1 => Err("too late".into()),
                2 => panic!("too late"),
                _ => Ok(x),
            }
        })
        .consume(move |cx, y| {
            if y == 0 {
                others.reach(3);
                cx.stop();
            }
            Ok(())
        });
    let mut pool = hooks.windowed(order, 4, 4);
    assert_eq!(pool.run(0..).unwrap(), [0]);
    let account = pool.account();
    assert_eq!((account.ok, account.failed, account.cancelled), (1, 0, 3));
    check_works(&mut pool);
}

fn a_stop_is_seen_by_the_producers(order: Order) {
    let at_work = Arc::new(Gate::new());
    let starts = at_work.clone();
    let hooks = Hooks::new()
        .work(move |cx, x| {
            if x == 1 {
                starts.open();
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
            }
            Ok(x)
        })
        .consume(move |cx, y| {
            if y == 0 {
                at_work.pass();
                cx.stop();
                assert!(!cx.is_cancelled(), "the result that called for the stop is wanted");
            }
            Ok(())
        });
    let mut pool = hooks.windowed(order, 2, 2);
    assert_eq!(pool.run(0..).unwrap(), [0]);
}

fn finished_with_the_feeder_waiting_for_the_window(order: Order) {
    let (ends, hooks) = endings();
    let (full, finished) = (Gate::new(), Arc::new(Gate::new()));
    let held = finished.clone();
    let hooks = hooks.consume(move |_, _| {
        held.pass();
        Ok(())
    });
    let mut pool = hooks.windowed(order, 2, 4);
    let token = pool.cancel_token();
    let items = (0..).inspect(|&x| {
        if x == 3 {
            full.open();
        }
    });
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            full.pass();
            token.drain();
            finished.open();
        });
        pool.run(items)
    });
    assert_eq!((seen.unwrap().len(), ends.load(SeqCst)), (4, 1));
    assert_eq!((pool.account().ok, pool.account().cancelled), (4, 0));
    check_works(&mut pool);
}

fn finished_in_the_callers_iterator(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    let token = pool.cancel_token();
    let (reached, finished) = (Gate::new(), Gate::new());
    let items = (0..).inspect(|&x| {
        assert!(x <= 5, "the iterator was called again");
        if x == 5 {
            reached.open();
            finished.pass();
        }
    });
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            reached.pass();
            token.drain();
            finished.open();
        });
        pool.run(items)
    });
    assert_eq!((seen.unwrap().len() as u64, pool.account().cancelled), (pool.account().ok, 0));
    check_works(&mut pool);
}

fn finished_in_consumer_init(order: Order) {
    let (ends, hooks) = endings();
    let (reached, finished) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (starts, waits) = (reached.clone(), finished.clone());
    let hooks = hooks.consumer_init(move |_| {
        starts.open();
        waits.pass();
        Ok(())
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            reached.pass();
            token.drain();
            finished.open();
        });
        pool.run((0..).inspect(|_| panic!("nothing is to be pulled")))
    });
    assert_eq!((seen.unwrap().len(), ends.load(SeqCst)), (0, 1));
    check_works(&mut pool);
}

fn finished_in_a_stream(order: Order) {
    let mut pool = Hooks::new().windowed(order, 2, 8);
    let token = pool.cancel_token();
    let pulled = AtomicU64::new(0);
    let mut stream = pool.outputs((0..).inspect(|_| {
        pulled.fetch_add(1, SeqCst);
    }));
    assert!((0..20).all(|_| stream.next().unwrap().is_ok()));
    let before = pulled.load(SeqCst);
    token.drain();
    assert_eq!(stream.by_ref().filter(Result::is_ok).count() as u64, before - 20);
    assert!(stream.next().is_none());
    drop(stream);
    assert_eq!(pulled.load(SeqCst), before);
    assert_eq!((pool.account().ok, pool.account().cancelled), (before, 0));
    check_works(&mut pool);
}

fn finished_and_failed(order: Order) {
    let (ends, hooks) = endings();
    let hooks = hooks.work(|_, x| if x == 3 { Err("no".into()) } else { Ok(x) });
    let mut pool = hooks.pool(order, 1);
    let token = pool.cancel_token();
    let error = pool.run((0..).inspect(|&x| {
        if x == 3 {
            token.drain();
        }
    }));
    assert_eq!(error.unwrap_err().item(), Some(3));
    assert_eq!(ends.load(SeqCst), 0);
    check_works(&mut pool);
}

fn finished_and_then_cancelled(order: Order) {
    let (ends, hooks) = endings();
    let at_work = Arc::new(Gate::new());
    let starts = at_work.clone();
    let hooks = hooks.work(move |cx, x| {
        if x == 0 {
            starts.open();
            while !cx.is_cancelled() {
                thread::yield_now();
            }
        }
        Ok(x)
    });
    let mut pool = hooks.pool(order, 2);
    let token = pool.cancel_token();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            at_work.pass();
            token.drain();
            token.cancel();
        });
        pool.run(0..)
    });
    assert!(result.unwrap_err().is_cancelled());
    assert_eq!(ends.load(SeqCst), 0);
    check_works(&mut pool);
}

fn finished_before_the_start(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    runner.cancel_token().drain();
    assert_eq!(runner.run(tally.input(0..20)).unwrap(), []);
    assert_eq!(tally.pulled.get(), 0);
    assert_eq!(tally.called(Hook::ConsumerEnd).get(), 1);
    check_afterwards(runner);
}

/// What was given out is still worked on and consumed.
fn finished_in_the_middle(order: Order) {
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
