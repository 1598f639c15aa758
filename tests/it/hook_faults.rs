//! Hooks that fail or panic, each in turn: what the error says, and that nothing of it reaches the next run.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use gangline::{AnyOrderRunner, Error, Hook, Order};

use crate::hooks::{Hooks, both_orders};
use crate::probe::{Fault, Probe, check_afterwards, check_summary, three};
use crate::support::{Counter, Gate};

both_orders!(
    an_init_that_fails_on_one_device_fails_the_building,
    an_init_that_panics_is_not_ended_and_the_others_are,
    all_inits_run_at_the_same_time,
    all_inits_fail,
    producer_work_fails_at_any_item,
    every_item_fails,
    of_two_failures_the_first_stands,
    producer_work_panics_at_any_item,
    every_producer_loses_its_state_at_once,
    a_state_that_cannot_be_made_anew_fails_the_next_run,
    producer_end_fails_on_one_device,
    producer_end_fails_everywhere_and_the_first_place_is_named,
    dropping_is_quiet_about_producer_end,
    consumer_init_fails_before_anything_is_pulled,
    consumer_fails_at_any_item,
    consumer_fails_while_everything_is_blocked,
    consumer_fails_while_every_producer_is_at_work,
    consumer_end_fails_after_everything_was_consumed,
    hooks_may_hold_locks_and_start_threads,
    states_that_fail_to_be_made_anew_may_succeed_later,
);

#[track_caller]
fn build_fails(probe: Probe, order: Order) -> Error {
    let tally = probe.tally();
    let error = AnyOrderRunner::builder(probe).devices(three()).order(order).build().unwrap_err();
    tally.check_closed();
    error
}

fn an_init_that_fails_on_one_device_fails_the_building(order: Order) {
    one_init(Fault::Error, order);
}

fn an_init_that_panics_is_not_ended_and_the_others_are(order: Order) {
    one_init(Fault::Panic, order);
}

#[track_caller]
fn one_init(fault: Fault, order: Order) {
    for bad in 0..3 {
        let probe = Probe::new().on_producer(Hook::ProducerInit, move |cx| {
            if cx.producer() == bad { fault.strike() } else { Ok(()) }
        });
        let tally = probe.tally();
        let error = build_fails(probe, order);
        fault.check(&error, Hook::ProducerInit, None);
        assert_eq!(error.device().unwrap().to_string(), format!("cuda:{bad}"));
        assert_eq!(tally.called(Hook::ProducerInit).get(), 3);
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 2);
    }
}

fn all_inits_run_at_the_same_time(order: Order) {
    let all = Barrier::new(3);
    let probe = Probe::new().on_producer(Hook::ProducerInit, move |_| {
        all.wait();
        Ok(())
    });
    let mut runner = probe.on_three(order);
    let input = runner.runner().tally().input(0..9);
    check_summary(runner.run(input).unwrap(), 0..9, order);
    check_afterwards(runner);
}

fn all_inits_fail(order: Order) {
    for fault in Fault::BOTH {
        let probe = Probe::new().failing(Hook::ProducerInit, fault, |_| true);
        let tally = probe.tally();
        fault.check(&build_fails(probe, order), Hook::ProducerInit, None);
        assert_eq!(tally.called(Hook::ProducerInit).get(), 3);
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 0);
    }
}

fn producer_work_fails_at_any_item(order: Order) {
    one_item(Fault::Error, order);
}

fn producer_work_panics_at_any_item(order: Order) {
    one_item(Fault::Panic, order);
}

#[track_caller]
fn one_item(fault: Fault, order: Order) {
    for bad in [0, 7, 19] {
        let probe = Probe::new().failing(Hook::ProducerWork, fault, move |item| item == bad);
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..20)).unwrap_err();
        fault.check(&error, Hook::ProducerWork, Some(bad));
        assert_eq!(error.attempt(), Some(1));
        assert_eq!(runner.account().failed, 1);
        let seen = tally.seen();
        match order {
            Order::Input => assert_eq!(seen, (0..bad).collect::<Vec<_>>()),
            Order::Completion => assert!(!seen.contains(&bad)),
        }
        assert_eq!(tally.called(Hook::ConsumerEnd).get(), 0);
        check_afterwards(runner);
        let again = u64::from(fault == Fault::Panic);
        assert_eq!(tally.called(Hook::ProducerInit).get(), 3 + again, "only what was lost");
    }
}

fn every_item_fails(order: Order) {
    for fault in Fault::BOTH {
        let mut runner = Probe::new().failing(Hook::ProducerWork, fault, |_| true).on_three(order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..1000)).unwrap_err();
        let item = if order == Order::Input { Some(0) } else { error.item() };
        fault.check(&error, Hook::ProducerWork, item);
        assert_eq!((runner.account().ok, runner.account().failed), (0, 1));
        check_afterwards(runner);
    }
}

/// Item 3 fails first; item 1, which is at work at that moment, fails afterwards.
fn of_two_failures_the_first_stands(order: Order) {
    for fault in Fault::BOTH {
        let at_work = Arc::new(Barrier::new(2));
        let failed = Arc::new(Counter::new());
        let count = failed.clone();
        let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| match cx.item() {
            Some(1) => {
                at_work.wait();
                count.reach(1);
                fault.strike()
            }
            Some(3) => {
                at_work.wait();
                count.add(1);
                fault.strike()
            }
            _ => Ok(()),
        });
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..20)).unwrap_err();
        let item = if order == Order::Input { Some(1) } else { error.item() };
        fault.check(&error, Hook::ProducerWork, item);
        assert!([Some(1), Some(3)].contains(&item));
        check_afterwards(runner);
    }
}

fn every_producer_loses_its_state_at_once(order: Order) {
    let all = Barrier::new(3);
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |_| {
        all.wait();
        Fault::Panic.strike()
    });
    let mut runner = probe.on_three(order);
    let tally = runner.runner().tally();
    let error = runner.run(tally.input(0..3)).unwrap_err();
    Fault::Panic.check(&error, Hook::ProducerWork, error.item());
    assert_eq!(tally.producer_states.alive(), 0);
    check_afterwards(runner);
    assert_eq!(tally.called(Hook::ProducerInit).get(), 6);
}

fn a_state_that_cannot_be_made_anew_fails_the_next_run(order: Order) {
    for fault in Fault::BOTH {
        let inits = Counter::new();
        let probe =
            Probe::new()
                .on_producer(Hook::ProducerInit, move |_| {
                    if inits.add(1) > 3 { fault.strike() } else { Ok(()) }
                })
                .failing(Hook::ProducerWork, Fault::Panic, |item| item == 3);
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        runner.run(tally.input(0..20)).unwrap_err();
        tally.check_account(runner.account());
        let before = tally.pulled.get();
        for _ in 0..2 {
            let error = runner.run(tally.input(0..20)).unwrap_err();
            fault.check(&error, Hook::ProducerInit, None);
            tally.check_account(runner.account());
            let error = runner.outputs(tally.input(0..20)).next().unwrap().unwrap_err();
            fault.check(&error, Hook::ProducerInit, None);
            assert_eq!(tally.pulled.get(), before, "nothing is pulled");
        }
        check_afterwards(runner);
    }
}

fn producer_end_fails_on_one_device(order: Order) {
    for fault in Fault::BOTH {
        let probe = Probe::new().on_producer(Hook::ProducerEnd, move |cx| {
            if cx.producer() == 1 { fault.strike() } else { Ok(()) }
        });
        let mut runner = probe.on_three(order);
        let tally = runner.runner().tally();
        check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
        let error = runner.close().unwrap_err();
        fault.check(&error, Hook::ProducerEnd, None);
        assert_eq!(error.device().unwrap().to_string(), "cuda:1");
        tally.check_closed();
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 3);
        assert!(!runner.is_active());
        runner.close().expect("a closed runner is closed");
        runner.activate().unwrap();
        check_afterwards(runner);
    }
}

fn producer_end_fails_everywhere_and_the_first_place_is_named(order: Order) {
    for fault in Fault::BOTH {
        let ended = Counter::new();
        let probe = Probe::new().on_producer(Hook::ProducerEnd, move |cx| {
            // The last place is the first to fail.
            ended.reach(2 - cx.producer() as u64);
            ended.add(1);
            fault.strike()
        });
        let mut runner = probe.on_three(order);
        let error = runner.close().unwrap_err();
        fault.check(&error, Hook::ProducerEnd, None);
        assert_eq!(error.device().unwrap().to_string(), "cuda:0");
        runner.runner().tally().check_closed();
    }
}

fn dropping_is_quiet_about_producer_end(order: Order) {
    for fault in Fault::BOTH {
        let runner = Probe::new().failing(Hook::ProducerEnd, fault, |_| true).on_three(order);
        let tally = runner.runner().tally();
        drop(runner);
        tally.check_closed();
        assert_eq!(tally.called(Hook::ProducerEnd).get(), 3);
    }
}

fn consumer_init_fails_before_anything_is_pulled(order: Order) {
    for fault in Fault::BOTH {
        let mut runner = Probe::new().failing(Hook::ConsumerInit, fault, |_| true).on_three(order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..20)).unwrap_err();
        fault.check(&error, Hook::ConsumerInit, None);
        assert_eq!(tally.pulled.get(), 0);
        assert_eq!(tally.called(Hook::ProducerWork).get(), 0);
        assert_eq!(tally.called(Hook::ConsumerEnd).get(), 0);
        check_afterwards(runner);
    }
}

/// Fails at the `bad`-th result that is consumed.
fn failing_consumer(fault: Fault, bad: u64) -> Probe {
    let consumed = Counter::new();
    Probe::new().on_consumer(Hook::ConsumerWork, move |_| {
        if consumed.add(1) == bad + 1 { fault.strike() } else { Ok(()) }
    })
}

#[track_caller]
fn check_failed_consumer(runner: AnyOrderRunner<Probe>, fault: Fault, bad: u64, error: &Error) {
    let tally = runner.runner().tally();
    let item = if runner.order() == Order::Input { Some(bad) } else { error.item() };
    fault.check(error, Hook::ConsumerWork, item);
    let seen = tally.seen();
    assert_eq!(seen.len() as u64, bad, "none is consumed after the failure");
    if runner.order() == Order::Input {
        assert_eq!(seen, (0..bad).collect::<Vec<_>>());
    }
    assert_eq!((runner.account().ok, runner.account().failed), (bad, 1));
    assert_eq!(tally.called(Hook::ConsumerEnd).get(), 0);
    check_afterwards(runner);
}

/// An error and a panic differ in their text only.
fn consumer_fails_at_any_item(order: Order) {
    for fault in Fault::BOTH {
        for bad in [0, 7, 19] {
            let mut runner = failing_consumer(fault, bad).on_three(order);
            let input = runner.runner().tally().input(0..20);
            let error = runner.run(input).unwrap_err();
            check_failed_consumer(runner, fault, bad, &error);
        }
    }
}

/// The window is used up, every producer has delivered and waits for items, the feeder for credits.
fn consumer_fails_while_everything_is_blocked(order: Order) {
    for fault in Fault::BOTH {
        let probe = Probe::new();
        let tally = probe.tally();
        let probe = probe.on_consumer(Hook::ConsumerWork, move |_| {
            tally.succeeded(Hook::ProducerWork).reach(8);
            fault.strike()
        });
        let mut runner = probe.on_three_within(8, order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..1_000_000)).unwrap_err();
        assert_eq!(tally.pulled.get(), 8);
        check_failed_consumer(runner, fault, 0, &error);
    }
}

/// What the producers hold when the consumer fails is worked on to its end, and dropped.
fn consumer_fails_while_every_producer_is_at_work(order: Order) {
    for fault in Fault::BOTH {
        let (at_work, failing) = (Arc::new(Counter::new()), Arc::new(Gate::new()));
        let (count, gate) = (at_work.clone(), failing.clone());
        let probe = Probe::new()
            .on_producer(Hook::ProducerWork, move |cx| {
                if cx.item() > Some(0) {
                    count.add(1);
                    gate.pass();
                }
                Ok(())
            })
            .on_consumer(Hook::ConsumerWork, move |_| {
                at_work.reach(3);
                failing.open();
                fault.strike()
            });
        let mut runner = probe.on_three_within(8, order);
        let input = runner.runner().tally().input(0..1_000_000);
        let error = runner.run(input).unwrap_err();
        check_failed_consumer(runner, fault, 0, &error);
    }
}

fn consumer_end_fails_after_everything_was_consumed(order: Order) {
    for fault in Fault::BOTH {
        let mut runner = Probe::new().failing(Hook::ConsumerEnd, fault, |_| true).on_three(order);
        let tally = runner.runner().tally();
        let error = runner.run(tally.input(0..20)).unwrap_err();
        fault.check(&error, Hook::ConsumerEnd, None);
        assert_eq!((runner.account().ok, runner.account().failed), (20, 0));
        check_afterwards(runner);
    }
}

/// A lock held in a hook that starts threads of its own, as data-parallel libraries do.
fn hooks_may_hold_locks_and_start_threads(order: Order) {
    let sum = Arc::new(std::sync::Mutex::new(0));
    let (work, consume) = (sum.clone(), sum.clone());
    let probe = Probe::new()
        .on_producer(Hook::ProducerWork, move |_| {
            let mut sum = work.lock().unwrap();
            *sum += std::thread::scope(|scope| {
                let halves = [scope.spawn(|| 1), scope.spawn(|| 2)];
                halves.map(|half| half.join().unwrap()).iter().sum::<u64>()
            });
            Ok(())
        })
        .on_consumer(Hook::ConsumerWork, move |_| {
            *consume.lock().unwrap() += 10;
            Ok(())
        });
    let mut runner = probe.on_three(order);
    let input = runner.runner().tally().input(0..200);
    check_summary(runner.run(input).unwrap(), 0..200, order);
    assert_eq!(*sum.lock().unwrap(), 200 * 13);
    check_afterwards(runner);
}

/// Both lose their state, one cannot rebuild it; then all is well.
fn states_that_fail_to_be_made_anew_may_succeed_later(order: Order) {
    let armed = Arc::new(AtomicU64::new(0));
    let arms = armed.clone();
    let both = Counter::new();
    let hooks = Hooks::new()
        .init(
            move |cx| {
                if arms.load(SeqCst) & (1 << cx.producer()) != 0 { Err("no")? } else { Ok(()) }
            },
        )
        .work(move |_, x| {
            if x == 99 {
                both.add(1);
                both.reach(2);
                panic!("no");
            }
            Ok(x)
        });
    let mut pool = hooks.pool(order, 2);
    for bits in [1, 2, 3, 1, 2] {
        armed.store(bits, SeqCst);
        let _ = pool.run([99, 99]);
        let _ = pool.run(0..5);
    }
    armed.store(0, SeqCst);
    assert_eq!(pool.run(0..3).unwrap().len(), 3);
}
