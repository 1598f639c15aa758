use super::*;
use std::collections::{BTreeMap, BTreeSet};

use crate::samples::{PlayedRun, eventful, failure, micros};
use crate::{ProducerReport, WorkerReport};
use proptest::prelude::*;
use serde_json::{Value, json};

fn events(report: &RunReport, ph: &str) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&report.to_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == ph).cloned().collect()
}

#[test]
fn items_are_spans_on_their_producers_threads() {
    let mut played = PlayedRun::new(2);
    played.start(1_500, 1, 7, 2);
    played.finish(4_000, 1, 7);
    let report = played.end(5_000);
    let expected = json!([{
        "name": "key 7", "ph": "X", "cat": "item", "pid": 1, "tid": 2, "ts": 1500.0005, "dur": 2500.0005,
        "args": {"item": 7, "key": "key 7", "attempt": 2},
    }]);
    assert_eq!(json!(events(&report, "X")), expected);
    let names = json!(events(&report, "M"));
    assert_eq!(names[0]["args"]["name"], "gangline");
    assert!(names.to_string().contains("producer 1 (cuda:1)"));
}

#[test]
fn a_batch_is_one_span_although_other_items_end_in_between() {
    let mut played = PlayedRun::new(2);
    for producer in [0, 1] {
        [0, 2].into_iter().for_each(|item| played.start(100, producer, item + producer as u64, 1));
    }
    [(0, 0), (1, 1), (0, 2), (1, 3)]
        .into_iter()
        .for_each(|(producer, item)| played.finish(900, producer, item));
    let spans = events(&played.end(1_000), "X");
    let played: Vec<_> = spans.iter().map(|span| (&span["name"], &span["args"]["items"])).collect();
    assert_eq!(
        played,
        [(&json!("batch of 2"), &json!([0, 2])), (&json!("batch of 2"), &json!([1, 3]))]
    );
}

#[test]
fn failures_are_instants() {
    let mut played = PlayedRun::new(1);
    played.fail(2_000, failure(3, 0, 1, "\u{1b} bad \"x\""));
    played.recorder.quarantined(micros(3_000), 0, &"gone".into());
    let mut moments = events(&played.end(4_000), "i");
    moments.retain(|event| event["cat"] == "incident");
    let expected = json!([
        {
            "name": "failed", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 2000.0005, "s": "t",
            "args": {"item": 3, "text": "\u{1b} bad \"x\""},
        },
        {
            "name": "quarantined", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 3000.0005, "s": "t",
            "args": {"text": "gone"},
        },
    ]);
    assert_eq!(json!(moments), expected);
}

#[test]
fn a_trace_states_what_it_lacks() {
    let trace: Value = serde_json::from_str(&eventful(2).to_trace()).unwrap();
    assert_eq!(trace["otherData"]["spans_left_out"], 0);
    assert!(trace["otherData"]["conclusion"].as_str().unwrap().starts_with("The order"));
}

/// What a reader of the trace knows: whole nanoseconds, by thread.
fn read_back(report: &RunReport) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
    let mut threads = BTreeMap::<_, Vec<_>>::new();
    for span in events(report, "X") {
        let nanos = |field: &str| (span[field].as_f64().unwrap() * 1_000.0) as u64;
        let thread = (span["pid"].as_u64().unwrap(), span["tid"].as_u64().unwrap());
        threads.entry(thread).or_default().push((nanos("ts"), nanos("ts") + nanos("dur")));
    }
    threads
}

fn assert_nested(report: &RunReport) {
    for (thread, spans) in read_back(report) {
        let mut around: Vec<(u64, u64)> = Vec::new();
        for span in spans {
            around.retain(|around| around.1 > span.0);
            let fits = around.iter().all(|around| around.0 <= span.0 && span.1 <= around.1);
            assert!(fits, "{thread:?}: {span:?} overlaps one of {around:?} partly");
            around.push(span);
        }
    }
}

fn report_of(spans: impl IntoIterator<Item = (u64, u64)>) -> RunReport {
    let span = |(item, (start, took))| Span {
        item,
        start: Duration::from_nanos(start),
        took: Duration::from_nanos(took),
        ..Span::default()
    };
    RunReport { spans: (0..).zip(spans).map(span).collect(), ..RunReport::default() }
}

proptest! {
    /// A rounded end would lie behind the next beginning.
    #[test]
    fn spans_that_touch_do_not_overlap(
        start in 0u64..4_000_000_000_000_000,
        times in prop::collection::vec(1u64..5_000, 1..50),
    ) {
        let mut at = start;
        let spans: Vec<_> = times.iter().map(|&took| {
            at += took;
            (at - took, took)
        }).collect();
        let report = report_of(spans.clone());
        assert_nested(&report);
        let exact: Vec<_> = spans.iter().map(|&(start, took)| (start, start + took)).collect();
        prop_assert_eq!(&read_back(&report)[&(1, 1)], &exact);
    }

    #[test]
    fn any_spans_are_nested(
        spans in prop::collection::vec((0u64..1_000, 0u64..200), 0..50),
    ) {
        assert_nested(&report_of(spans));
    }
}

#[test]
fn a_rebuilt_state_is_a_span() {
    let mut played = PlayedRun::new(1);
    played.start(0, 0, 0, 1);
    played.finish(1_000, 0, 0);
    let took = Duration::from_micros(2_000);
    played.recorder.ready(micros(3_500), 0, took, true);
    let report = played.end(4_000);
    assert_nested(&report);
    let init = &events(&report, "X")[1];
    assert_eq!((&init["name"], &init["ts"]), (&json!("producer_init"), &json!(1500.0005)));
    assert!(events(&report, "i").is_empty());
}

#[test]
fn a_trace_without_item_events_says_how_to_have_them() {
    let mut told = PlayedRun::new(1);
    told.consume(500, 10);
    let quiet = told.end(1_000);
    assert_eq!(events(&quiet, "i")[0]["name"], NO_ITEM_EVENTS);
    assert!(!eventful(1).to_trace().contains(NO_ITEM_EVENTS));
}

#[test]
fn each_stage_is_a_process() {
    let reports = [PlayedRun::new(1).end(1_000), eventful(2)];
    let trace: Value =
        serde_json::from_str(&to_text(reports.iter().map(|report| (None, report)))).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let pids: BTreeSet<_> = events.iter().map(|event| event["pid"].as_u64()).collect();
    assert_eq!(pids, [Some(1), Some(2)].into());
}

#[test]
fn items_that_a_worker_has_at_the_same_time_are_on_threads_beside_each_other() {
    let mut report = report_of([(0, 9_000), (1_000, 4_000), (2_000, 2_000), (5_000, 1_000)]);
    let worker = Some(WorkerReport { producers: 3, ..WorkerReport::default() });
    let place = "node/0".to_owned();
    report.producers = vec![ProducerReport { place, worker, ..ProducerReport::default() }];
    let spans = read_back(&report);
    let durations: Vec<Vec<u64>> =
        spans.values().map(|it| it.iter().map(|(from, to)| to - from).collect()).collect();
    assert_eq!(durations, [vec![9_000], vec![4_000, 1_000], vec![2_000]]);
    let names = json!(events(&report, "M")).to_string();
    assert!(names.contains("producer 0 (node/0), item 3 at a time"), "{names}");
}
