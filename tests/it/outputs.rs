//! Outputs that are dropped, forgotten or have failed, and how many of them may come.

use std::sync::{Arc, Mutex};
use std::thread;

use gangline::{AnyOrderRunner, Hook, Order, OrderedRunner};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Fault, Probe, Tally, check_summary, output};
use crate::support::{Counter, Gate, map, no_hang};

both_orders!(
    a_stream_dropped_at_its_third_output_ends_its_run,
    dropping_a_stream_waits_for_the_hooks_that_run,
    a_forgotten_stream_is_ended_by_the_next_call,
    a_stream_that_failed_is_over,
    a_runner_dropped_on_its_own_thread_does_not_join_itself,
    a_leaked_stream_with_everybody_at_work,
    dropped_on_its_own_producers_thread,
    dropped_by_its_own_producer_end,
);

fn a_stream_dropped_at_its_third_output_ends_its_run(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    let outputs: Vec<_> =
        runner.outputs(tally.input(0..1_000_000)).take(3).map(|item| item.unwrap().value).collect();
    if order == Order::Input {
        assert_eq!(outputs, [output(0), output(1), output(2)]);
    }
    let pulled = tally.pulled.get();
    let account = runner.account();
    assert_eq!((account.ok, account.failed, account.cancelled), (3, 0, pulled - 3));
    assert_eq!(account.unread, Some(1_000_000 - pulled));
    let (started, ended) =
        (tally.called(Hook::ProducerWork).get(), tally.succeeded(Hook::ProducerWork).get());
    assert_eq!(started, ended, "no hook runs any more");
    tally.check_run_is_over();
    assert_eq!(tally.called(Hook::ConsumerInit).get(), 0, "a stream has no consumer");
    drop(runner);
    tally.check_closed();
}

fn dropping_a_stream_waits_for_the_hooks_that_run(order: Order) {
    let (at_work, dropping) = (Arc::new(Counter::new()), Arc::new(Gate::new()));
    let (count, gate) = (at_work.clone(), dropping.clone());
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        if cx.item() > Some(0) {
            count.add(1);
            gate.pass();
        }
        Ok(())
    });
    let mut runner = probe.on_three(order);
    let tally = runner.runner().tally();
    let mut stream = runner.outputs(tally.input(0..100));
    assert_eq!(stream.next().unwrap().unwrap().value, output(0));
    // Not all of the window need be pulled by now, but one more was unless the first was quick.
    let opener = thread::spawn(move || dropping.open());
    drop(stream);
    let started = tally.called(Hook::ProducerWork).get();
    assert_eq!(tally.succeeded(Hook::ProducerWork).get(), started, "no hook runs any more");
    opener.join().unwrap();
    assert_eq!(at_work.get(), started - 1);
    tally.check_run_is_over();
    runner.close().unwrap();
    tally.check_closed();
}

/// The next use of a runner.
type Use = fn(&mut AnyOrderRunner<Probe>, &Arc<Tally>);

/// The stream is dropped first, then another is forgotten. The outputs that it had received are leaked with it.
fn a_forgotten_stream_is_ended_by_the_next_call(order: Order) {
    let next: [Use; 4] = [
        |runner, tally| {
            check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, runner.order());
        },
        |runner, tally| {
            assert_eq!(runner.outputs(tally.input(0..20)).map(Result::unwrap).count(), 20);
        },
        |runner, tally| {
            runner.close().unwrap();
            assert_eq!(tally.threads.alive(), 0);
            runner.activate().unwrap();
        },
        |runner, tally| {
            std::mem::forget(runner.outputs(tally.input(0..20)));
            assert_eq!(runner.outputs(tally.input(0..20)).count(), 20);
        },
    ];
    for taken in [0, 1, 2, 7] {
        let begin = || {
            let mut runner = Probe::new().on_three(order);
            let tally = runner.runner().tally();
            assert_eq!(runner.outputs(tally.input(0..1000)).take(taken).count(), taken);
            let mut stream = runner.outputs(tally.input(0..1000));
            (0..taken).for_each(|_| assert!(stream.next().unwrap().is_ok()));
            std::mem::forget(stream);
            (runner, tally)
        };
        for next in next {
            let (mut runner, tally) = begin();
            next(&mut runner, &tally);
            assert_eq!(tally.inputs.alive(), 0);
            check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
            runner.close().unwrap();
        }
        let (runner, tally) = begin();
        drop(runner);
        assert_eq!((tally.inputs.alive(), tally.threads.alive()), (0, 0));
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 3);
    }
}

fn a_stream_that_failed_is_over(order: Order) {
    let cases = Fault::BOTH.into_iter().flat_map(|fault| [0, 1, 7, 30].map(|bad| (fault, bad)));
    for (fault, bad) in cases {
        let probe = Probe::new().failing(Hook::ProducerWork, fault, move |item| item == bad);
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        let mut stream = runner.outputs(tally.input(0..1000));
        let outputs: Vec<_> = stream.by_ref().map_while(Result::ok).collect();
        assert!((0..3).all(|_| stream.next().is_none()), "the error was its last");
        drop(stream);
        let account = runner.account();
        assert_eq!((account.ok, account.failed), (outputs.len() as u64, 1));
        assert_eq!(account.ok + account.failed + account.cancelled, tally.pulled.get());
        if order == Order::Input {
            let values: Vec<_> = outputs.iter().map(|item| item.value).collect();
            assert_eq!(values, (0..bad).map(output).collect::<Vec<_>>());
        }
        let error = runner.outputs(tally.input(0..bad + 1)).find_map(Result::err).unwrap();
        fault.check(&error, Hook::ProducerWork, Some(bad));
        drop(outputs);
        tally.check_run_is_over();
        runner.close().unwrap();
        tally.check_closed();
    }
}

/// A stream is forgotten while item 1 of it is at work; the hook then drops the runner.
fn a_runner_dropped_on_its_own_thread_does_not_join_itself(order: Order) {
    for devices in [1, 2] {
        let slot = Arc::new(Mutex::new(None::<AnyOrderRunner<Probe>>));
        let (filled, dropped) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (place, wait, done) = (slot.clone(), filled.clone(), dropped.clone());
        let probe = Probe::new();
        let tally = probe.tally();
        let pulls = tally.clone();
        let probe = probe.on_producer(Hook::ProducerWork, move |cx| {
            if cx.item() == Some(0) {
                pulls.pulled.reach(2);
                return Ok(());
            }
            wait.pass();
            drop(place.lock().unwrap().take());
            assert!(cx.is_cancelled());
            done.open();
            Ok(())
        });
        let mut runner =
            AnyOrderRunner::builder(probe).devices(devices).order(order).build().unwrap();
        let mut stream = runner.outputs(tally.input(0..2));
        assert_eq!(stream.next().unwrap().unwrap().value, output(0));
        std::mem::forget(stream);
        *slot.lock().unwrap() = Some(runner);
        filled.open();
        dropped.pass();
        tally.called(Hook::ProducerEnd).reach(devices as u64);
        assert_eq!(tally.succeeded(Hook::ProducerWork).get(), 2);
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
        assert_eq!(pool.run(0..20).unwrap().len(), 20);
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

#[test]
fn outputs_know_how_many_may_come() {
    no_hang(|| {
        let mut same = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 2).unwrap();
        let mut outputs = same.outputs(0..10);
        for left in (0..10).rev() {
            assert_eq!(outputs.size_hint(), (0, Some(left + 1)));
            outputs.next().unwrap().unwrap();
        }
        assert!(outputs.next().is_none());
        assert_eq!(outputs.size_hint(), (0, Some(0)));
        drop(outputs);
        assert_eq!(same.outputs((0..9).filter(|x| x % 3 == 0)).size_hint(), (0, Some(9)));
        assert_eq!(same.outputs(std::iter::from_fn(|| None)).size_hint(), (0, None));
        let mut endless = same.outputs(1..);
        endless.next().unwrap().unwrap();
        assert_eq!(endless.size_hint().0, 0);
        drop(endless);
        same.close().unwrap();
        let mut refused = same.outputs(0..10);
        assert_eq!(refused.size_hint(), (1, Some(1)));
        assert!(refused.next().unwrap().unwrap_err().is_closed());
        assert_eq!(refused.size_hint(), (0, Some(0)));
    });
}

#[test]
fn an_error_that_ends_the_outputs_leaves_none() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), x: u64| if x == 1 { Err("bad".into()) } else { Ok(x) });
        let mut bad = OrderedRunner::new(bad, 1).unwrap();
        let mut outputs = bad.outputs(0..10);
        outputs.next().unwrap().unwrap();
        outputs.next().unwrap().unwrap_err();
        assert_eq!(outputs.size_hint(), (0, Some(0)));
    });
}
