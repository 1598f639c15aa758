//! The account of runs: reports, events, keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::event::Event;
use gangline::report::Ending;
use gangline::{
    AnyOrderRunner, Batch, Device, Error, Journal, OnError, Order, OrderedRunner, Pipeline,
    RunReport, UnorderedRunner,
};

use crate::support::{Gate, map, no_hang, one_by_one};

#[test]
fn four_tasks_with_names_of_which_one_fails() {
    no_hang(|| {
        let work = map(
            |_| Ok(()),
            |_, (), (id, x): (&str, u64)| if id == "z" { Err("'bad'".into()) } else { Ok(x) },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .on_error(OnError::Skip)
            .key(|&(id, _)| id)
            .timeline()
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report([("w", 1), ("x", 2), ("y", 3), ("z", 4)]);
        assert_eq!(outputs.unwrap(), [1, 2, 3]);
        assert_eq!((report.account.ok, report.account.failed), (3, 1));
        let [failure] = &report.failures[..] else { panic!("{:?}", report.failures) };
        assert_eq!((failure.item, failure.key.as_deref()), (Some(3), Some("z")));
        assert_eq!((failure.attempts, failure.device.as_deref()), (1, Some("cpu")));
        assert_eq!(failure.causes, ["'bad'"]);
        assert_eq!(failure.hook.as_deref(), Some("producer_work"));
        assert_eq!(report.producers.iter().map(|producer| producer.items).sum::<u64>(), 4);
        assert_eq!(report.producers.iter().map(|producer| producer.failed).sum::<u64>(), 1);
        assert!(report.slowest.iter().any(|item| item.key.as_deref() == Some("z")));
        assert_eq!(RunReport::from_json(&report.to_json()).unwrap(), report);
        let html = report.to_html();
        assert!(
            html.contains("<svg")
                && html.contains("<h2>Failures</h2>")
                && html.contains("producer_work on cpu"),
            "{html}"
        );
        assert!(report.to_trace().contains("traceEvents"));
    });
}

#[test]
fn a_report_of_a_run_that_failed_says_what_with() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), x: u64| if x == 7 { Err("bad".into()) } else { Ok(x) });
        let mut runner = UnorderedRunner::new(bad, 2).unwrap();
        let (result, report) = runner.run_with_report(0..100);
        assert!(result.is_err());
        assert_eq!(report.account, runner.account());
        assert!(report.error.as_deref().is_some_and(|error| error.ends_with("bad")), "{report}");
        assert_eq!(report.failures.len(), 1);
        let (result, report) = runner.run_with_report([1, 2, 3]);
        assert_eq!(result.unwrap().len(), 3);
        assert!(report.failures.is_empty() && report.error.is_none(), "nothing of the last run");
    });
}

fn says_that_it_was_refused(report: &RunReport, error: &Error) {
    assert_eq!(report.ending, Ending::Failed, "{report}");
    assert_eq!(report.error.as_deref(), Some(&*format!("{error:#}")));
    let account = report.account;
    assert_eq!((account.ok, account.failed, account.cancelled), (0, 0, 0), "{report}");
}

#[test]
fn a_run_that_was_refused_has_a_report_of_its_own() {
    no_hang(|| {
        let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 2).unwrap();
        runner.run(0..100).unwrap();
        runner.close().unwrap();
        let (result, report) = runner.run_with_report(0..5);
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error:#}");
        says_that_it_was_refused(&report, &error);
        assert_eq!(report.account.unread, Some(5));

        runner.activate().unwrap();
        runner.run(0..100).unwrap();
        runner.close().unwrap();
        let error = runner.outputs(0..5).next().unwrap().unwrap_err();
        says_that_it_was_refused(&runner.report(), &error);
    });
}

#[test]
fn a_run_whose_journal_is_in_use_has_a_report_of_its_own() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let journal = || Journal::at(directory.path().join("run.journal")).resume();
        let runner = || {
            OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x)))
                .devices(1)
                .journal(journal())
                .build()
                .unwrap()
        };
        let (mut inner, mut outer) = (runner(), runner());
        inner.run(0..3).unwrap();
        let mut refused = None;
        let items = (0..3).inspect(|_| {
            refused.get_or_insert_with(|| inner.run_with_report(0..3));
        });
        outer.run(items).unwrap();
        let (result, report) = refused.unwrap();
        says_that_it_was_refused(&report, &result.unwrap_err());
    });
}

#[test]
fn a_stage_whose_pipeline_was_refused_is_not_in_progress_for_ever() {
    no_hang(|| {
        let stage = || OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1).unwrap();
        let (mut first, mut second, mut closed) = (stage(), stage(), stage());
        Pipeline::new(&mut first).then(&mut second).then(&mut closed).run(0..10).unwrap();
        closed.close().unwrap();
        let error =
            Pipeline::new(&mut first).then(&mut second).then(&mut closed).run(0..10).unwrap_err();
        for stage in [&first, &second, &closed] {
            says_that_it_was_refused(&stage.report(), &error);
        }
    });
}

#[test]
fn a_report_tells_of_a_producer_that_was_quarantined() {
    no_hang(|| {
        let broken = map(
            |cx| if cx.producer() == 0 { Err("no memory".into()) } else { Ok(()) },
            |_, (), x: u64| Ok(x),
        );
        let mut runner =
            OrderedRunner::builder(broken).devices(2).min_producers(1).build().unwrap();
        for _ in 0..2 {
            let (result, report) = runner.run_with_report(0..20);
            assert_eq!(result.unwrap().len(), 20);
            let reason = report.producers[0].quarantined.as_deref().unwrap();
            assert!(reason.contains("no memory"), "{reason}");
            assert_eq!(report.producers[1].items, 20);
            assert!(report.to_string().contains("no memory"), "{report}");
            assert!(
                !report.to_string().contains("quarantined"),
                "quarantine was not enabled: {report}"
            );
        }
    });
}

#[test]
fn a_producer_that_was_written_off_is_said_to_be_abandoned_once() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 5 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .item_timeout(Duration::from_millis(300))
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..50);
        assert_eq!(outputs.unwrap().len(), 49);
        let lost = report.producers.iter().position(|producer| producer.abandoned).unwrap();
        let stuck = &report.producers[lost];
        assert!(
            stuck.working > Duration::ZERO && stuck.busy > 0.0,
            "it worked to the end: {report}"
        );
        let says =
            format!("producer {lost} (cpu) was abandoned with its thread when item 5 failed");
        for text in [report.to_string(), report.to_html()] {
            assert!(text.contains(&says) && !text.contains("quarantined"), "{text}");
            assert!(text.matches("took longer than 300 ms").count() <= 1, "{text}");
        }
        let failed = "item 5 in producer_work on cpu: took longer than 300 ms\n";
        assert!(report.to_string().contains(failed), "{report}");
        gate.open();
    });
}

#[test]
fn a_runner_that_never_ran_is_not_in_progress() {
    let runner = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1).unwrap();
    assert_eq!(runner.report().to_string(), "no run yet\n");
    let page = runner.report().to_html();
    assert!(page.contains("No run yet") && !page.contains("in progress"), "{page}");
}

#[test]
fn a_run_that_was_finished_before_it_read_anything_had_something_to_do() {
    no_hang(|| {
        let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1).unwrap();
        runner.cancel_token().drain();
        let (outputs, report) = runner.run_with_report(0..5);
        assert!(outputs.unwrap().is_empty());
        let says = "No item was read: the run was ended before, with 5 items unread.";
        assert_eq!(report.conclusion, says);
    });
}

#[test]
fn keys_that_come_again_are_told_apart_by_the_index() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), _: u64| Err::<u64, _>("bad".into()));
        let mut runner = OrderedRunner::builder(bad)
            .devices(1)
            .on_error(OnError::Skip)
            .key(|x| x % 2)
            .build()
            .unwrap();
        runner.run(0..4).unwrap();
        let keys: Vec<_> = runner.failures().iter().map(|error| error.key().unwrap()).collect();
        assert_eq!(keys, ["0", "1", "0", "1"]);
        assert!(runner.failures()[2].to_string().contains(r#"item 2 ("0")"#));
    });
}

/// What an observer is told, as text.
fn told(batch: bool) -> Vec<String> {
    let events = Arc::new(Mutex::new(vec![]));
    let sink = events.clone();
    let work = map(
        |_| Ok(()),
        |cx, (), x: u64| match (x, cx.attempt()) {
            (1, 1) => Err("again".into()),
            (2, _) => Err("bad".into()),
            _ => Ok(x),
        },
    );
    let builder = OrderedRunner::builder(one_by_one(work))
        .devices(Device::Cpu)
        .retries(1)
        .backoff(Duration::ZERO, Duration::ZERO)
        .on_error(OnError::Skip)
        .observer(move |_: Duration, event: &Event| sink.lock().unwrap().push(event.clone()));
    let builder = if batch { builder.batch(Batch::of(4)) } else { builder };
    builder.build().unwrap().run(0..4).unwrap();
    let events = events.lock().unwrap();
    let text = |event: &Event| match event {
        Event::RunStarted { items, producers, .. } => format!("run {items:?} {producers:?}"),
        Event::ProducerReady { producer, .. } => format!("ready {producer}"),
        Event::ItemStarted { item, attempt, .. } => format!("start {item} {attempt}"),
        Event::ItemFinished { item, .. } => format!("finish {item}"),
        Event::ItemRetried { failure, .. } => format!("retry {:?}", failure.item),
        Event::ItemFailed { failure, .. } => format!("fail {:?}", failure.item),
        Event::ItemsConsumed { .. } => "consumed".to_owned(),
        Event::RunEnded { totals, .. } => format!("end {}", totals.account.ok),
        other => format!("{other:?}"),
    };
    events.iter().map(text).collect()
}

#[test]
fn observers_are_told_everything_from_the_beginning_to_the_end() {
    no_hang(|| {
        for batch in [false, true] {
            let told = told(batch);
            assert_eq!(told[..2], [r#"run Some(4) ["cpu"]"#, "ready 0"]);
            assert_eq!(told.last().unwrap(), "end 3");
            let count = |what: &str| told.iter().filter(|event| event.starts_with(what)).count();
            assert_eq!((count("start"), count("finish")), (6, 6), "{told:?}");
            assert_eq!((count("retry"), count("fail")), (2, 1), "{told:?}");
            assert!(told.contains(&"fail Some(2)".to_owned()));
        }
    });
}

#[test]
fn a_producer_without_a_state_is_told_to_be_ready_once_it_has_one() {
    no_hang(|| {
        let told = Arc::new(Mutex::new(0));
        let sink = told.clone();
        let dies = map(
            |_| Ok(()),
            |_, (), x: u64| {
                assert_ne!(x, 5, "dies");
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(dies)
            .devices(1)
            .observer(move |_: Duration, event: &Event| {
                let is_ready = matches!(event, Event::ProducerReady { .. });
                *sink.lock().unwrap() += u64::from(is_ready);
            })
            .build()
            .unwrap();
        for (item, ready) in [(5, 1), (0, 2), (1, 3)] {
            let _ = runner.run([item]);
            assert_eq!(*told.lock().unwrap(), ready, "once in each run");
        }
    });
}

#[test]
fn an_observer_that_panics_is_told_no_more_and_the_run_goes_on() {
    no_hang(|| {
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x)))
            .devices(2)
            .observer(|_: Duration, _: &Event| panic!("observer"))
            .build()
            .unwrap();
        assert_eq!(runner.run(0..100).unwrap().len(), 100);
        assert_eq!(runner.run(0..100).unwrap().len(), 100);
    });
}

#[test]
fn a_stream_has_a_report_too() {
    no_hang(|| {
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x)))
            .devices(2)
            .timeline()
            .build()
            .unwrap();
        let outputs: Vec<_> = runner.outputs(0..50).map(Result::unwrap).collect();
        assert_eq!(outputs.len(), 50);
        let report = runner.report();
        assert_eq!(report.account.ok, 50);
        assert_eq!(report.latency.unwrap().count, 50);
    });
}

#[test]
fn results_come_in_the_order_of_the_tasks_in_either_order() {
    no_hang(|| {
        let work = || {
            map(
                |_| Ok(()),
                |_, (), x: u64| match x % 3 {
                    0 => Err("bad".into()),
                    1 => panic!("dies"),
                    _ => Ok(x),
                },
            )
        };
        for order in [Order::Input, Order::Completion] {
            let mut pool = AnyOrderRunner::builder(work().results())
                .order(order)
                .devices(3)
                .on_error(OnError::Skip)
                .key(|x| format!("id{x}"))
                .build()
                .unwrap();
            let results = pool.run(0..90).unwrap();
            assert_eq!(results.len(), 90);
            for (item, task) in (0..).zip(&results) {
                assert_eq!((task.item, task.key.as_deref()), (item, Some(&*format!("id{item}"))));
                match (&task.result, item % 3) {
                    (Ok(output), 2) => assert_eq!(*output, item),
                    (Err(failure), 0) => assert!(failure.to_string().ends_with("bad")),
                    (Err(failure), 1) => assert!(failure.is_panic),
                    other => panic!("{item}: {other:?}"),
                }
            }
        }
    });
}
