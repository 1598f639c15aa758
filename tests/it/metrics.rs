//! Metrics of runs, as an exporter shows them.

use gangline::metrics::Metrics;
use gangline::{Batch, Journal, OnError, OrderedRunner, map_batches};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::support::{map, no_hang};

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
                r#"gangline_hook_seconds_count{runner="r",hook="producer_init"} 2"#,
                r#"gangline_hook_seconds_count{runner="r",hook="producer_work"} 24"#,
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
