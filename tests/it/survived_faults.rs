//! Faults that a run survives by policy: fewer devices than asked for, retries, quarantine, limits on time; and what a
//! report says of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use gangline::event::Event;
use gangline::report::RetryOutcome;
use gangline::{Batch, Error, Hook, OnError, OrderedRunner, UnorderedRunner};

use crate::support::{Counter, Gate, map, no_hang, one_by_one};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

#[test]
fn fewer_devices_than_asked_for_are_enough_where_that_is_allowed() {
    no_hang(|| {
        for panics in [false, true] {
            let init = move |cx: &gangline::ProducerContext<'_>| match cx.producer() {
                1 if panics => panic!("no memory"),
                1 => Err("no memory".into()),
                _ => Ok(()),
            };
            let runner = map(init, |cx, (), x: u64| Ok((cx.producer(), x)));
            let mut runner =
                OrderedRunner::builder(runner).devices(3).min_producers(2).build().unwrap();
            let (outputs, report) = runner.run_with_report(0..30);
            assert!(outputs.unwrap().iter().all(|&(worker, _)| worker != 1), "none starts there");
            assert_eq!(report.account.ok, 30);
            assert!(report.producers[1].quarantined.as_deref().unwrap().contains("no memory"));
        }
    });
}

#[test]
fn all_inits_fail_whatever_the_policy() {
    no_hang(|| {
        let inits = Arc::new(AtomicU64::new(0));
        let count = inits.clone();
        let runner = map(
            move |_| {
                count.fetch_add(1, SeqCst);
                Err::<(), _>("no device".into())
            },
            |_, _, x: u64| Ok(x),
        );
        let builder =
            OrderedRunner::builder(runner).devices(3).min_producers(1).quarantine_after(1);
        let error = builder.on_error(OnError::Skip).retries(9).build().unwrap_err();
        assert_eq!((error.hook(), inits.load(SeqCst)), (Some(Hook::ProducerInit), 3));
        assert!(format!("{error:#}").contains("no device"), "{error:#}");
    });
}

#[test]
fn a_report_tells_what_failed_first_and_succeeded_elsewhere() {
    no_hang(|| {
        let flaky = map(
            |_| Ok(()),
            |cx, (), x: u64| {
                if x % 10 == 3 && cx.attempt() < 3 { Err("busy".into()) } else { Ok(x) }
            },
        );
        let mut runner = OrderedRunner::builder(flaky)
            .devices(2)
            .retries(2)
            .backoff(Duration::ZERO, Duration::ZERO)
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..20);
        assert_eq!(outputs.unwrap().len(), 20);
        let retries = report.retries;
        assert_eq!((retries.attempts, retries.items), (4, 2));
        assert_eq!((retries.succeeded, retries.failed), (2, 0));
        let list: Vec<_> = retries
            .list
            .iter()
            .map(|item| (item.item, item.failed_attempts, item.outcome))
            .collect();
        assert_eq!(list, [(3, 2, RetryOutcome::Succeeded), (13, 2, RetryOutcome::Succeeded)]);
        assert!(report.failures.is_empty());
    });
}

#[test]
fn a_report_clips_what_is_too_long_and_shows_no_control_characters() {
    no_hang(|| {
        let text = format!("\u{1b}[2J\r{}", "long ".repeat(1 << 20));
        let bad = map(|_| Ok(()), move |_, (), _: u64| Err::<u64, _>(text.clone().into()));
        let mut runner =
            OrderedRunner::builder(bad).devices(1).on_error(OnError::Skip).build().unwrap();
        let (_, report) = runner.run_with_report(0..50);
        assert_eq!(report.account.failed, 50);
        let shown = report.to_string();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\r'), "{}", shown.escape_debug());
        for text in [shown, report.to_json(), report.to_html()] {
            assert!(text.len() < 2 << 20, "{}", text.len());
        }
    });
}

/// A device reports a failure one call late: the item after is the one that seems to fail.
#[test]
fn an_error_that_surfaces_late_is_not_held_against_the_item() {
    no_hang(|| {
        let struck = AtomicBool::new(false);
        let late = map(
            |_| Ok(false),
            move |cx, is_bad: &mut bool, x: u64| {
                if std::mem::take(is_bad) {
                    return Err("an earlier call failed".into());
                }
                *is_bad = cx.producer() == 0 && x >= 5 && !struck.swap(true, SeqCst);
                Ok(x)
            },
        );
        let mut runner =
            OrderedRunner::builder(late).devices(2).quarantine_after(2).build().unwrap();
        let (outputs, report) = runner.run_with_report(0..100);
        assert_eq!(outputs.unwrap(), (0..100).collect::<Vec<_>>());
        assert!(report.producers.iter().all(|producer| producer.quarantined.is_none()), "{report}");
    });
}

/// It takes no part in the rest of the run or in later runs, and its items are not lost.
#[test]
fn a_device_that_hangs_is_written_off() {
    no_hang(|| {
        let (gate, hangs) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, hung) = (gate.clone(), hangs.clone());
        let runner = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                if cx.producer() == 1 {
                    hung.add(1);
                    stuck.pass();
                } else if x >= 5 {
                    hung.reach(1);
                }
                Ok(x)
            },
        );
        let mut runner = UnorderedRunner::builder(runner)
            .devices(2)
            .item_timeout(SOON)
            .retries(1)
            .build()
            .unwrap();
        for _ in 0..2 {
            let (outputs, report) = runner.run_with_report(0..50);
            let mut outputs = outputs.unwrap();
            outputs.sort_unstable();
            assert_eq!(outputs, (0..50).collect::<Vec<_>>());
            assert!(report.producers[1].abandoned, "{report}");
        }
        assert_eq!(hangs.get(), 1);
        gate.open();
    });
}

#[test]
fn a_run_on_devices_that_are_all_broken_ends() {
    no_hang(|| {
        for batch in [None, Some(Batch::of(3))] {
            let broken = || map(|_| Ok(()), |_, (), _: u64| Err::<u64, _>("gone".into()));
            let builder = |on_error| {
                let builder =
                    OrderedRunner::builder(one_by_one(broken())).devices(3).quarantine_after(2);
                let builder = builder.on_error(on_error);
                match batch {
                    None => builder,
                    Some(batch) => builder.batch(batch),
                }
            };
            let mut stops = builder(OnError::Stop).build().unwrap();
            let error = stops.run(0..100).unwrap_err();
            assert_eq!(error.item(), Some(0), "{error:#}");
            // Once: when a later item has ended the run, no producer may be left to try this one too.
            assert!(matches!(error.attempt(), Some(1 | 2)), "{error:#}");
            let mut skips = builder(OnError::Skip).max_failures(10).build().unwrap();
            let error = skips.run(0..100).unwrap_err();
            assert!(matches!(error, Error::TooManyFailures { failed: 11, .. }), "{error:#}");
        }
    });
}

#[test]
fn failures_are_reported_in_the_order_of_the_input() {
    no_hang(|| {
        let both = Barrier::new(2);
        let bad = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x < 2 {
                    both.wait();
                }
                Err::<u64, _>(format!("bad {x}").into())
            },
        );
        let mut runner = UnorderedRunner::builder(bad)
            .devices(2)
            .on_error(OnError::Skip)
            .key(|x| 100 - x)
            .build()
            .unwrap();
        let (_, report) = runner.run_with_report(0..40);
        let items: Vec<_> = report.failures.iter().map(|failure| failure.item.unwrap()).collect();
        assert_eq!(items, (0..40).collect::<Vec<_>>(), "and not by their keys");
    });
}

#[test]
fn a_state_of_nothing_reaches_the_hook() {
    no_hang(|| {
        let work = map(|_| Ok(None::<u64>), |_, model: &mut Option<u64>, x: u64| Ok((*model, x)));
        let mut runner = OrderedRunner::new(work, 2).unwrap();
        assert_eq!(runner.run(0..2).unwrap(), [(None, 0), (None, 1)]);
    });
}

/// The slow one has its first item until the other has done all the rest.
#[test]
fn a_slow_device_gets_what_it_can_do() {
    no_hang(|| {
        let done = Arc::new(Counter::new());
        let work = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                if cx.producer() == 1 {
                    done.reach(7);
                }
                done.add(1);
                Ok((cx.producer(), x))
            },
        );
        let mut runner = UnorderedRunner::new(work, 2).unwrap();
        let outputs = runner.run(0..8).unwrap();
        assert!(outputs.iter().filter(|(worker, _)| *worker == 1).count() <= 1, "{outputs:?}");
    });
}

#[test]
fn tasks_that_come_as_a_stream_are_in_memory_a_window_at_a_time() {
    no_hang(|| {
        let (out, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let consumed = out.clone();
        let fold = map(
            |_| Ok(()),
            |_, (), x: u64| if x.is_multiple_of(7) { Err("bad".into()) } else { Ok(x) },
        )
        .fold(
            |_| Ok(0),
            move |_, sum: &mut u64, _| {
                consumed.fetch_sub(1, SeqCst);
                *sum += 1;
                Ok(())
            },
        );
        let mut runner = OrderedRunner::builder(fold)
            .devices(2)
            .window(8)
            .on_error(OnError::Skip)
            .quarantine_after(2)
            .build()
            .unwrap();
        // Those that fail are never given back here.
        let bad = AtomicU64::new(0);
        let items = (0..2_000_u64).inspect(|x| {
            let failed = bad.fetch_add(u64::from(x % 7 == 0), SeqCst);
            let now = out.fetch_add(1, SeqCst) + 1;
            most.fetch_max(now.saturating_sub(failed), SeqCst);
        });
        assert_eq!(runner.run(items).unwrap(), 2_000 - 286);
        assert!(most.load(SeqCst) <= 8 + 1, "{most:?}");
    });
}

#[test]
fn a_pool_that_was_shut_down_says_so_and_can_be_started_again() {
    no_hang(|| {
        let broken = AtomicBool::new(true);
        let work = map(
            |_| Ok(()),
            move |cx, (), x: u64| match cx.producer() {
                0 if broken.load(SeqCst) => Err("broken".into()),
                _ if x == 99 => {
                    broken.store(false, SeqCst);
                    Ok(x)
                }
                _ => Ok(x),
            },
        );
        let mut runner =
            OrderedRunner::builder(work).devices(2).quarantine_after(1).build().unwrap();
        assert_eq!(runner.run(0..100).unwrap().len(), 100);
        runner.close().unwrap();
        assert!(runner.run(0..100).unwrap_err().is_closed());
        runner.activate().unwrap();
        let (outputs, report) = runner.run_with_report(0..100);
        assert_eq!(outputs.unwrap().len(), 100);
        assert!(report.producers.iter().all(|producer| producer.quarantined.is_none()), "{report}");
    });
}

/// Item 0 lasts until the observer was told that the others wait behind it.
#[test]
fn an_item_that_everything_waits_for_is_told() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stalled = Arc::new(Mutex::new(vec![]));
        let (stuck, opens, told) = (gate.clone(), gate.clone(), stalled.clone());
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 3 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .item_timeout(Duration::from_secs(600))
            .observer(move |_: Duration, event: &Event| {
                if let Event::HeadOfLineBlocked { item, .. } = event {
                    told.lock().unwrap().push(*item);
                    opens.open();
                }
            })
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..50);
        assert_eq!(outputs.unwrap().len(), 50);
        assert_eq!(stalled.lock().unwrap()[0], 3);
        assert_eq!(report.stalls[0].item, 3);
    });
}
