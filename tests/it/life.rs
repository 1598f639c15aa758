//! From building to drop: states are paired, threads and items are gone, runners stay usable.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use gangline::{AnyOrderRunner, CfgNode, Hook, Order, OrderedRunner, UnorderedRunner};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Fault, Probe, check_afterwards, check_summary};
use crate::support::{Counter, Gate, map, no_hang};

both_orders!(
    a_thousand_short_runs,
    two_hundred_runners,
    many_producers_with_few_items,
    a_state_lost_to_a_panic_is_made_anew,
    no_hook_of_a_run_is_running_when_it_returns,
    runners_within_runners,
    runners_within_iterators,
    streams_in_a_chain_dropped_half_way,
    a_failure_goes_through_a_chain,
    a_runner_moves_between_threads,
    a_hook_that_runs_its_own_runner_gets_an_error,
    closing_twice_and_running_closed,
    closing_and_activating_again,
    an_activation_that_fails_leaves_it_closed,
    dropped_while_the_caller_panics,
    two_threads_take_turns,
    nothing_of_a_failed_run_reaches_the_next,
    a_runner_inside_a_state,
);

/// Counts states: how many were made, how many ended.
#[derive(Clone, Default)]
struct States {
    made: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
}

impl States {
    fn hooks(&self) -> Hooks {
        let States { made, ended } = self.clone();
        Hooks::new()
            .init(move |_| {
                made.fetch_add(1, SeqCst);
                Ok(())
            })
            .end(move |_| {
                ended.fetch_add(1, SeqCst);
                Ok(())
            })
    }

    #[track_caller]
    fn check(&self, made: u64, ended: u64) {
        assert_eq!((self.made.load(SeqCst), self.ended.load(SeqCst)), (made, ended));
    }
}

#[track_caller]
fn check_works(pool: &mut AnyOrderRunner<Hooks>) {
    assert_eq!(pool.run(0..20).unwrap().len(), 20);
    assert_eq!(pool.outputs(0..20).filter(Result::is_ok).count(), 20);
}

fn a_thousand_short_runs(order: Order) {
    let states = States::default();
    let hooks = states
        .hooks()
        .work(|_, x| match x {
            100 => Err("no".into()),
            _ => Ok(x),
        })
        .consume(|cx, y| match y {
            200 => Err("no".into()),
            300 => {
                cx.stop();
                Ok(())
            }
            _ => Ok(()),
        });
    let mut pool = hooks.pool(order, 3);
    for round in 0..1_000 {
        let count = round % 5;
        match round % 7 {
            0 => assert_eq!(pool.run(0..count).unwrap().len() as u64, count),
            1 => assert_eq!(pool.outputs(0..count).count() as u64, count),
            2 => assert_eq!(pool.run([0, 100, 2]).unwrap_err().item(), Some(1)),
            3 => assert_eq!(pool.run([200]).unwrap_err().item(), Some(0)),
            4 => assert!(pool.run([300, 1, 2]).unwrap().contains(&300)),
            5 => drop(pool.outputs(0..).take(3).collect::<Vec<_>>()),
            _ => {
                pool.cancel_token().cancel();
                assert!(pool.run(0..).unwrap_err().is_cancelled());
            }
        }
    }
    pool.close().unwrap();
    states.check(3, 3);
}

fn two_hundred_runners(order: Order) {
    let states = States::default();
    for round in 0..200 {
        let mut pool = states.hooks().pool(order, 3);
        if round % 2 == 0 {
            assert_eq!(pool.run(0..10).unwrap().len(), 10);
        }
    }
    states.check(600, 600);
}

fn many_producers_with_few_items(order: Order) {
    let mut pool = Hooks::new().pool(order, 200);
    for count in [0, 1, 3, 199, 200, 201] {
        assert_eq!(pool.run(0..count).unwrap().len() as u64, count);
        assert_eq!(pool.outputs(0..count).count() as u64, count);
    }
}

fn a_state_lost_to_a_panic_is_made_anew(order: Order) {
    let states = States::default();
    let hooks = states.hooks().work(|_, x| if x == 100 { panic!("no") } else { Ok(x) });
    let mut pool = hooks.pool(order, 2);
    for round in 0..10 {
        let error = pool.run((0..10).chain([100])).unwrap_err();
        assert_eq!((error.item(), error.is_panic()), (Some(10), true));
        check_works(&mut pool);
        states.check(3 + round, 0);
    }
    assert!(pool.run([100]).unwrap_err().is_panic());
    pool.close().unwrap();
    states.check(12, 1);
}

/// Producers that notice late that their results are unwanted are waited for.
fn no_hook_of_a_run_is_running_when_it_returns(order: Order) {
    let (running, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(Counter::new()));
    let (runs, begins) = (running.clone(), begun.clone());
    let hooks = Hooks::new()
        .work(move |cx, x| {
            if x > 0 {
                runs.fetch_add(1, SeqCst);
                begins.add(1);
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
                (0..100).for_each(|_| thread::yield_now());
                runs.fetch_sub(1, SeqCst);
            }
            Ok(x)
        })
        .consume(move |cx, _| {
            begun.reach(2);
            cx.stop();
            Ok(())
        });
    let mut pool = hooks.windowed(order, 3, 3);
    for _ in 0..20 {
        assert_eq!(pool.run(0..).unwrap(), [0]);
        assert_eq!(running.load(SeqCst), 0, "after a run");
        assert_eq!(pool.outputs(0..).take(1).count(), 1);
        assert_eq!(running.load(SeqCst), 0, "after a stream");
    }
}

/// Each item of the outer run builds, runs and drops a runner of its own, on its producer's thread.
fn runners_within_runners(order: Order) {
    let hooks = Hooks::new()
        .work(move |_, x| {
            let mut inner = Hooks::new().pool(order, 2);
            let sum = inner.run(0..x)?.len() + inner.outputs(0..x).count();
            Ok(sum as u64 / 2)
        })
        .consume(move |_, y| {
            assert_eq!(Hooks::new().pool(order, 1).run(0..y)?.len() as u64, y);
            Ok(())
        });
    assert_eq!(hooks.pool(order, 3).run(0..30).unwrap().len(), 30);
}

fn runners_within_iterators(order: Order) {
    let mut inner = Hooks::new().pool(order, 2);
    let items = (0..30).flat_map(|x| inner.run(0..x).unwrap());
    let mut outer = Hooks::new().pool(order, 2);
    assert_eq!(outer.run(items).unwrap().len(), 435);
    let items = (0..30).flat_map(|x| inner.outputs(0..x).map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(outer.outputs(items).count(), 435);
}

fn streams_in_a_chain_dropped_half_way(order: Order) {
    let states = States::default();
    let build = || states.hooks().pool(order, 2);
    let (mut a, mut b, mut c) = (build(), build(), build());
    for taken in [0, 1, 25] {
        let chain = c.try_outputs(b.try_outputs(a.outputs(0..)));
        assert_eq!(chain.take(taken).filter(Result::is_ok).count(), taken);
        assert_eq!(c.try_run(b.try_outputs(a.outputs(0..50))).unwrap().len(), 50);
        std::mem::forget(c.try_outputs(b.try_outputs(a.outputs(0..))));
        [&mut a, &mut b, &mut c].into_iter().for_each(check_works);
    }
    drop((a, b, c));
    states.check(6, 6);
}

fn a_failure_goes_through_a_chain(order: Order) {
    let fails = Hooks::new().work(|_, x| if x == 20 { Err("torn page".into()) } else { Ok(x) });
    let (mut a, mut b, mut c) =
        (fails.pool(order, 2), Hooks::new().pool(order, 2), Hooks::new().pool(order, 2));
    let error = c.try_run(b.try_outputs(a.outputs(0..))).unwrap_err();
    assert!(error.is_input(), "{error:#}");
    assert!(format!("{error:#}").contains("torn page"), "{error:#}");
    if let Order::Input = order {
        assert_eq!(error.item(), Some(20));
    }
    [&mut b, &mut c].into_iter().for_each(check_works);
}

fn a_runner_moves_between_threads(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    for _ in 0..10 {
        pool = thread::spawn(move || {
            check_works(&mut pool);
            pool
        })
        .join()
        .unwrap();
    }
}

thread_local! {
    static LEAVES: Cell<Option<Leaves>> = const { Cell::new(None) };
}

/// Counts when its thread is gone.
struct Leaves(Arc<AtomicU64>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn threads_are_gone_after_run_and_close() {
    no_hang(|| {
        let (producers, consumers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (per_producer, per_run) = (producers.clone(), consumers.clone());
        let hooks = Hooks::new()
            .init(move |_| {
                LEAVES.set(Some(Leaves(per_producer.clone())));
                Ok(())
            })
            .consumer_init(move |_| {
                LEAVES.set(Some(Leaves(per_run.clone())));
                Ok(())
            });
        let mut pool = hooks.pool(Order::Input, 3);
        for runs in 1..20 {
            pool.run(0..5).unwrap();
            assert_eq!(consumers.load(SeqCst), runs);
        }
        pool.close().unwrap();
        assert_eq!(producers.load(SeqCst), 3);
    });
}

#[test]
fn the_runner_value_is_gone_after_drop() {
    no_hang(|| {
        let value = Arc::new(Hooks::new());
        let mut runner = OrderedRunner::new(value.clone(), 2).unwrap();
        runner.run(0..10).unwrap();
        std::mem::forget(runner.outputs(0..));
        drop(runner);
        assert_eq!(Arc::strong_count(&value), 1);
        let mut runner = UnorderedRunner::new(value.clone(), 2).unwrap();
        runner.run(0..10).unwrap();
        drop(runner);
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// A caller that panics while it feeds leaves the runner usable, and one that owns it drops it.
#[test]
fn a_caller_that_unwinds_drops_its_runner() {
    no_hang(|| {
        let states = States::default();
        let hooks = states.hooks();
        thread::spawn(move || {
            let mut pool = hooks.pool(Order::Input, 2);
            let rc = Rc::new(1);
            let mut stream = pool.outputs((0..).map(|x| x + *rc));
            stream.next().unwrap().unwrap();
            panic!("the caller gives up");
        })
        .join()
        .unwrap_err();
        states.check(2, 2);
    });
}

/// A hook of a leaked stream takes its own runner and runs it.
fn a_hook_that_runs_its_own_runner_gets_an_error(order: Order) {
    let slot: Arc<std::sync::Mutex<Option<AnyOrderRunner<Hooks>>>> = Arc::default();
    let (own, filled, done) = (slot.clone(), Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (go, did, started) = (filled.clone(), done.clone(), Arc::new(Gate::new()));
    let starts = started.clone();
    let hooks = Hooks::new().work(move |_, x| {
        match x {
            0 => starts.pass(),
            1 => {
                starts.open();
                go.pass();
                let mut pool = own.lock().unwrap().take().unwrap();
                let error = pool.run(10..20).unwrap_err();
                assert_eq!(error.to_string(), "a runner cannot be run by one of its own hooks");
                did.open();
            }
            _ => {}
        }
        Ok(x)
    });
    let mut pool = hooks.windowed(order, 2, 8);
    let mut stream = pool.outputs(0..);
    while stream.next().unwrap().unwrap() != 0 {}
    started.pass();
    std::mem::forget(stream);
    *slot.lock().unwrap() = Some(pool);
    filled.open();
    done.pass();
}

fn closing_twice_and_running_closed(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    runner.close().unwrap();
    runner.close().unwrap();
    assert!(!runner.is_active());
    tally.check_closed();
    let error = runner.run(tally.input(0..5)).unwrap_err();
    assert!(error.is_closed() && error.to_string().contains("activate"), "{error}");
    let mut stream = runner.outputs(tally.input(0..5));
    assert!(stream.next().unwrap().unwrap_err().is_closed());
    assert!(stream.next().is_none());
    drop(stream);
    assert_eq!(tally.pulled.get(), 0);
    assert_eq!(runner.account().unread, Some(5));
    tally.check_account(runner.account());
    runner.activate().unwrap();
    runner.activate().unwrap();
    assert_eq!(tally.called(Hook::ProducerInit).get(), 6);
    check_afterwards(runner);
}

fn closing_and_activating_again(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    for rounds in 1..=20 {
        assert_eq!(runner.outputs(tally.input(0..20)).filter(Result::is_ok).count(), 20);
        check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
        assert!(runner.set_cfg(CfgNode::new()).is_err(), "only while closed");
        runner.close().unwrap();
        tally.check_closed();
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 3 * rounds);
        runner.set_cfg(CfgNode::new()).unwrap();
        runner.activate().unwrap();
        tally.check_account(runner.account());
    }
    check_afterwards(runner);
}

fn an_activation_that_fails_leaves_it_closed(order: Order) {
    for fault in Fault::BOTH {
        let inits = Counter::new();
        let probe = Probe::new().on_producer(Hook::ProducerInit, move |cx| {
            if inits.add(1) > 3 && cx.producer() == 1 { fault.strike() } else { Ok(()) }
        });
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        runner.close().unwrap();
        for _ in 0..2 {
            let error = runner.activate().unwrap_err();
            fault.check(&error, Hook::ProducerInit, None);
            assert!(!runner.is_active());
            tally.check_closed();
            assert!(runner.run(tally.input(0..5)).unwrap_err().is_closed());
        }
        tally.disarm();
        runner.activate().unwrap();
        check_afterwards(runner);
    }
}

fn dropped_while_the_caller_panics(order: Order) {
    for fault in Fault::BOTH {
        // The ends fail as well: a second panic in a destructor would abort the process.
        let mut runner = Probe::new().failing(Hook::ProducerEnd, fault, |_| true).on_three(order);
        let tally = runner.runner().tally();
        let caller = AssertUnwindSafe(|| {
            let mut stream = runner.outputs(tally.input(0..1000));
            assert!(stream.next().unwrap().is_ok());
            panic!("the caller's own");
        });
        let payload = catch_unwind(caller).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the caller's own"));
        tally.check_run_is_over();
        let caller = AssertUnwindSafe(move || {
            let _runner = runner;
            panic!("the caller's own");
        });
        let payload = catch_unwind(caller).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the caller's own"));
        tally.check_closed();
    }
}

fn two_threads_take_turns(order: Order) {
    let runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    let runner = Mutex::new(runner);
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        for first in [0, 1000] {
            let (runner, begin, tally) = (&runner, &begin, &tally);
            scope.spawn(move || {
                begin.wait();
                for _ in 0..10 {
                    let mut runner = runner.lock().unwrap();
                    let summary = runner.run(tally.input(first..first + 50)).unwrap();
                    check_summary(summary, first..first + 50, order);
                    tally.check_account(runner.account());
                }
            });
        }
    });
    check_afterwards(runner.into_inner().unwrap());
}

fn nothing_of_a_failed_run_reaches_the_next(order: Order) {
    let hooks = [Hook::ProducerWork, Hook::ConsumerInit, Hook::ConsumerWork, Hook::ConsumerEnd];
    for hook in hooks {
        for fault in Fault::BOTH {
            let runs = Arc::new(Counter::new());
            let run = runs.clone();
            let is_bad = move |item| {
                (item == 5 || hook != Hook::ProducerWork) && run.get().is_multiple_of(2)
            };
            let mut runner = Probe::new().failing(hook, fault, is_bad).on_three(order);
            let tally = runner.runner().tally();
            for i in 0..10 {
                let result = runner.run(tally.input(100 * i..100 * i + 30));
                match runs.add(1) % 2 {
                    1 => assert_eq!(result.unwrap_err().hook(), Some(hook)),
                    _ => check_summary(result.unwrap(), 100 * i..100 * i + 30, order),
                }
                tally.check_account(runner.account());
                tally.check_run_is_over();
            }
            check_afterwards(runner);
        }
    }
}

fn a_runner_inside_a_state(order: Order) {
    let tallies = Arc::new(Mutex::new(Vec::new()));
    let kept = tallies.clone();
    let nested = map(
        move |_| {
            let inner = OrderedRunner::new(Probe::new(), 2)?;
            kept.lock().unwrap().push(inner.runner().tally());
            Ok(inner)
        },
        |_, inner: &mut OrderedRunner<Probe>, x: u64| {
            let input = inner.runner().tally().input(x..x + 3);
            Ok(inner.run(input)?.iter().map(|(_, output)| output).sum::<u64>())
        },
    );
    let mut runner = AnyOrderRunner::builder(nested).devices(2).order(order).build().unwrap();
    let mut sums = runner.run(0..50).unwrap();
    sums.sort_unstable();
    assert_eq!(sums, (0..50).map(|x| 9 * x + 12).collect::<Vec<_>>());
    runner.close().unwrap();
    let tallies = tallies.lock().unwrap();
    assert_eq!(tallies.len(), 2);
    tallies.iter().for_each(|tally| tally.check_closed());
}
