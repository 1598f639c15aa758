//! Speculation: items of a slow producer, started on another too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use gangline::{AnyOrderRunner, Device, Devices, Error, OnError, Order, OrderedRunner};

use crate::support::{Counter, Gate, map, no_hang};

#[test]
fn an_item_that_is_stuck_is_started_elsewhere_and_the_run_does_not_wait() {
    no_hang(|| {
        for order in [Order::Input, Order::Completion] {
            let (gate, starts) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
            let consumed = Arc::new(AtomicU64::new(0));
            let (won, looked) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
            let told = Arc::new(AtomicBool::new(false));
            let (stuck, count, is_told) = (gate.clone(), starts.clone(), told.clone());
            let (is_won, has_looked) = (won.clone(), looked.clone());
            let work = map(
                |_| Ok(()),
                move |cx, (), x: u64| {
                    if x == 5 && count.fetch_add(1, SeqCst) == 0 {
                        is_won.pass();
                        is_told.store(cx.is_cancelled(), SeqCst);
                        has_looked.open();
                        stuck.pass();
                    }
                    Ok(x)
                },
            );
            let seen = consumed.clone();
            let work = work.fold(
                |_| Ok(vec![]),
                move |_, all, x| {
                    seen.fetch_add(1, SeqCst);
                    all.push(x);
                    if x == 5 {
                        // While the run goes on: at its end every hook is told.
                        won.open();
                        looked.pass();
                    }
                    Ok(())
                },
            );
            let mut runner = AnyOrderRunner::builder(work)
                .order(order)
                .devices(3)
                .window(8)
                .speculate()
                .build()
                .unwrap();
            let mut all = runner.run(0..50).unwrap();
            assert!(told.load(SeqCst), "the first has lost");
            all.sort_unstable();
            assert_eq!(all, (0..50).collect::<Vec<_>>());
            assert_eq!(consumed.load(SeqCst), 50, "exactly one result each");
            assert_eq!(starts.load(SeqCst), 2);
            assert_eq!(runner.run(100..120).unwrap().len(), 20, "the others go on without it");
            gate.open();
            runner.close().unwrap();
        }
    });
}

/// Of three producers, two are on it: the idle one would only be stuck too.
#[test]
fn an_item_that_is_stuck_on_a_gpu_is_started_on_another() {
    no_hang(|| {
        for _ in 0..20 {
            let devices = "cuda:0,cuda:1*2".parse::<Devices>().unwrap().names_only();
            let (begun, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(Gate::new()));
            let (count, over) = (begun.clone(), is_over.clone());
            let elsewhere = Counter::new();
            let work = map(
                |_| Ok(()),
                move |cx, (), x: u64| {
                    match *cx.device() {
                        Device::Cuda(0) => _ = elsewhere.add(1),
                        _ => match count.fetch_add(1, SeqCst) {
                            // Idle when all is done but what is stuck.
                            1 => elsewhere.reach(29),
                            _ => over.pass(),
                        },
                    }
                    Ok(x)
                },
            );
            let mut runner = OrderedRunner::builder(work)
                .devices(devices)
                .window(100)
                .speculate()
                .build()
                .unwrap();
            assert_eq!(runner.run(0..31).unwrap().len(), 31);
            assert!(begun.load(SeqCst) <= 2, "nothing was started twice on that GPU");
            is_over.open();
            runner.close().unwrap();
        }
    });
}

#[test]
fn an_error_of_one_copy_counts_only_when_the_other_fails_too() {
    no_hang(|| {
        for both in [false, true] {
            let (gate, starts) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
            let count = starts.clone();
            let work = map(
                |_| Ok(()),
                move |_, (), x: u64| {
                    if x != 5 {
                        return Ok(x);
                    }
                    if count.fetch_add(1, SeqCst) == 0 {
                        gate.pass();
                        return if both { Err("the first".into()) } else { Ok(x) };
                    }
                    gate.open();
                    Err("the copy".into())
                },
            );
            let mut runner = OrderedRunner::builder(work)
                .devices(2)
                .speculate()
                .on_error(OnError::Skip)
                .build()
                .unwrap();
            let all = runner.run(0..20).unwrap();
            assert_eq!(all.len(), if both { 19 } else { 20 });
            assert_eq!(runner.account().failed, u64::from(both));
            assert_eq!(runner.failures().len(), usize::from(both));
            assert_eq!(starts.load(SeqCst), 2);
        }
    });
}

#[test]
fn producers_that_have_all_lost_come_back_for_the_next_run() {
    no_hang(|| {
        let (gate, back) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, returned) = (gate.clone(), back.clone());
        let work = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                if x == 0 && cx.producer() == 0 {
                    stuck.pass();
                    returned.add(1);
                }
                Ok((x, cx.producer()))
            },
        );
        let mut runner = OrderedRunner::builder(work).devices(2).speculate().build().unwrap();
        for _ in 0..20 {
            let all = runner.run(0..20).unwrap();
            assert!(all.iter().map(|&(x, _)| x).eq(0..20));
        }
        gate.open();
        runner.close().unwrap();
    });
}

#[test]
fn nothing_is_started_twice_while_there_is_something_else_to_do() {
    no_hang(|| {
        let starts = Arc::new(AtomicU64::new(0));
        let count = starts.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                count.fetch_add(1, SeqCst);
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(work).devices(3).speculate().build().unwrap();
        assert_eq!(runner.run(0..2_000).unwrap().len(), 2_000);
        // A machine that stands still for 10 ms may make a copy of one.
        assert!(starts.load(SeqCst) < 2_100);
    });
}

/// What a producer comes to that makes its state anew for a copy, and the item is done before it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Init {
    GivesUpIfTold,
    Fails,
}

#[test]
fn a_producer_that_makes_its_state_anew_for_a_copy_has_not_lost_and_fails_no_item() {
    no_hang(|| {
        for third in [Init::GivesUpIfTold, Init::Fails] {
            let (stuck, is_over) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
            let (later, inits) = (Arc::new(Counter::new()), AtomicU64::new(0));
            let (release, go_on, next) = (stuck.clone(), is_over.clone(), later.clone());
            let work = map(
                move |cx| {
                    if inits.fetch_add(1, SeqCst) != 2 {
                        return Ok(());
                    }
                    release.open();
                    // The window is full until item 0 is consumed.
                    next.reach(1);
                    let is_told = cx.is_cancelled();
                    go_on.open();
                    if is_told || third == Init::Fails { Err("no state".into()) } else { Ok(()) }
                },
                move |cx, (), x: u64| match x {
                    0 => {
                        stuck.pass();
                        Ok(x)
                    }
                    1 => panic!("it loses its state"),
                    2 => {
                        later.add(1);
                        is_over.pass();
                        // The hook fails after it has opened the gate, and the run must not end before.
                        while third == Init::Fails && !cx.is_cancelled() {
                            std::thread::yield_now();
                        }
                        Ok(x)
                    }
                    _ => Ok(x),
                },
            );
            let mut runner = OrderedRunner::builder(work)
                .devices(2)
                .window(2)
                .speculate()
                .on_error(OnError::Skip)
                .min_producers(2)
                .build()
                .unwrap();
            match (third, runner.run(0..20)) {
                (Init::GivesUpIfTold, Ok(all)) => assert_eq!(all.len(), 19),
                (Init::Fails, Err(error)) => {
                    assert!(matches!(error, Error::TooFewProducers { .. }), "{error:#}");
                    assert!(error.items().is_empty(), "no item is to blame");
                }
                (_, came) => panic!("{third:?}: {came:?}"),
            }
        }
    });
}

/// An item that signals when it is copied for the second time, which is for a producer that is about to
/// race. It waits until another item is worked on.
struct Copied {
    item: u64,
    copies: Arc<AtomicU64>,
    stuck: Arc<Gate>,
    later: Arc<Counter>,
}

impl Clone for Copied {
    fn clone(&self) -> Self {
        let Copied { item, copies, stuck, later } = self;
        if *item == 0 && copies.fetch_add(1, SeqCst) == 1 {
            stuck.open();
            // The window is full until item 0 is consumed.
            later.reach(1);
        }
        let (copies, stuck, later) = (copies.clone(), stuck.clone(), later.clone());
        Copied { item: *item, copies, stuck, later }
    }
}

#[test]
fn a_copy_that_has_not_begun_when_the_item_is_done_is_not_worked_on() {
    no_hang(|| {
        let (copies, starts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (stuck, later) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let count = starts.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: Copied| {
                match x.item {
                    0 if count.fetch_add(1, SeqCst) == 0 => x.stuck.pass(),
                    2 => _ = x.later.add(1),
                    _ => {}
                }
                Ok(x.item)
            },
        );
        let mut runner =
            OrderedRunner::builder(work).devices(2).window(2).speculate().build().unwrap();
        let input = (0..20).map(|item| {
            let (copies, stuck, later) = (copies.clone(), stuck.clone(), later.clone());
            Copied { item, copies, stuck, later }
        });
        assert_eq!(runner.run(input).unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(copies.load(SeqCst), 2, "there was a race");
        assert_eq!(starts.load(SeqCst), 1);
    });
}

#[test]
fn a_call_that_begins_while_the_others_sleep_is_helped() {
    no_hang(|| {
        let (stuck, starts) = (Arc::new(Gate::new()), AtomicU64::new(0));
        let release = stuck.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| match starts.fetch_add(1, SeqCst) {
                0 => Err("not yet".into()),
                1 => {
                    stuck.pass();
                    Ok(x)
                }
                _ => {
                    release.open();
                    Ok(x)
                }
            },
        );
        let soon = Duration::from_millis(50);
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .speculate()
            .retries(1)
            .backoff(soon, soon)
            .build()
            .unwrap();
        assert_eq!(runner.run([7]).unwrap(), [7]);
    });
}

#[test]
fn what_is_tried_again_does_not_wait_for_a_producer_that_has_lost() {
    no_hang(|| {
        for quarantines in [false, true] {
            let gate = Arc::new(Gate::new());
            let (stuck, starts, fails) = (gate.clone(), AtomicU64::new(0), AtomicU64::new(0));
            let work = map(
                |_| Ok(()),
                move |_, (), x: u64| match x {
                    0 if starts.fetch_add(1, SeqCst) == 0 => {
                        stuck.pass();
                        Ok(x)
                    }
                    1 if fails.fetch_add(1, SeqCst) == 0 => Err("not yet".into()),
                    _ => Ok(x),
                },
            );
            let builder = OrderedRunner::builder(work).devices(2).window(2).speculate();
            let builder = match quarantines {
                false => builder.retries(1),
                true => builder.quarantine_after(2),
            };
            let mut runner = builder.build().unwrap();
            assert_eq!(runner.run(0..20).unwrap(), (0..20).collect::<Vec<_>>());
            gate.open();
            runner.close().unwrap();
        }
    });
}

#[test]
fn a_loser_that_is_abandoned_fails_no_item() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (stuck, starts) = (gate.clone(), AtomicU64::new(0));
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 0 && starts.fetch_add(1, SeqCst) == 0 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let work = work.fold(|_| Ok(()), |_, (), _| Ok(()));
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .window(4)
            .speculate()
            .item_timeout(Duration::from_secs(1))
            .on_error(OnError::Skip)
            .min_producers(2)
            .build()
            .unwrap();
        // Without an end: the run goes on until the first producer is abandoned.
        let error = runner.run(0..).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 1, source: None, .. }), "{error:#}");
        assert_eq!(runner.account().failed, 0, "the other was done with it");
        gate.open();
    });
}

#[test]
fn a_producer_that_takes_nothing_new_helps_one_that_is_slow() {
    no_hang(|| {
        let stuck = Arc::new(Gate::new());
        let (starts, fails) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| match x {
                0 if starts.fetch_add(1, SeqCst) == 0 => {
                    stuck.pass();
                    Ok(x)
                }
                0 => {
                    stuck.open();
                    Ok(x)
                }
                1 if fails.fetch_add(1, SeqCst) == 0 => Err("not yet".into()),
                _ => Ok(x),
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .window(2)
            .speculate()
            .quarantine_after(1)
            .build()
            .unwrap();
        assert_eq!(runner.run(0..20).unwrap(), (0..20).collect::<Vec<_>>());
    });
}
