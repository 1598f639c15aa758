//! A catalogue of faults, group C: life cycle and concurrency, C1 to C7. The name of a test begins with the
//! number of the fault and says what is expected of it.
//!
//! C8 to C12: `cancel_faults`. C4: `process_ends`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use gangline::{AnyOrderRunner, CfgNode, Hook, Order, OrderedRunner, UnorderedRunner};

use crate::probe::{Fault, Probe, both_orders, check_afterwards, check_summary, output};
use crate::support::{Counter, Gate, map};

both_orders!(
    c1_a_stream_dropped_at_its_third_output_ends_its_run,
    c1_dropping_a_stream_waits_for_the_hooks_that_run,
    c1_a_forgotten_stream_is_ended_by_the_next_call,
    c1_a_stream_that_failed_is_over,
    c1_a_runner_dropped_on_its_own_thread_does_not_join_itself,
    c2_closing_twice_and_running_closed,
    c2_closing_and_activating_again,
    c2_an_activation_that_fails_leaves_it_closed,
    c3_dropped_while_the_caller_panics,
    c5_two_threads_take_turns,
    c6_nothing_of_a_failed_run_reaches_the_next,
    c7_a_runner_inside_a_hook,
    c7_a_runner_inside_a_state,
);

fn c1_a_stream_dropped_at_its_third_output_ends_its_run(order: Order) {
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

fn c1_dropping_a_stream_waits_for_the_hooks_that_run(order: Order) {
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

fn c1_a_forgotten_stream_is_ended_by_the_next_call(order: Order) {
    let begin = || {
        let mut runner = Probe::new().on_three(order);
        let tally = runner.runner().tally();
        let mut stream = runner.outputs(tally.input(0..1000));
        assert!(stream.next().unwrap().is_ok());
        std::mem::forget(stream);
        assert_eq!(runner.account().ok, 1);
        (runner, tally)
    };
    let (mut runner, tally) = begin();
    check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
    assert_eq!((tally.inputs.alive(), tally.outputs.alive()), (0, 0));
    runner.close().unwrap();

    let (mut runner, tally) = begin();
    assert_eq!(runner.outputs(tally.input(0..20)).map(Result::unwrap).count(), 20);
    assert_eq!((tally.inputs.alive(), tally.outputs.alive()), (0, 0));

    let (mut runner, tally) = begin();
    runner.close().unwrap();
    assert_eq!((tally.inputs.alive(), tally.outputs.alive(), tally.threads.alive()), (0, 0, 0));
    assert_eq!(runner.account().ok, 1);

    let (runner, tally) = begin();
    drop(runner);
    assert_eq!((tally.inputs.alive(), tally.outputs.alive(), tally.threads.alive()), (0, 0, 0));
    assert_eq!(tally.called(Hook::ProducerEnd).get(), 3);
}

fn c1_a_stream_that_failed_is_over(order: Order) {
    for fault in Fault::BOTH {
        let mut runner =
            Probe::new().failing(Hook::ProducerWork, fault, |item| item == 7).on_three(order);
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
            assert_eq!(values, (0..7).map(output).collect::<Vec<_>>());
        }
        let error = runner.outputs(tally.input(0..8)).find_map(Result::err).unwrap();
        fault.check(&error, Hook::ProducerWork, Some(7));
        drop(outputs);
        tally.check_run_is_over();
        runner.close().unwrap();
        tally.check_closed();
    }
}

/// A stream is forgotten while item 1 of it is at work; the hook then drops the runner.
fn c1_a_runner_dropped_on_its_own_thread_does_not_join_itself(order: Order) {
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

fn c2_closing_twice_and_running_closed(order: Order) {
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

fn c2_closing_and_activating_again(order: Order) {
    let mut runner = Probe::new().on_three(order);
    let tally = runner.runner().tally();
    for rounds in 1..=5 {
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

fn c2_an_activation_that_fails_leaves_it_closed(order: Order) {
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

fn c3_dropped_while_the_caller_panics(order: Order) {
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

fn c5_two_threads_take_turns(order: Order) {
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

fn c6_nothing_of_a_failed_run_reaches_the_next(order: Order) {
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

fn c7_a_runner_inside_a_hook(order: Order) {
    let nested = map(
        |_| Ok(()),
        move |_, _, x: u64| {
            let mut inner = UnorderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)), 2)?;
            let sum: u64 = inner.run([x, x])?.iter().sum();
            inner.close()?;
            Ok(sum)
        },
    );
    let mut runner = AnyOrderRunner::builder(nested).devices(2).order(order).build().unwrap();
    let mut sums = runner.run(0..50).unwrap();
    sums.sort_unstable();
    assert_eq!(sums, (0..50).map(|x| 2 * x + 2).collect::<Vec<_>>());
    runner.close().unwrap();
}

fn c7_a_runner_inside_a_state(order: Order) {
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
