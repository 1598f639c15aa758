//! The report of a pipeline, and those of its pools.

use gangline::report::{Bottleneck, Ending, TextStyle};
use gangline::{AnyOrderRunner, OnError, Order, RunReport};

use crate::hooks::Hooks;
use crate::rows::{Row, Stage, failing, orders, skipping, with_pipeline};

/// Three stages with names and item events; item 4 fails in the first, item 5 in the last.
fn row(orders: &[Order]) -> [Stage; 3] {
    let stage = |hooks, order, name: &str| {
        skipping(hooks, order).describe(name).key(|x| format!("key {x}")).timeline()
    };
    [
        stage(failing(|x| x == 4), orders[0], "decode").build().unwrap(),
        stage(Hooks::new(), orders[1], "infer").devices(3).build().unwrap(),
        stage(failing(|x| x == 5), orders[2], "write").devices(1).build().unwrap(),
    ]
}

fn report_of(row: &mut [Stage], items: u64) -> RunReport {
    with_pipeline(row, |row| {
        let _ = row.run_vec((0..items).collect());
        row.pipeline().report()
    })
}

#[test]
fn it_has_the_reports_of_the_pools_and_their_producers() {
    for orders in orders(3) {
        let mut row = row(&orders);
        let report = report_of(&mut row, 50);
        assert_eq!((report.ending, report.items), (Ending::Finished, Some(50)));
        assert_eq!((report.account.ok, report.account.failed), (48, 2));
        let names: Vec<_> = report.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["decode", "infer", "write"]);
        for (stage, pool) in report.stages.iter().zip(&row) {
            assert_eq!(stage.report, pool.report());
            assert_eq!(stage.report.account, pool.account());
        }
        let producers: Vec<_> =
            report.producers.iter().map(|p| p.stage.as_deref().unwrap()).collect();
        assert_eq!(producers, ["decode", "decode", "infer", "infer", "infer", "write"]);
        assert_eq!(report.timeline.as_ref().unwrap().busy_ns.len(), 6);
        let failures: Vec<_> =
            report.failures.iter().map(|f| (f.stage.as_deref(), f.key.as_deref())).collect();
        assert!(failures.contains(&(Some("decode"), Some("key 4"))), "{failures:?}");
        assert!(failures.contains(&(Some("write"), Some("key 5"))), "{failures:?}");
        assert_eq!(failures.len(), 2);
        let failed = report.failures.iter().find(|f| f.stage.as_deref() == Some("write")).unwrap();
        assert_eq!(failed.producer, Some(5), "producers are numbered through all stages");
    }
}

#[test]
fn json_holds_all_of_it_and_each_stage_can_be_read_on_its_own() {
    let report = report_of(&mut row(&[Order::Input; 3]), 50);
    let json = report.to_json();
    assert_eq!(RunReport::from_json(&json).unwrap(), report);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (stage, expected) in value["stages"].as_array().unwrap().iter().zip(&report.stages) {
        assert_eq!(stage["report"]["version"], 1);
        assert_eq!(RunReport::from_json(&stage["report"].to_string()).unwrap(), expected.report);
    }
    let single = report.stages[0].report.to_json();
    assert!(!single.contains("stages") && !single.contains("bottleneck_stage"), "as before");
}

#[test]
fn text_fits_a_terminal_and_names_the_stages() {
    let report = report_of(&mut row(&[Order::Input; 3]), 50);
    for columns in [40, 80, 120] {
        let text = report.styled(TextStyle::plain().columns(columns)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
    }
    let text = report.to_string();
    assert!(text.starts_with("decode, infer, write: finished in"), "{text}");
    assert!(text.contains("item 4 (key 4) in producer_work of decode on cpu"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("  infer ")).count(), 1, "{text}");
    let lanes = text.lines().filter(|line| line.contains("  infer   cpu"));
    assert_eq!(lanes.count(), 3, "{text}");
}

#[test]
fn the_page_and_the_trace_have_all_stages() {
    let report = report_of(&mut row(&[Order::Input; 3]), 50);
    let page = report.to_html();
    for text in ["<h2>Stages</h2>", "<h2>Timeline</h2>", "decode", "5 write, cpu"] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("class=\"track\"").count(), 6, "a lane for each producer");
    let trace: serde_json::Value = serde_json::from_str(&report.to_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let processes = events.iter().filter(|event| event["name"] == "process_name");
    let processes: Vec<_> =
        processes.map(|event| (event["pid"].as_u64(), event["args"]["name"].as_str())).collect();
    let expected = [
        (Some(1), Some("gangline: decode")),
        (Some(2), Some("gangline: infer")),
        (Some(3), Some("gangline: write")),
    ];
    assert_eq!(processes, expected);
    for (pid, spans) in [(1, 50), (2, 49), (3, 49)] {
        let spans_of = events.iter().filter(|event| event["cat"] == "item" && event["pid"] == pid);
        assert_eq!(spans_of.count(), spans, "of stage {pid}");
    }
}

#[test]
fn stages_without_names_have_numbers() {
    let mut row = [
        skipping(Hooks::new(), Order::Input).build().unwrap(),
        skipping(Hooks::new(), Order::Input).describe("write").build().unwrap(),
    ];
    let report = report_of(&mut row, 5);
    assert_eq!(report.description.as_deref(), Some("stage 1, write"));
    assert!(report.to_trace().contains("gangline: stage 1"));
    assert!(report.to_html().contains("stage 1"));
}

#[test]
fn a_run_that_fails_has_a_report_too() {
    for stage in 0..3 {
        let mut row: [Stage; 3] = std::array::from_fn(|number| {
            let hooks = failing(move |x| number == stage && x == 7);
            AnyOrderRunner::builder(hooks).devices(2).on_error(OnError::Stop).build().unwrap()
        });
        let report = report_of(&mut row, 50);
        assert_eq!(
            (report.ending, report.account.failed, report.account.ok),
            (Ending::Failed, 1, 7)
        );
        assert!(report.error.as_ref().unwrap().contains("no 7"), "{:?}", report.error);
        assert_eq!(report.failures.len(), 1);
        assert_eq!(report.failures[0].stage, Some(format!("stage {}", stage + 1)));
        assert!(report.to_string().contains("failed after"), "{report}");
    }
}

#[test]
fn without_a_run_it_is_empty_and_after_a_refused_one_it_says_so() {
    let mut a = skipping(Hooks::new(), Order::Input).build().unwrap();
    let mut b = skipping(Hooks::new(), Order::Input).build().unwrap();
    a.run(0..5).unwrap();
    b.close().unwrap();
    let mut row = a.then(&mut b);
    assert_eq!(row.report(), RunReport::default(), "the run of a pool is no run of the pipeline");
    row.run_vec(vec![1, 2]).unwrap_err();
    let report = row.report();
    assert_eq!((report.ending, report.bottleneck), (Ending::Failed, Bottleneck::Unknown));
    assert_eq!((report.account.ok, report.account.unread), (0, Some(2)));
    assert!(report.to_string().contains("closed"), "{report}");
}

/// Another has the only item. The idle producers were once reported as busy all of it.
#[test]
fn a_producer_without_items_has_waited() {
    let slow = Hooks::new().work(|_, x| {
        std::thread::sleep(std::time::Duration::from_millis(60));
        Ok(x)
    });
    let mut pool = slow.pool(Order::Input, 3);
    pool.run(0..1).unwrap();
    for producer in pool.report().producers.iter().filter(|producer| producer.items == 0) {
        assert!(producer.waiting > producer.working, "{producer:?}");
    }
    assert_eq!(pool.report().producers.iter().filter(|producer| producer.items == 0).count(), 2);
}
