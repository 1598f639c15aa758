//! Hooks that do not return in time.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use gangline::{
    Batch, CancelToken, Error, Hook, OnError, OrderedRunner, ProducerContext, UnorderedRunner,
    Verdict,
};

use crate::hooks::sorted;
use crate::support::{Counter, Gate, map, no_hang, one_by_one};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// An item is stuck until the gate opens: on its first attempt, or on each.
fn stuck_at(
    item: u64,
    gate: &Arc<Gate>,
    attempts: u32,
) -> impl Fn(&ProducerContext<'_>, &mut (), u64) -> gangline::Result<u64> + Send + Sync + 'static {
    let gate = gate.clone();
    move |cx, (), x| {
        if x == item && cx.attempt() <= attempts {
            gate.pass();
        }
        Ok(x)
    }
}

#[test]
fn an_item_that_is_stuck_fails_and_its_producer_is_written_off() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), stuck_at(5, &gate, 9)))
            .devices(2)
            .item_timeout(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let expected: Vec<u64> = (0..50).filter(|&x| x != 5).collect();
        assert_eq!(runner.run(0..50).unwrap(), expected);
        let [error] = runner.failures() else { panic!("{:?}", runner.failures()) };
        assert!(error.is_timeout(), "{error:#}");
        assert_eq!((error.item(), error.hook()), (Some(5), Some(Hook::ProducerWork)));
        assert_eq!(runner.account().failed, 1);
        assert_eq!(runner.run(0..5).unwrap().len(), 5, "the other producer goes on");
        gate.open();
        runner.close().unwrap();
    });
}

#[test]
fn an_item_that_was_stuck_is_tried_again_elsewhere() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), stuck_at(5, &gate, 1)))
            .devices(2)
            .item_timeout(SOON)
            .retries(1)
            .build()
            .unwrap();
        assert_eq!(runner.run(0..50).unwrap(), (0..50).collect::<Vec<_>>());
        gate.open();
    });
}

#[test]
fn a_run_ends_when_its_last_producer_is_stuck() {
    no_hang(|| {
        for on_error in [OnError::Stop, OnError::Skip] {
            let gate = Arc::new(Gate::new());
            let mut runner = OrderedRunner::builder(map(|_| Ok(()), stuck_at(5, &gate, 1)))
                .devices(1)
                .item_timeout(SOON)
                .on_error(on_error)
                .build()
                .unwrap();
            let error = runner.run(0..50).unwrap_err();
            assert!(error.is_timeout(), "{error:#}");
            assert_eq!(error.item(), Some(5));
            let is_named = matches!(error, Error::TooFewProducers { here: 0, .. });
            assert_eq!(is_named, on_error == OnError::Skip, "the item alone would be left out");
            let account = runner.account();
            assert_eq!((account.ok, account.failed), (5, 1));
            let error = runner.run(0..50).unwrap_err();
            assert!(matches!(error, Error::TooFewProducers { here: 0, .. }), "{error:#}");
            gate.open();
        }
    });
}

#[test]
fn a_batch_that_is_stuck_fails_together() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(one_by_one(map(|_| Ok(()), stuck_at(5, &gate, 1))))
            .devices(2)
            .batch(Batch::of(4))
            .item_timeout(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let expected: Vec<u64> = (0..48).filter(|x| !(4..8).contains(x)).collect();
        assert_eq!(runner.run(0..48).unwrap(), expected);
        assert_eq!(runner.account().failed, 4);
        gate.open();
    });
}

#[test]
fn an_init_that_is_stuck_fails_the_building_or_is_left_out() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = || {
            let gate = gate.clone();
            map(
                move |cx| {
                    if cx.producer() == 1 {
                        gate.pass();
                    }
                    Ok(())
                },
                |_, (), x: u64| Ok(x),
            )
        };
        let builder = || OrderedRunner::builder(stuck()).devices(3).init_timeout(SOON);
        let error = builder().build().unwrap_err();
        assert!(error.is_timeout(), "{error:#}");
        assert_eq!((error.hook(), error.producer()), (Some(Hook::ProducerInit), Some(1)));
        let mut runner = builder().min_producers(2).build().unwrap();
        assert_eq!(runner.run(0..50).unwrap().len(), 50);
        gate.open();
    });
}

#[test]
fn a_run_ends_in_time_whoever_is_stuck() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), stuck_at(5, &gate, 9)))
            .devices(2)
            .run_timeout(SOON)
            .build()
            .unwrap();
        let error = runner.run(0..50).unwrap_err();
        assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        assert_eq!(runner.account().ok, 5);
        gate.open();

        let gate = Arc::new(Gate::new());
        let consumer = gate.clone();
        let fold = map(|_| Ok(()), |_, (), x: u64| Ok(x)).fold(
            |_| Ok(()),
            move |_, (), x| {
                if x == 5 {
                    consumer.pass();
                }
                Ok(())
            },
        );
        let mut runner = OrderedRunner::builder(fold).devices(2).run_timeout(SOON).build().unwrap();
        let error = runner.run(0..50).unwrap_err();
        assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        assert_eq!(runner.account().ok, 5);
        gate.open();
    });
}

#[test]
fn the_result_of_a_producer_that_comes_back_late_is_dropped_and_its_state_stays() {
    no_hang(|| {
        let (gate, ended) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        struct State(Arc<Gate>);
        impl Drop for State {
            fn drop(&mut self) {
                self.0.open();
            }
        }
        let begun = Arc::new(Gate::new());
        let (stuck, dropped) = (gate.clone(), ended.clone());
        let late = map(
            move |cx| Ok((cx.producer() == 0).then(|| State(dropped.clone()))),
            move |cx, _, x: u64| {
                if cx.producer() == 1 {
                    begun.pass();
                } else {
                    begun.open();
                    stuck.pass();
                    assert!(cx.is_cancelled(), "nobody waits for it");
                }
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(late)
            .devices(2)
            .item_timeout(Duration::from_millis(500))
            .retries(1)
            .build()
            .unwrap();
        assert_eq!(runner.run(0..50).unwrap(), (0..50).collect::<Vec<_>>());
        gate.open();
        runner.close().unwrap();
        ended.pass();
    });
}

/// The hook of item 0 exceeds its limit, and returns while the run goes on. Item 20 waits until the producer
/// works again.
#[test]
fn a_producer_that_comes_back_takes_part_in_the_rest_of_the_run() {
    no_hang(|| {
        let (slow, back) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let first = OnceLock::new();
        let (ends, again, retried) = (slow.clone(), back.clone(), slow.clone());
        let hooks = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                let is_first = first.get() == Some(&cx.producer());
                match x {
                    0 if cx.attempt() == 1 => {
                        first.set(cx.producer()).unwrap();
                        ends.pass();
                    }
                    0 => slow.open(),
                    20.. if is_first => again.open(),
                    20 => back.pass(),
                    _ => {}
                }
                Ok(x)
            },
        );
        let builder = UnorderedRunner::builder(hooks).devices(2).retries(1);
        let builder = builder.backoff(Duration::ZERO, Duration::ZERO).window(30);
        let limit = Duration::from_millis(300);
        let mut runner = builder.item_timeout(limit).min_producers(1).build().unwrap();
        // The other producer has nothing else to do until the limit of item 0 has passed.
        let items = (0..40).inspect(|&x| {
            if x == 20 {
                retried.pass();
            }
        });
        let (outputs, report) = runner.run_with_report(items);
        assert_eq!(sorted(outputs.unwrap()), (0..40).collect::<Vec<_>>());
        assert!(report.producers.iter().all(|producer| !producer.abandoned), "{report}");
        assert_eq!(runner.run(0..10).unwrap().len(), 10);
        runner.close().unwrap();
    });
}

/// The late hook returns while `classify` still judges its timeout, and its producer takes another item. The end of
/// the run has to wait for the hook of that.
#[test]
fn a_run_waits_for_a_producer_that_came_back_before_its_timeout_was_judged() {
    no_hang(|| {
        let [late, judged, judging, inside, leaves] = [(); 5].map(|()| Arc::new(Gate::new()));
        let is_inside = Arc::new(AtomicBool::new(false));
        let (first, token) = (OnceLock::new(), CancelToken::new());
        let (ends, enters, goes) = (late.clone(), inside.clone(), leaves.clone());
        let inside_now = is_inside.clone();
        let hooks = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                if x == 0 {
                    first.set(cx.producer()).unwrap();
                    ends.pass();
                } else if x >= 2 && first.get() == Some(&cx.producer()) {
                    inside_now.store(true, SeqCst);
                    enters.open();
                    goes.pass();
                    inside_now.store(false, SeqCst);
                }
                Ok(x)
            },
        );
        let (asks, answers) = (judging.clone(), judged.clone());
        let builder = UnorderedRunner::builder(hooks).devices(2).on_error(OnError::Skip);
        let builder = builder.item_timeout(Duration::from_secs(2)).cancel_token(token.clone());
        let builder = builder.classify(move |_| {
            asks.open();
            answers.pass();
            Verdict::Skip
        });
        let mut runner = builder.window(4).build().unwrap();
        let other = thread::spawn(move || {
            judging.pass();
            late.open();
            inside.pass();
            judged.open();
            token.cancel();
            // A run that does not wait returns in this time.
            thread::sleep(Duration::from_millis(200));
            leaves.open();
        });
        // Endless, so that there is an item for the producer whenever it comes back.
        assert!(runner.run(0..).unwrap_err().is_cancelled());
        assert!(!is_inside.load(SeqCst), "the run has ended while a hook of it runs");
        other.join().unwrap();
        runner.close().unwrap();
    });
}

/// Both producers are used up, and the run ends. Once their hooks have returned, the pool works again.
#[test]
fn a_pool_is_used_again_after_its_hooks_have_returned() {
    no_hang(|| {
        let (stuck, here) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (until, left) = (stuck.clone(), Arc::new(Counter::new()));
        let (arrived, returned) = (here.clone(), left.clone());
        let hooks = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x < 2 && arrived.add(1) <= 2 {
                    until.pass();
                    returned.add(1);
                }
                Ok(x)
            },
        );
        let builder = OrderedRunner::builder(hooks).devices(2).item_timeout(SOON);
        let mut runner = builder.build().unwrap();
        assert!(runner.run(0..10).unwrap_err().is_timeout());
        let error = runner.run(0..10).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 0, .. }), "{error:#}");
        stuck.open();
        left.reach(2);
        let outputs = loop {
            // The hooks have returned; the threads are on their way back.
            match runner.run(0..10) {
                Ok(outputs) => break outputs,
                Err(error) => assert!(matches!(error, Error::TooFewProducers { .. }), "{error:#}"),
            }
        };
        assert_eq!(outputs, (0..10).collect::<Vec<_>>());
        runner.close().unwrap();
    });
}

#[test]
fn a_limit_of_no_time_is_refused() {
    let echo = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let error = OrderedRunner::builder(echo).item_timeout(Duration::ZERO).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "item_timeout must be more than 0 s, got 0 s; leave it out for no limit"
    );
}
