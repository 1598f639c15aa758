//! The working times in a report.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gangline::event::{TimeKind, count_as};
use gangline::report::Bottleneck;
use gangline::{Batch, OnError, OrderedRunner};

use crate::hooks::Hooks;
use crate::report_counts::{SOON, consumer_stuck_at};
use crate::support::{Counter, Gate, map, no_hang};

/// Of two that are at the same item the first has lost, and is at it still when the run is over.
#[test]
fn a_producer_that_lost_a_race_was_at_work_until_the_end() {
    no_hang(|| {
        let (gate, starts) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, count) = (gate.clone(), starts.clone());
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 5 && count.add(1) == 1 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let mut runner =
            OrderedRunner::builder(work).devices(2).window(8).speculate().build().unwrap();
        let (outputs, report) = runner.run_with_report(0..50);
        assert_eq!(outputs.unwrap().len(), 50);
        assert!(report.producers.iter().all(|one| one.working > Duration::ZERO), "{report}");
        // The copy of item 5 came first; on a slow machine others may have been copied too.
        assert!(report.copies.won >= 1 && report.copies.made >= report.copies.won, "{report}");
        assert!(report.to_string().contains("copies: "), "{report}");
        gate.open();
    });
}

#[test]
fn a_consumer_that_is_stuck_was_at_work_until_the_end() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let hooks = consumer_stuck_at(5, &gate);
        let mut runner =
            OrderedRunner::builder(hooks).devices(2).window(16).run_timeout(SOON).build().unwrap();
        let (result, report) = runner.run_with_report(0..50);
        assert!(result.is_err());
        assert!(report.consumer_working > Duration::ZERO, "{report}");
        assert_eq!(report.window, 16);
        gate.open();
    });
}

#[test]
fn the_wait_for_the_next_attempt_is_no_work() {
    no_hang(|| {
        for batch in [None, Some(Batch::up_to(2))] {
            let soon = Duration::from_millis(50);
            let hooks = Hooks::new().work(|cx, x| match cx.attempt() {
                1 => Err("not the first time".into()),
                _ => Ok(x),
            });
            let builder = OrderedRunner::builder(hooks).devices(1).retries(1).backoff(soon, soon);
            let builder = match batch {
                Some(batch) => builder.batch(batch).window(2),
                None => builder.window(1),
            };
            let (result, report) = builder.build().unwrap().run_with_report(0..8);
            assert_eq!(result.unwrap().len(), 8);
            let producer = &report.producers[0];
            assert!(producer.waiting >= 4 * soon, "{batch:?} {report}");
            assert!(producer.working + producer.waiting <= report.lasted, "{batch:?} {report}");
            assert_eq!(report.bottleneck, Bottleneck::Backoff, "{batch:?} {report}");
        }
    });
}

/// How long something takes that takes a while.
fn take_a_while(all: &Cell<Duration>) {
    let since = Instant::now();
    std::hint::black_box((0..100_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
    all.set(all.get() + since.elapsed());
}

#[test]
fn the_iterator_of_a_stream_is_its_source_and_who_asks_for_results_its_consumer() {
    no_hang(|| {
        let (in_iterator, between) = (Cell::default(), Cell::default());
        let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 2).unwrap();
        let outputs = runner.outputs((0..50).inspect(|_| take_a_while(&in_iterator)));
        outputs.for_each(|output| {
            output.unwrap();
            take_a_while(&between);
        });
        let report = runner.report();
        assert!(report.source_working >= in_iterator.get(), "{report}");
        assert!(report.consumer_working >= between.get(), "{report}");
        assert!(report.source_working + report.consumer_working <= report.lasted, "{report}");
    });
}

#[test]
fn an_iterator_that_waits_is_not_at_work() {
    no_hang(|| {
        let pause = Duration::from_millis(2);
        let waits = |_: &u64| gangline::input::waiting(|| std::thread::sleep(pause));
        let runner = || OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 2).unwrap();
        let mut runs = runner();
        waits(&0);
        runs.run((0..50).inspect(waits)).unwrap();
        let mut streams = runner();
        streams.outputs((0..50).inspect(waits)).for_each(|output| assert!(output.is_ok()));
        for report in [runs.report(), streams.report()] {
            assert!(report.source_waiting >= 50 * pause, "{report}");
            assert!(report.source_working + report.source_waiting <= report.lasted, "{report}");
            assert_ne!(report.bottleneck, Bottleneck::Source, "{report}");
        }
    });
}

/// Adds up the time of a closure by the clock of the test.
fn timed<T>(all: &Mutex<Duration>, run: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let value = run();
    *all.lock().unwrap() += since.elapsed();
    value
}

/// Items alone, under a lease, in batches, and with an error or a panic within the time that is no work.
#[test]
fn time_that_a_hook_counts_as_no_work_is_of_its_kind() {
    no_hang(|| {
        for (retries, batch) in [(0, None), (1, None), (0, Some(Batch::up_to(3)))] {
            let (aside, work) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
            let (no_work, at_work) = (aside.clone(), work.clone());
            let hooks = Hooks::new().work(move |cx, x| {
                timed(&at_work, || take_a_while(&Cell::default()));
                count_as(TimeKind::HeldBack, "the limit", || {
                    timed(&no_work, || {
                        // One within another counts once.
                        count_as(TimeKind::Loading, "a model", || take_a_while(&Cell::default()));
                        match x {
                            7 if cx.attempt() == 1 => std::panic::resume_unwind(Box::new("seven")),
                            _ => {}
                        }
                    });
                });
                Ok(x)
            });
            let builder = OrderedRunner::builder(hooks).devices(1).retries(retries).timeline();
            let builder = match batch {
                Some(batch) => builder.batch(batch),
                None => builder,
            };
            let skips = builder.on_error(OnError::Skip).build();
            let (_, report) = skips.unwrap().run_with_report(0..20);
            let times = report.producers[0].times;
            let (aside, work) = (*aside.lock().unwrap(), *work.lock().unwrap());
            assert!(times.held_back >= aside, "{aside:?} {report}");
            assert!(times.work >= work, "{work:?} {report}");
            assert!(times.sum() <= report.lasted, "{times:?} {report}");
            assert!(report.held_back_by["the limit"] >= aside, "{report}");
            let causes: Vec<_> = report.held_back_by.keys().collect();
            assert!(causes == ["the limit"] || causes == ["backoff", "the limit"], "{causes:?}");
            assert_eq!(report.held_back_by.values().sum::<Duration>(), times.held_back);
            let busy = &report.timeline.as_ref().unwrap().busy_ns[0];
            let busy = Duration::from_nanos(busy.iter().sum());
            assert!(busy + aside <= report.lasted, "{report}");
            let others = &report.timeline.as_ref().unwrap().others;
            assert!(others.iter().any(|it| it.kind == TimeKind::HeldBack), "{others:?}");
            assert!(report.latency.unwrap().count >= 20, "{report}");
        }
    });
}

/// A key and a journal that take their time are neither the iterator nor the consumer.
#[test]
fn names_and_the_journal_have_times_of_their_own() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let (naming, flushing) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let (of_keys, of_flushes) = (naming.clone(), flushing.clone());
        let hooks = Hooks::new().flush(move |_| {
            timed(&of_flushes, || take_a_while(&Cell::default()));
            Ok(())
        });
        let mut runner = OrderedRunner::builder(hooks)
            .devices(1)
            .key(move |x: &u64| {
                timed(&of_keys, || {
                    take_a_while(&Cell::default());
                    x.to_string()
                })
            })
            .journal(directory.path().join("journal"))
            .build()
            .unwrap();
        let (result, report) = runner.run_with_report(0..30);
        result.unwrap();
        let (naming, flushing) = (*naming.lock().unwrap(), *flushing.lock().unwrap());
        assert!(flushing > Duration::ZERO, "a journal is flushed before its end");
        assert!(report.source_naming >= naming, "{naming:?} {report}");
        assert!(report.journal_writing >= flushing, "{flushing:?} {report}");
        let source = report.source_working + report.source_naming + report.source_waiting;
        assert!(source <= report.lasted, "{report}");
        assert!(report.consumer_working + report.journal_writing <= report.lasted, "{report}");
    });
}

#[test]
fn the_stage_before_is_the_source_of_a_later_stage() {
    no_hang(|| {
        let consumed = Arc::new(Counter::new());
        let count = consumed.clone();
        let waits = Hooks::new().work(move |_, x| {
            consumed.reach(x);
            Ok(x)
        });
        let counts = Hooks::new().consume(move |_, _| {
            count.add(1);
            Ok(())
        });
        let one = OrderedRunner::new(waits, 1).unwrap();
        let mut two = OrderedRunner::new(counts, 1).unwrap();
        one.then(&mut two).run(0..50).unwrap();
        let report = two.report();
        assert!(report.source_working > Duration::ZERO, "{report}");
        assert!(report.source_working + report.source_waiting <= report.lasted, "{report}");
    });
}

/// Two producers share 20 items of no time, of which each panic costs a state of 100 ms.
#[test]
fn rebuilding_a_state_counts_as_work_of_nothing() {
    no_hang(|| {
        let work = map(
            |_| {
                std::thread::sleep(Duration::from_millis(100));
                Ok(())
            },
            |_, (), x: u64| {
                if x.is_multiple_of(5) {
                    // Without the panic hook, which may take longer than all else to print a backtrace.
                    std::panic::resume_unwind(Box::new("a multiple of five"));
                }
                Ok(x)
            },
        );
        let mut runner =
            OrderedRunner::builder(work).devices(2).on_error(OnError::Skip).build().unwrap();
        let (result, report) = runner.run_with_report(0..20);
        assert_eq!(result.unwrap().len(), 16);
        assert_eq!(report.bottleneck, Bottleneck::Rebuilding, "{report}");
        assert!(report.conclusion.contains("since panics lost 4 states"), "{report}");
        assert!(!report.conclusion.contains("more producers"), "{report}");
        let sum = |of: fn(&gangline::report::ProducerReport) -> u64| {
            report.producers.iter().map(of).sum::<u64>()
        };
        assert_eq!(sum(|producer| producer.states_lost), 4);
        assert!(sum(|producer| producer.rebuilds) >= 3, "the last may be left to the next run");
        for producer in report.producers.iter().filter(|producer| producer.rebuilds > 0) {
            assert!(producer.rebuilding >= Duration::from_millis(100), "{report}");
        }
        let read = gangline::RunReport::from_json(&report.to_json()).unwrap();
        assert_eq!(read, report);
        assert!(
            report.to_html().contains("ran <code>producer_init</code> again"),
            "{}",
            report.to_html()
        );
        assert!(report.to_string().contains("ran `producer_init` again"), "{report}");
    });
}
