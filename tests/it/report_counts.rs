//! What a report counts, and where.

use std::sync::Arc;
use std::time::Duration;

use gangline::error::MaxFailures;
use gangline::event::Event;
use gangline::{Batch, Error, OnError, OrderedRunner, Pipeline, Pool, RunReport, Runner};

use crate::hooks::Hooks;
use crate::support::{Gate, map, no_hang, one_by_one};

/// Far more than a producer that is not stuck is kept from its processor.
pub(crate) const SOON: Duration = Duration::from_millis(500);

fn failed(report: &RunReport) -> u64 {
    report.producers.iter().map(|producer| producer.failed).sum()
}

#[test]
fn what_fails_together_counts_on_the_producer_that_it_failed_on() {
    no_hang(|| {
        let dies = map(
            |_| Ok(()),
            |_, (), x: u64| {
                assert_ne!(x % 8, 5, "dies");
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(one_by_one(dies))
            .devices(2)
            .batch(Batch::of(4))
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..48);
        // How many were in a batch with one that dies: a batch may be smaller where there is no credit for more.
        let lost = 48 - outputs.unwrap().len() as u64;
        assert!((6..=24).contains(&lost), "{report}");
        assert_eq!((report.account.failed, failed(&report)), (lost, lost), "{report}");
    });
}

#[test]
fn each_item_that_fails_with_its_batch_has_an_event() {
    no_hang(|| {
        let (sender, told) = std::sync::mpsc::channel();
        let dies = map(|_| Ok(()), |_, (), x: u64| if x < 9 { panic!("dies") } else { Ok(x) });
        let mut runner = OrderedRunner::builder(one_by_one(dies))
            .devices(1)
            .batch(Batch::of(4))
            .key(|x| format!("tile {x}"))
            .observer(move |_: Duration, event: &Event| {
                if let Event::ItemFailed { failure, .. } = event {
                    sender.send((failure.item, failure.key.clone())).unwrap();
                }
            })
            .build()
            .unwrap();
        let (result, report) = runner.run_with_report(0..4);
        result.unwrap_err();
        let told: Vec<_> = told.try_iter().collect();
        let expected: Vec<_> = (0..4).map(|x| (Some(x), Some(format!("tile {x}")))).collect();
        assert_eq!(told, expected, "{report}");
        assert_eq!((report.account.failed, report.failures.len()), (4, 4), "{report}");
    });
}

/// The hook has taken the inputs, so the batch fails as a whole.
#[test]
fn each_item_of_a_batch_that_fails_without_its_inputs_is_reported_once() {
    no_hang(|| {
        type Fails = fn() -> gangline::Result<Vec<gangline::Result<u64>>>;
        let ways: [Fails; 3] = [
            || Err("all of it".into()),
            || panic!("all of it"),
            || Err(std::io::Error::other("the disk").into()),
        ];
        for (fails, on_error) in
            ways.into_iter().flat_map(|way| [(way, OnError::Skip), (way, OnError::Stop)])
        {
            let told = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let count = told.clone();
            let takes_all = gangline::map_batches(
                |_| Ok(()),
                move |_, (), xs: &mut Vec<u64>| {
                    xs.clear();
                    fails()
                },
            );
            let mut runner = OrderedRunner::builder(takes_all)
                .devices(1)
                .batch(Batch::of(8))
                .on_error(on_error)
                .observer(move |_: Duration, event: &Event| {
                    if let Event::ItemFailed { .. } = event {
                        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                })
                .build()
                .unwrap();
            let (_, report) = runner.run_with_report(0..8);
            let told = told.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!((report.account.failed, told), (8, 8), "{report}");
            let items: Vec<_> = report.failures.iter().filter_map(|it| it.item).collect();
            assert_eq!(items, (0..8).collect::<Vec<_>>(), "{report}");
        }
    });
}

/// The consumer is stuck at one result until the gate opens.
pub(crate) fn consumer_stuck_at(item: u64, gate: &Arc<Gate>) -> Hooks {
    let gate = gate.clone();
    Hooks::new().consume(move |_, y| {
        if y == item {
            gate.pass();
        }
        Ok(())
    })
}

/// One item is stuck until the gate opens.
fn stuck_at(item: u64, gate: &Arc<Gate>) -> Hooks {
    let gate = gate.clone();
    Hooks::new().work(move |_, x| {
        if x == item {
            gate.pass();
        }
        Ok(x)
    })
}

#[test]
fn what_was_stuck_counts_on_the_producer_that_it_was_stuck_on() {
    no_hang(|| {
        for (batch, items) in [(None, 1), (Some(Batch::of(4)), 4)] {
            let gate = Arc::new(Gate::new());
            let builder = OrderedRunner::builder(stuck_at(5, &gate))
                .devices(2)
                .item_timeout(SOON)
                .on_error(OnError::Skip);
            let builder = match batch {
                Some(batch) => builder.batch(batch),
                None => builder,
            };
            let mut runner = builder.build().unwrap();
            let (outputs, report) = runner.run_with_report(0..48);
            assert_eq!(outputs.unwrap().len(), 48 - items as usize);
            let stuck = report.producers.iter().find(|producer| producer.abandoned).unwrap();
            assert_eq!((failed(&report), stuck.failed), (items, items), "{report}");
            gate.open();
        }
    });
}

#[test]
fn an_item_that_the_last_producer_is_stuck_at_has_its_key() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(stuck_at(5, &gate))
            .devices(1)
            .item_timeout(SOON)
            .key(|x| format!("tile {x}"))
            .build()
            .unwrap();
        let (result, report) = runner.run_with_report(0..50);
        let error = result.unwrap_err();
        assert_eq!((error.item(), error.key()), (Some(5), Some("tile 5")), "{error:#}");
        let [failure] = &report.failures[..] else { panic!("{report}") };
        assert_eq!(failure.key.as_deref(), Some("tile 5"));
        assert_eq!((report.account.failed, failed(&report)), (1, 1), "{report}");
        gate.open();
    });
}

/// Of each stage: how many items failed in it, how many failures it tells, and how many its producers count.
fn failures<R: Runner, O>(stages: &[&Pool<R, O>]) -> Vec<(u64, usize, u64)> {
    let reports = stages.iter().map(|stage| stage.report());
    reports.map(|report| (report.account.failed, report.failures.len(), failed(&report))).collect()
}

fn fails_at(item: u64) -> Hooks {
    Hooks::new().work(move |_, x| if x == item { Err("bad".into()) } else { Ok(x) })
}

#[test]
fn a_failure_is_told_in_its_own_stage_only() {
    no_hang(|| {
        let stage = |item| OrderedRunner::new(fails_at(item), 1).unwrap();
        let (mut one, mut two, mut three) = (stage(5), stage(99), stage(99));
        let error = Pipeline::new(&mut one).then(&mut two).then(&mut three).run(0..50).unwrap_err();
        assert_eq!(error.item(), Some(5), "{error:#}");
        assert_eq!(failures(&[&one, &two, &three]), [(1, 1, 1), (0, 0, 0), (0, 0, 0)]);
        let mut one = stage(99);
        let mut two = stage(7);
        let error = Pipeline::new(&mut one).then(&mut two).then(&mut three).run(0..50).unwrap_err();
        assert_eq!(error.item(), Some(7), "{error:#}");
        assert_eq!(failures(&[&one, &two, &three]), [(0, 0, 0), (1, 1, 1), (0, 0, 0)]);
    });
}

#[test]
fn too_many_failures_in_one_stage_are_no_failure_of_the_next() {
    no_hang(|| {
        let mut one = OrderedRunner::builder(Hooks::new().work(|_, x| match x {
            ..40 => Err("bad".into()),
            x => Ok(x),
        }))
        .devices(1)
        .on_error(OnError::Skip)
        .max_failures(MaxFailures::from(2))
        .build()
        .unwrap();
        let mut two = OrderedRunner::new(Hooks::new(), 1).unwrap();
        let error = Pipeline::new(&mut one).then(&mut two).run(0..50).unwrap_err();
        assert!(matches!(error, Error::TooManyFailures { .. }), "{error:#}");
        assert_eq!(one.report().failures.len() as u64, one.account().failed);
        assert_eq!(failures(&[&two]), [(0, 0, 0)]);
    });
}

#[test]
fn an_item_that_a_stage_is_stuck_at_is_told_in_that_stage() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut one = OrderedRunner::builder(stuck_at(5, &gate))
            .devices(1)
            .item_timeout(SOON)
            .build()
            .unwrap();
        let mut two = OrderedRunner::new(Hooks::new(), 1).unwrap();
        let error = Pipeline::new(&mut one).then(&mut two).run(0..50).unwrap_err();
        assert!(error.is_timeout(), "{error:#}");
        assert_eq!(failures(&[&one, &two]), [(1, 1, 1), (0, 0, 0)]);
        gate.open();
    });
}

#[test]
fn a_consumer_that_was_abandoned_is_counted_among_the_threads_that_were() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let hooks = consumer_stuck_at(5, &gate);
        let mut runner =
            OrderedRunner::builder(hooks).devices(2).run_timeout(SOON).build().unwrap();
        let (result, report) = runner.run_with_report(0..50);
        assert!(matches!(result, Err(Error::RunTimedOut { .. })));
        assert!(report.consumer_abandoned && report.threads_abandoned() > 0, "{report}");
        let said = "the consumer did not return in time: its thread was abandoned";
        assert!(report.to_string().contains(said), "{report}");
        assert!(report.to_html().contains(said));
        gate.open();
    });
}

/// The limit passed while the source was in its own code: the consumer had returned long before that was seen.
#[test]
fn a_consumer_that_returned_in_time_was_not_abandoned() {
    no_hang(|| {
        let limit = Duration::from_millis(50);
        for _ in 0..8 {
            let mut runner =
                OrderedRunner::builder(Hooks::new()).devices(2).run_timeout(limit).build().unwrap();
            let slow = (0..9).inspect(|&x| {
                if x == 3 {
                    std::thread::sleep(8 * limit);
                }
            });
            let (result, report) = runner.run_with_report(slow);
            assert!(matches!(result, Err(Error::RunTimedOut { .. })));
            assert!(!report.consumer_abandoned, "{report}");
        }
    });
}

#[test]
fn a_report_says_where_when_and_how_it_ran() {
    no_hang(|| {
        let pass = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let mut runner = OrderedRunner::builder(one_by_one(pass))
            .devices(2)
            .window(8)
            .batch(Batch::up_to(4))
            .retries(2)
            .item_timeout(Duration::from_secs(90))
            .build()
            .unwrap();
        assert_eq!(runner.report().provenance.started, None, "there was no run");
        let report = runner.run_with_report(0..9).1;
        let provenance = &report.provenance;
        assert!(provenance.started.as_ref().unwrap().ends_with('Z'), "{provenance:?}");
        assert_eq!(provenance.gangline.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert!(!provenance.command[0].is_empty() && provenance.cores >= Some(1));
        let settings: Vec<_> =
            provenance.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "backoff: 100 ms",
            "batch: up to 4",
            "item_timeout: 1 min 30 s",
            "order: input",
            "retries: 2",
            "window: 8",
        ];
        assert_eq!(settings, expected);
    });
}
