//! Metrics of runs, as an exporter shows them.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use gangline::event::{Event, Observer};
use gangline::metrics::Metrics;
use gangline::{Batch, Journal, OnError, OrderedRunner, map_batches};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::support::{Gate, map, no_hang};

/// Metrics that go to an exporter of their own.
fn exported() -> (Metrics, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (metrics::with_local_recorder(&recorder, || Metrics::new("r")), handle)
}

#[track_caller]
fn check(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|there| there == *line), "{line} in\n{text}");
    }
}

#[test]
fn items_count_by_outcome_over_all_runs() {
    no_hang(|| {
        let (metrics, exporter) = exported();
        let folder = tempfile::tempdir().unwrap();
        let work = map(
            |_| Ok(()),
            |cx, (), x: u64| match x {
                3 if cx.attempt() == 1 => Err("again".into()),
                7 => Err("bad".into()),
                _ => Ok(x),
            },
        );
        let mut pool = OrderedRunner::builder(work)
            .devices(2)
            .retries(1)
            .on_error(OnError::Skip)
            .journal(Journal::at(folder.path().join("journal")).resume())
            .observer(metrics)
            .build()
            .unwrap();
        pool.run(0..10).unwrap();
        pool.run(0..20).unwrap();
        check(
            &exporter.render(),
            &[
                r#"gangline_items_total{runner="r",outcome="ok"} 19"#,
                r#"gangline_items_total{runner="r",outcome="failed"} 2"#,
                r#"gangline_items_total{runner="r",outcome="already_done"} 9"#,
                r#"gangline_items_total{runner="r",outcome="cancelled"} 0"#,
                r#"gangline_runs_total{runner="r",outcome="ok"} 2"#,
                // Once for item 3, and in each run for item 7.
                r#"gangline_retries_total{runner="r"} 3"#,
                r#"gangline_items_in_flight{runner="r"} 0"#,
                r#"gangline_items_working{runner="r"} 0"#,
                r#"gangline_items_queued{runner="r"} 0"#,
                r#"gangline_producers{runner="r"} 0"#,
                r#"gangline_producers_busy{runner="r"} 0"#,
                r#"gangline_hook_duration_seconds_count{runner="r",hook="producer_init"} 2"#,
                r#"gangline_hook_duration_seconds_count{runner="r",hook="producer_work"} 24"#,
                r#"gangline_consumer_busy_seconds_count{runner="r"} 2"#,
                r#"gangline_items_delivered_total{runner="r"} 30"#,
            ],
        );
    });
}

#[test]
fn what_a_failed_and_a_cancelled_run_left_undone_counts() {
    no_hang(|| {
        let (metrics, exporter) = exported();
        let work = map(|_| Ok(()), |_, (), x: u64| if x == 5 { Err("bad".into()) } else { Ok(x) });
        let builder = OrderedRunner::builder(work).devices(1).window(2).observer(metrics);
        let mut pool = builder.build().unwrap();
        pool.run(0..10).unwrap_err();
        let account = pool.account();
        let token = pool.cancel_token();
        pool.run((10..20).inspect(|&x| {
            if x == 12 {
                token.cancel();
            }
        }))
        .unwrap_err();
        let cancelled = account.cancelled + pool.account().cancelled;
        check(
            &exporter.render(),
            &[
                &format!(r#"gangline_items_total{{runner="r",outcome="cancelled"}} {cancelled}"#),
                r#"gangline_items_total{runner="r",outcome="failed"} 1"#,
                r#"gangline_runs_total{runner="r",outcome="failed"} 1"#,
                r#"gangline_runs_total{runner="r",outcome="cancelled"} 1"#,
            ],
        );
    });
}

#[test]
fn batches_and_rebuilt_states_count() {
    no_hang(|| {
        let (metrics, exporter) = exported();
        let work = map_batches(
            |_| Ok(()),
            |_, (), xs: &mut Vec<u64>| {
                assert!(xs.len() > 1 || xs[0] != 5, "five");
                if xs.contains(&5) {
                    return Err("look closer".into());
                }
                Ok(xs.iter().map(|&x| Ok(x)).collect())
            },
        );
        let mut pool = OrderedRunner::builder(work)
            .devices(1)
            .batch(Batch::of(4))
            .on_error(OnError::Skip)
            .observer(metrics)
            .build()
            .unwrap();
        assert_eq!(pool.run(0..10).unwrap().len(), 9);
        check(
            &exporter.render(),
            &[
                // [0-3], [4-7], [4, 5], [4], [5], [6, 7], [8, 9]
                r#"gangline_batch_items_count{runner="r"} 7"#,
                r#"gangline_batch_items_sum{runner="r"} 16"#,
                r#"gangline_reinits_total{runner="r"} 1"#,
                r#"gangline_items_total{runner="r",outcome="ok"} 9"#,
            ],
        );
    });
}

/// Passes events on, and shows what is exported at each tick, once the gauges are set.
struct Shown(Metrics, PrometheusHandle, mpsc::Sender<String>);

impl Observer for Shown {
    fn observe(&mut self, at: Duration, event: &Event) {
        self.0.observe(at, event);
    }

    fn tick(&mut self, at: Duration) {
        self.0.tick(at);
        let _ = self.2.send(self.1.render());
    }
}

#[track_caller]
fn wait_for(pages: &mpsc::Receiver<String>, lines: &[&str]) {
    let has_all = |page: &String| lines.iter().all(|line| page.lines().any(|there| there == *line));
    let page = pages.iter().find(has_all);
    assert!(page.is_some(), "{lines:?} are never shown");
}

#[test]
fn the_queue_of_a_service_counts_calls_that_no_producer_has_begun() {
    no_hang(|| {
        let (metrics, exporter) = exported();
        let (shown, pages) = mpsc::channel();
        let gate = Arc::new(Gate::new());
        let opens = gate.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                gate.pass();
                Ok(x)
            },
        );
        let builder = OrderedRunner::builder(work).devices(2).window(8);
        let pool = builder.observer(Shown(metrics, exporter.clone(), shown)).build().unwrap();
        let service = pool.into_service();
        let tickets: Vec<_> = (0..7).map(|x| service.try_submit(x).unwrap()).collect();
        wait_for(
            &pages,
            &[
                r#"gangline_items_in_flight{runner="r"} 7"#,
                r#"gangline_items_working{runner="r"} 2"#,
                r#"gangline_items_queued{runner="r"} 5"#,
                r#"gangline_producers{runner="r"} 2"#,
                r#"gangline_producers_busy{runner="r"} 2"#,
            ],
        );
        opens.open();
        tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
        wait_for(
            &pages,
            &[r#"gangline_items_queued{runner="r"} 0"#, r#"gangline_producers_busy{runner="r"} 0"#],
        );
        service.close().unwrap();
    });
}

#[test]
fn items_in_flight_are_exact_behind_an_expansion() {
    no_hang(|| {
        let (metrics, exporter) = exported();
        let (shown, pages) = mpsc::channel();
        let gate = Arc::new(Gate::new());
        let opens = gate.clone();
        let of_part = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 25 {
                    gate.pass();
                }
                Ok(x)
            },
        );
        let parents = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1).unwrap();
        let sums = OrderedRunner::new(map(|_| Ok(()), |_, (), x: (Arc<u64>, u64)| Ok(x.1)), 1);
        let builder = OrderedRunner::builder(of_part).devices(1).window(4);
        let parts = builder.observer(Shown(metrics, exporter, shown)).build().unwrap();
        let mut pipeline = parents
            .expand(|x| [**x, **x + 10, **x + 20])
            .then(parts)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(sums.unwrap());
        let held = std::thread::spawn(move || {
            // Behind the parts of each parent before is a mark, which is no item.
            wait_for(&pages, &[r#"gangline_items_in_flight{runner="r"} 4"#]);
            opens.open();
        });
        assert_eq!(pipeline.run(0..40).unwrap().len(), 40);
        held.join().unwrap();
    });
}

/// Exporters may add the unit to a name that lacks it.
#[test]
fn names_have_their_units() {
    no_hang(|| {
        let names = |builder: PrometheusBuilder| {
            let recorder = builder.build_recorder();
            let metrics = metrics::with_local_recorder(&recorder, || Metrics::new("r"));
            let mut pool =
                OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x))).devices(1);
            pool = pool.observer(metrics);
            pool.build().unwrap().run(0..3).unwrap();
            let text = recorder.handle().render();
            let types = text.lines().filter(|line| line.starts_with("# TYPE ")).map(str::to_owned);
            types.collect::<std::collections::BTreeSet<_>>()
        };
        let plain = names(PrometheusBuilder::new());
        assert!(plain.len() > 10, "{plain:?}");
        assert_eq!(names(PrometheusBuilder::new().with_recommended_naming(true)), plain);
    });
}
