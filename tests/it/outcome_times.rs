//! Outcomes are reported when attempts end, not when they are delivered.
//!
//! In each test the first item waits until the observer knows how the items behind it ended. If outcomes were reported in
//! the order of delivery, the test would hang.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gangline::event::Event;
use gangline::report::IncidentKind;
use gangline::{
    Batch, Builder, CancelToken, OnError, OrderedRunner, Pipeline, RunReport, Runner, order,
};

use crate::hooks::Hooks;
use crate::support::{Gate, map, no_hang, one_by_one};

/// What an observer has seen so far.
#[derive(Debug, Default, Clone)]
struct Seen {
    done: u64,
    delivered: u64,
    /// The failed items, with the time of each.
    failed: Vec<(u64, Duration)>,
}

/// Opens a gate when the observer has seen enough.
struct Watch {
    gate: Arc<Gate>,
    seen: Arc<Mutex<Seen>>,
}

impl Watch {
    fn new() -> Self {
        Watch { gate: Arc::new(Gate::new()), seen: Arc::default() }
    }

    fn observe<R: Runner + 'static>(
        &self,
        builder: Builder<R, order::InputOrder>,
        is_enough: impl Fn(&Seen) -> bool + Send + 'static,
    ) -> Builder<R, order::InputOrder> {
        let (gate, seen) = (self.gate.clone(), self.seen.clone());
        builder.observer(move |at: Duration, event: &Event| {
            let mut seen = seen.lock().unwrap();
            match event {
                Event::ItemsDone { items, .. } => seen.done += items,
                Event::ItemsDelivered { items, .. } => seen.delivered += items,
                Event::ItemFailed { failure, .. } => seen.failed.push((failure.item.unwrap(), at)),
                _ => {}
            }
            if is_enough(&seen) {
                gate.open();
            }
        })
    }

    /// The first item waits at the gate, and each seventh fails.
    fn runner(&self) -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> + use<> {
        let gate = self.gate.clone();
        map(
            |_| Ok(()),
            move |_, (), x: u64| match x {
                0 => {
                    gate.pass();
                    Ok(0)
                }
                x if x % 7 == 6 => Err("bad".into()),
                x => Ok(x),
            },
        )
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

const ITEMS: u64 = 30;
const FAILED: [u64; 4] = [6, 13, 20, 27];

/// All but the first are done or failed, and none is delivered.
fn knows_all(seen: &Seen) -> bool {
    seen.done == ITEMS - 1 - FAILED.len() as u64 && seen.failed.len() == FAILED.len()
}

fn builder(
    watch: &Watch,
) -> Builder<impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> + use<>, order::InputOrder>
{
    let builder = OrderedRunner::builder(watch.runner()).devices(2).window(ITEMS as usize);
    watch.observe(builder.on_error(OnError::Skip), knows_all)
}

#[track_caller]
fn check(watch: &Watch, report: &RunReport) {
    let seen = watch.seen();
    let mut failed: Vec<u64> = seen.failed.iter().map(|(item, _)| *item).collect();
    failed.sort_unstable();
    assert_eq!(failed, FAILED);
    assert_eq!((report.account.ok, report.account.failed), (26, 4), "{report}");
    assert_eq!((seen.done, seen.delivered), (26, 30), "each item is told once");
    let first = report.spans.iter().find(|span| span.item == 0).unwrap();
    let incidents = || report.incidents.iter().filter(|it| it.kind == IncidentKind::Failed);
    assert_eq!(incidents().count(), 4);
    assert!(incidents().all(|it| it.at < first.start + first.took), "{:?}", report.incidents);
    // A failure has the time at which its attempt ended, on the producer that it failed on.
    for incident in incidents() {
        let item = incident.item.unwrap();
        let attempt = report.spans.iter().find(|span| span.item == item).unwrap();
        assert_eq!(incident.producer, Some(attempt.producer));
        let told = seen.failed.iter().find(|(failed, _)| *failed == item).unwrap().1;
        assert_eq!(told, incident.at, "the event and the report agree");
        assert!(told >= attempt.start, "{incident:?} {attempt:?}");
    }
    let over_time: u64 = report.throughput.items.iter().sum();
    assert_eq!(over_time, 26, "{:?}", report.throughput);
}

#[test]
fn a_run_tells_outcomes_behind_a_slow_item() {
    no_hang(|| {
        let watch = Watch::new();
        let mut pool = builder(&watch).build().unwrap();
        let (outputs, report) = pool.run_with_report(0..ITEMS);
        assert_eq!(outputs.unwrap().len(), 26);
        check(&watch, &report);
    });
}

#[test]
fn outputs_tell_outcomes_behind_a_slow_item() {
    no_hang(|| {
        let watch = Watch::new();
        let mut pool = builder(&watch).build().unwrap();
        assert_eq!(pool.outputs(0..ITEMS).filter(Result::is_ok).count(), 26);
        check(&watch, &pool.report());
    });
}

#[test]
fn a_pipeline_tells_outcomes_of_each_stage_behind_a_slow_item() {
    no_hang(|| {
        let watch = Watch::new();
        let mut first = builder(&watch).build().unwrap();
        let last = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let mut last = OrderedRunner::builder(last).devices(1).build().unwrap();
        let outputs = Pipeline::new(&mut first).then(&mut last).run(0..ITEMS).unwrap();
        assert_eq!(outputs.len(), 26);
        check(&watch, &first.report());

        let watch = Watch::new();
        let first = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let first = OrderedRunner::builder(first).devices(1).build().unwrap();
        let mut last = builder(&watch).build().unwrap();
        let outputs = first.then(&mut last).run(0..ITEMS).unwrap();
        assert_eq!(outputs.len(), 26);
        check(&watch, &last.report());
    });
}

#[test]
fn tracked_items_tell_outcomes_behind_a_slow_item() {
    no_hang(|| {
        for is_in_batches in [false, true] {
            let watch = Watch::new();
            let window = ITEMS as usize;
            // A retry goes to another producer than the one at the gate.
            let builder = OrderedRunner::builder(one_by_one(watch.runner())).devices(3);
            let builder = builder.on_error(OnError::Skip).retries(1).window(window);
            let builder = match is_in_batches {
                // Three others are in the batch of the first item.
                true => watch.observe(builder.batch(Batch::of(4)), |seen| seen.failed.len() == 4),
                false => watch.observe(builder, knows_all),
            };
            let mut pool = builder.build().unwrap();
            let (outputs, report) = pool.run_with_report(0..ITEMS);
            assert_eq!(outputs.unwrap().len(), 26);
            assert_eq!((report.account.failed, report.failures.len()), (4, 4), "{report}");
            assert_eq!(watch.seen().done, 26);
            assert!(report.failures.iter().all(|failure| failure.attempts == 2), "{report}");
        }
    });
}

#[test]
fn the_failure_that_ends_a_run_is_told_when_it_happens() {
    no_hang(|| {
        let watch = Watch::new();
        let builder = OrderedRunner::builder(watch.runner()).devices(2).window(ITEMS as usize);
        let builder = watch.observe(builder, |seen| seen.failed.iter().any(|(item, _)| *item == 6));
        let mut pool = builder.build().unwrap();
        let (outputs, report) = pool.run_with_report(0..ITEMS);
        assert_eq!(outputs.unwrap_err().item(), Some(6));
        let [failure] = &report.failures[..] else { panic!("{report}") };
        assert_eq!((failure.item, report.account.failed), (Some(6), 1));
        let first = report.spans.iter().find(|span| span.item == 0).unwrap();
        assert!(report.incidents[0].at < first.start + first.took, "{:?}", report.incidents);
    });
}

/// The account counts what was delivered, and the report still says what failed.
#[test]
fn failures_behind_the_end_of_a_run_are_listed_apart() {
    no_hang(|| {
        for is_cancelled in [true, false] {
            let watch = Watch::new();
            let gate = watch.gate.clone();
            let work = map(
                |_| Ok(()),
                move |_, (), x: u64| match x {
                    0 => {
                        gate.pass();
                        if is_cancelled { Ok(0) } else { Err("worse".into()) }
                    }
                    _ => Err("bad".into()),
                },
            );
            let builder = OrderedRunner::builder(work).devices(2).window(5).classify(|error| {
                match error.item() {
                    Some(0) => gangline::Verdict::Stop,
                    _ => gangline::Verdict::Skip,
                }
            });
            let token = Arc::new(Mutex::new(None::<CancelToken>));
            let cancel = token.clone();
            let builder = watch.observe(builder, move |seen| {
                let is_enough = seen.failed.len() == 4;
                if is_enough && is_cancelled {
                    cancel.lock().unwrap().take().into_iter().for_each(|token| token.cancel());
                }
                is_enough
            });
            let mut pool = builder.build().unwrap();
            *token.lock().unwrap() = Some(pool.cancel_token());
            let (outputs, report) = pool.run_with_report(0..100);
            let error = outputs.unwrap_err();
            assert_eq!(error.is_cancelled(), is_cancelled, "{error:#}");
            let listed = u64::from(!is_cancelled);
            assert_eq!(report.failures.len() as u64, listed, "{report}");
            assert_eq!(report.account.failed, listed, "{report}");
            let behind: Vec<_> = report.failures_undelivered.iter().map(|it| it.item).collect();
            assert_eq!(behind, [Some(1), Some(2), Some(3), Some(4)], "{report}");
            assert_eq!(report.account.cancelled, 5 - listed, "{report}");
            let text = report.to_string();
            let listed =
                "counted as cancelled:\n  4 items in producer_work on cpu: bad\n    item 1\n";
            assert!(text.contains(listed), "{text}");
        }
    });
}

/// It cancels its own run, or sees the end of it, and fails.
#[test]
fn a_consumer_that_fails_because_its_run_ends_is_no_failure() {
    no_hang(|| {
        for is_out_of_time in [false, true] {
            let watch = Watch::new();
            let token = CancelToken::new();
            let cancel = token.clone();
            let work = Hooks::new().consume(move |cx, _| {
                if !is_out_of_time {
                    cancel.cancel();
                }
                while !cx.is_cancelled() {
                    std::thread::yield_now();
                }
                Err("the run is over".into())
            });
            let builder = OrderedRunner::builder(work).devices(1).cancel_token(token);
            let builder = match is_out_of_time {
                true => builder.run_timeout(Duration::from_millis(20)),
                false => builder,
            };
            let mut pool = watch.observe(builder, |_| false).build().unwrap();
            let (outputs, report) = pool.run_with_report(0..4);
            let error = outputs.unwrap_err();
            assert_eq!(error.is_cancelled(), !is_out_of_time, "{error:#}");
            assert_eq!((report.account.ok, report.account.failed), (0, 0), "{report}");
            assert_eq!((&report.failures, &report.failures_undelivered), (&vec![], &vec![]));
            assert_eq!(watch.seen().failed, []);
        }
    });
}

#[test]
fn metrics_move_behind_a_slow_item() {
    use gangline::metrics::Metrics;
    use metrics_exporter_prometheus::PrometheusBuilder;

    no_hang(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let exporter = recorder.handle();
        let metrics = metrics::with_local_recorder(&recorder, || Metrics::new("r"));
        let watch = Watch::new();
        let builder = OrderedRunner::builder(watch.runner()).devices(2).window(ITEMS as usize);
        let builder = builder.on_error(OnError::Skip).observer(metrics);
        let (shown, pages) = std::sync::mpsc::channel();
        let builder = watch.observe(builder, move |seen| {
            let is_enough = knows_all(seen);
            if is_enough {
                let _ = shown.send(exporter.render());
            }
            is_enough
        });
        builder.build().unwrap().run(0..ITEMS).unwrap();
        let page = pages.recv().unwrap();
        for line in [
            r#"gangline_items_total{runner="r",outcome="ok"} 25"#,
            r#"gangline_items_total{runner="r",outcome="failed"} 4"#,
            r#"gangline_items_delivered_total{runner="r"} 0"#,
        ] {
            assert!(page.lines().any(|there| there == line), "{line} in\n{page}");
        }
    });
}

#[test]
fn an_unobserved_run_dates_its_failures_by_their_attempts() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let begun = Instant::now();
        let all_failed = Arc::new(Mutex::new(None));
        let (passed, noted) = (gate.clone(), all_failed.clone());
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| match x {
                0 => {
                    passed.pass();
                    Ok(0)
                }
                4 => {
                    *noted.lock().unwrap() = Some(begun.elapsed());
                    passed.open();
                    Ok(4)
                }
                x => Err(format!("bad {x}").into()),
            },
        );
        let mut pool = OrderedRunner::builder(work)
            .devices(2)
            .window(5)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        assert_eq!(pool.run(0..5).unwrap(), [0, 4]);
        let (report, all_failed) = (pool.report(), all_failed.lock().unwrap().unwrap());
        assert_eq!((report.failures.len(), report.incidents.len()), (3, 3));
        assert!(report.incidents.iter().all(|it| it.at <= all_failed), "{:?}", report.incidents);
    });
}
