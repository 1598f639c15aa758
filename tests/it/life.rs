//! From building to drop: states are paired, threads and items are gone, runners stay usable.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use gangline::{AnyOrderRunner, Hook, Order, OrderedRunner, UnorderedRunner};

use crate::hooks::{Hooks, both_orders};
use crate::support::{Counter, Gate, map, no_hang};

both_orders!(
    states_are_ended_once_each,
    close_and_activate_again,
    a_failing_end_is_the_error_of_close,
    a_closed_runner_says_so,
    dropped_with_a_stream_half_way,
    a_leaked_stream_is_ended_by_what_comes_next,
    a_leaked_stream_with_everybody_at_work,
    dropped_on_its_own_producers_thread,
    dropped_by_its_own_producer_end,
    a_thousand_short_runs,
    two_hundred_runners,
    many_producers_with_few_items,
    a_state_lost_to_a_panic_is_made_anew,
    a_state_that_cannot_be_made_anew_fails_the_run,
    items_of_a_run_are_gone_when_it_returns,
    no_hook_of_a_run_is_running_when_it_returns,
    runners_within_runners,
    runners_within_iterators,
    streams_in_a_chain_dropped_half_way,
    a_failure_goes_through_a_chain,
    a_failed_build_ends_the_others,
    a_runner_moves_between_threads,
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

fn states_are_ended_once_each(order: Order) {
    let states = States::default();
    let mut pool = states.hooks().pool(order, 3);
    states.check(3, 0);
    check_works(&mut pool);
    states.check(3, 0);
    pool.close().unwrap();
    states.check(3, 3);
    pool.close().unwrap();
    drop(pool);
    states.check(3, 3);
    drop(states.hooks().pool(order, 2));
    states.check(5, 5);
}

fn close_and_activate_again(order: Order) {
    let states = States::default();
    let mut pool = states.hooks().pool(order, 2);
    for round in 1..=20 {
        assert!(pool.is_active());
        pool.activate().unwrap();
        states.check(2 * round, 2 * round - 2);
        check_works(&mut pool);
        pool.close().unwrap();
        assert!(!pool.is_active());
        states.check(2 * round, 2 * round);
        pool.activate().unwrap();
    }
}

fn a_failing_end_is_the_error_of_close(order: Order) {
    for panics in [false, true] {
        let hooks = Hooks::new().end(move |cx| match cx.producer() {
            0 => Ok(()),
            n if panics => panic!("end {n}"),
            n => Err(format!("end {n}").into()),
        });
        let mut pool = hooks.pool(order, 3);
        check_works(&mut pool);
        let error = pool.close().unwrap_err();
        assert_eq!((error.hook(), error.is_panic()), (Some(Hook::ProducerEnd), panics));
        assert!(format!("{error:#}").contains("end 1"), "{error:#}");
        assert!(!pool.is_active());
        pool.close().unwrap();
        pool.activate().unwrap();
        check_works(&mut pool);
        drop(pool);
    }
}

fn a_closed_runner_says_so(order: Order) {
    let mut pool = Hooks::new().pool(order, 2);
    assert!(pool.set_cfg(gangline::CfgNode::new()).is_err());
    pool.close().unwrap();
    pool.set_cfg(gangline::CfgNode::new()).unwrap();
    let error = pool.run([1]).unwrap_err();
    assert!(error.is_closed() && error.to_string().contains("activate"), "{error}");
    let mut stream = pool.outputs([1]);
    assert!(stream.next().unwrap().unwrap_err().is_closed());
    assert!(stream.next().is_none());
}

fn dropped_with_a_stream_half_way(order: Order) {
    for taken in [0, 1, 2, 7] {
        let states = States::default();
        let mut pool = states.hooks().pool(order, 3);
        assert_eq!(pool.outputs(0..).take(taken).count(), taken);
        check_works(&mut pool);
        let mut stream = pool.outputs(0..);
        (0..taken).for_each(|_| assert!(stream.next().unwrap().is_ok()));
        std::mem::forget(stream);
        drop(pool);
        states.check(3, 3);
    }
}

fn a_leaked_stream_is_ended_by_what_comes_next(order: Order) {
    let next: [fn(&mut AnyOrderRunner<Hooks>); 4] = [
        |pool| assert_eq!(pool.run(0..20).unwrap().len(), 20),
        |pool| assert_eq!(pool.outputs(0..20).count(), 20),
        |pool| {
            pool.close().unwrap();
            pool.activate().unwrap();
        },
        |pool| std::mem::forget(pool.outputs(0..20)),
    ];
    for next in next {
        for taken in [0, 1, 7] {
            let mut pool = Hooks::new().pool(order, 3);
            let mut stream = pool.outputs(0..);
            (0..taken).for_each(|_| assert!(stream.next().unwrap().is_ok()));
            std::mem::forget(stream);
            assert_eq!(pool.account().ok, taken);
            next(&mut pool);
            check_works(&mut pool);
        }
    }
}

/// The hooks of leaked `Outputs` go on until their results are no longer wanted.
fn a_leaked_stream_with_everybody_at_work(order: Order) {
    for closes in [true, false] {
        let at_work = Arc::new(Counter::new());
        let starts = at_work.clone();
        let hooks = Hooks::new().work(move |cx, x| {
            if x >= 1_000 {
                starts.add(1);
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
            }
            Ok(x)
        });
        let mut pool = hooks.windowed(order, 2, 3);
        let mut stream = pool.outputs((0..1).chain(1_000..));
        stream.next().unwrap().unwrap();
        // Whether an item was pulled beside the first is a matter of luck.
        std::mem::forget(stream);
        if closes {
            pool.close().unwrap();
            pool.activate().unwrap();
        }
        check_works(&mut pool);
        assert!(at_work.get() <= 2);
    }
}

type Slot = Arc<Mutex<Option<AnyOrderRunner<Hooks>>>>;

/// A hook of a leaked stream takes its own runner and drops it. What it is to work on is pulled,
/// but held back, when the stream is leaked.
fn dropped_on_its_own_producers_thread(order: Order) {
    for producers in [2, 5] {
        for closes in [false, true] {
            let (slot, filled) = (Slot::default(), Arc::new(Gate::new()));
            let (own, go) = (slot.clone(), filled.clone());
            let (started, ended) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
            let (starts, ends) = (started.clone(), ended.clone());
            let hooks = Hooks::new()
                .work(move |_, x| {
                    match x {
                        0 => started.pass(),
                        1 => {
                            started.open();
                            go.pass();
                            let mut pool = own.lock().unwrap().take().unwrap();
                            if closes {
                                pool.close()?;
                            }
                            drop(pool);
                        }
                        _ => {}
                    }
                    Ok(x)
                })
                .end(move |_| {
                    ends.add(1);
                    Ok(())
                });
            let mut pool = hooks.windowed(order, producers, 8);
            let mut stream = pool.outputs(0..);
            // Item 0 is not done before item 1 has begun.
            while stream.next().unwrap().unwrap() != 0 {}
            starts.pass();
            std::mem::forget(stream);
            *slot.lock().unwrap() = Some(pool);
            filled.open();
            ended.reach(producers as u64);
        }
    }
}

/// A hook that runs while its runner is closed finds it gone, or drops another.
fn dropped_by_its_own_producer_end(order: Order) {
    let (slot, ends) = (Slot::default(), Arc::new(Counter::new()));
    let (own, counts) = (slot.clone(), ends.clone());
    let hooks = Hooks::new().end(move |_| {
        drop(own.lock().unwrap().take());
        counts.add(1);
        Ok(())
    });
    let first = hooks.pool(order, 2);
    *slot.lock().unwrap() = Some(Hooks::new().pool(order, 2));
    drop(first);
    assert!(slot.lock().unwrap().is_none());
    assert_eq!(ends.get(), 2);
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
    let mut pool = Hooks::new().pool(order, 64);
    for count in [0, 1, 2, 63, 64, 65] {
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

fn a_state_that_cannot_be_made_anew_fails_the_run(order: Order) {
    for panics in [false, true] {
        let broken = Arc::new(AtomicBool::new(false));
        let (breaks, ends) = (broken.clone(), Arc::new(AtomicU64::new(0)));
        let ended = ends.clone();
        let hooks = Hooks::new()
            .init(move |_| match breaks.load(SeqCst) {
                true if panics => panic!("no memory"),
                true => Err("no memory".into()),
                false => Ok(()),
            })
            .end(move |_| {
                ended.fetch_add(1, SeqCst);
                Ok(())
            })
            .work(|_, x| if x == 100 { panic!("no") } else { Ok(x) });
        let mut pool = hooks.pool(order, 2);
        assert!(pool.run([100]).unwrap_err().is_panic());
        broken.store(true, SeqCst);
        for _ in 0..3 {
            let error = pool.run((0..).inspect(|_| panic!("pulled"))).unwrap_err();
            assert_eq!((error.hook(), error.is_panic()), (Some(Hook::ProducerInit), panics));
            assert!(format!("{error:#}").contains("no memory"), "{error:#}");
            assert_eq!((pool.account().ok, pool.account().failed), (0, 0));
            let error = pool.outputs(0..3).next().unwrap().unwrap_err();
            assert_eq!(error.hook(), Some(Hook::ProducerInit));
        }
        broken.store(false, SeqCst);
        check_works(&mut pool);
        pool.close().unwrap();
        assert_eq!(ends.load(SeqCst), 2);
    }
}

/// Inputs, outputs and states are dropped, whether wanted or not.
fn items_of_a_run_are_gone_when_it_returns(order: Order) {
    let item = Arc::new(());
    let fails = |_: &mut (), (x, item): (u64, Arc<()>)| {
        if x == 250 { Err("no".into()) } else { Ok((x, item)) }
    };
    let work = map(|_| Ok(()), move |_, state, input| fails(state, input));
    let fold = work.fold(
        |_| Ok(vec![]),
        |cx, all, (x, item): (u64, Arc<()>)| {
            if x == 30 {
                cx.stop();
            }
            all.push(item);
            Ok(())
        },
    );
    let mut pool = AnyOrderRunner::builder(fold).order(order).devices(3).build().unwrap();
    let items = |range: std::ops::Range<u64>| range.map(|x| (x, item.clone()));
    assert!(pool.run(items(0..100)).is_ok());
    assert_eq!(Arc::strong_count(&item), 1, "after a stop");
    assert!(pool.run(items(240..300)).is_err());
    assert_eq!(Arc::strong_count(&item), 1, "after a failure");
    drop(pool.outputs(items(60..200)).take(5).collect::<Vec<_>>());
    assert_eq!(Arc::strong_count(&item), 1, "after a stream that was dropped");
    pool.cancel_token().cancel();
    assert!(pool.run(items(60..200)).is_err());
    assert_eq!(Arc::strong_count(&item), 1, "after a cancel");
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

fn a_failed_build_ends_the_others(order: Order) {
    for panics in [false, true] {
        let states = States::default();
        let States { made, ended } = states.clone();
        let hooks = Hooks::new()
            .init(move |cx| {
                if cx.producer() == 2 {
                    if panics {
                        panic!("no memory");
                    }
                    return Err("no memory".into());
                }
                made.fetch_add(1, SeqCst);
                Ok(())
            })
            .end(move |_| {
                ended.fetch_add(1, SeqCst);
                Ok(())
            });
        let error = AnyOrderRunner::builder(hooks).order(order).devices(4).build().unwrap_err();
        assert_eq!((error.hook(), error.is_panic()), (Some(Hook::ProducerInit), panics));
        states.check(3, 3);
    }
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
