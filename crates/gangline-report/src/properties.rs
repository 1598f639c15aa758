//! Properties that hold for the report of any run.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::RunReport;
use super::samples::{PlayedRun, failure, micros};
use super::span::{MOST_INCIDENTS, MOST_SPANS};
use crate::account::Ending;
use crate::failure::Failure;

/// One batch of one producer.
#[derive(Debug, Clone)]
struct BatchStep {
    producer: usize,
    /// Microseconds until the batch begins, and how long it takes.
    idle: u64,
    took: u64,
    items: u64,
    fate: Fate,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Consumed,
    Failed,
    RetriedThenFailed,
    LostBeginning,
    LostEnd,
    Open,
}

/// Counts of the events, kept independently of the recorder.
#[derive(Debug, Default)]
struct EventTally {
    ended: u64,
    measured: u64,
    open: u64,
    consumed: u64,
    failed: u64,
    retried: u64,
    lost: u64,
}

const PRODUCERS: usize = 3;

/// Part of every user text, so that unescaped output can be found.
const MARK: &str = "<zz \u{1b}\"zz 'zz &zz;";

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>().prop_map(|text| format!("{MARK}{text}")),
        "[a-z<>&\"'\u{0}-\u{1f}\u{202e}]{0,30}".prop_map(|text| format!("{text}{MARK}")),
        Just(format!("{MARK}{}", "x".repeat(8_192))),
    ]
}

fn steps() -> impl Strategy<Value = Vec<BatchStep>> {
    let fate = prop_oneof![
        6 => Just(Fate::Consumed),
        1 => Just(Fate::Failed),
        1 => Just(Fate::RetriedThenFailed),
        1 => Just(Fate::LostBeginning),
        1 => Just(Fate::LostEnd),
        1 => Just(Fate::Open),
    ];
    let times = (prop_oneof![Just(0), 1_u64..1_000_000], prop_oneof![Just(0), 1_u64..5_000_000]);
    let step = (0..PRODUCERS, times, 1u64..6, fate, texts());
    let step = step.prop_map(|(producer, (idle, took), items, fate, text)| BatchStep {
        producer,
        // The gap keeps items of different batches from being taken for one batch.
        idle: idle + 1_001,
        took,
        items,
        fate,
        text,
    });
    proptest::collection::vec(step, 0..40)
}

/// Plays a run to a recorder; returns its report half way and at its end.
fn play(steps: &[BatchStep]) -> (RunReport, RunReport, EventTally) {
    let mut played = PlayedRun::on(vec![MARK.to_owned(); PRODUCERS], None);
    let (mut tally, mut now, mut item) = (EventTally::default(), [0u64; PRODUCERS], 0);
    let mut middle = played.recorder.report();
    let last = |producer| steps.iter().rposition(|step| step.producer == producer);
    for (index, step) in steps.iter().enumerate() {
        let producer = step.producer;
        let start = now[producer] + step.idle;
        let end = start + step.took;
        // Only the last step of a producer can be in progress.
        let fate = match step.fate {
            Fate::Open if last(producer) != Some(index) => Fate::Consumed,
            fate => fate,
        };
        now[producer] = if fate == Fate::Open { start } else { end };
        let items = item..item + step.items;
        item += step.items;
        for item in items.clone().filter(|_| fate != Fate::LostBeginning) {
            let key = Some(format!("{item} {}", step.text).into());
            played.recorder.item_started(micros(start), producer, item, key, 1);
        }
        if matches!(fate, Fate::Open) {
            tally.open += step.items;
            continue;
        }
        for item in items.clone().filter(|_| fate != Fate::LostEnd) {
            played.finish(end, producer, item);
            tally.ended += 1;
            tally.measured += u64::from(fate != Fate::LostBeginning);
        }
        settle(&mut played, &mut tally, end, step, fate, items);
        if index == steps.len() / 2 {
            middle = played.recorder.report();
        }
    }
    let end = now.into_iter().max().unwrap_or(0);
    played.totals.account.cancelled = tally.open;
    // Where ends were lost, no item is known to lack one.
    tally.open = if tally.lost > 0 { 0 } else { tally.open };
    if let Some(step) = steps.first() {
        (played.totals.ending, played.totals.error) = (Ending::Failed, Some(step.text.clone()));
    }
    (middle, played.end(end), tally)
}

fn settle(
    played: &mut PlayedRun,
    tally: &mut EventTally,
    at: u64,
    step: &BatchStep,
    fate: Fate,
    items: std::ops::Range<u64>,
) {
    let failed = |item, attempts| Failure {
        key: Some(step.text.clone()),
        error: step.text.clone(),
        ..failure(item, step.producer, attempts, &step.text)
    };
    match fate {
        Fate::Consumed => {
            played.consume(at, step.items);
            tally.consumed += step.items;
        }
        Fate::Failed => {
            items.clone().for_each(|item| played.fail(at, failed(item, 1)));
            tally.failed += step.items;
        }
        Fate::RetriedThenFailed => {
            for item in items {
                played.retry(at, failed(item, 1));
                played.fail(at, failed(item, 2));
            }
            tally.failed += step.items;
            tally.retried += step.items;
        }
        Fate::LostBeginning | Fate::LostEnd => {
            played.recorder.events_lost(micros(at), step.items);
            tally.lost += step.items;
        }
        Fate::Open => {}
    }
}

/// Checks that every tag of a page is one that we write, and is closed if it has to be.
fn check_markup(page: &str) {
    let known = [
        "html", "head", "meta", "title", "style", "body", "main", "header", "section", "h1", "h2",
        "p", "div", "dl", "dt", "dd", "ul", "li", "table", "thead", "tbody", "tr", "th", "td",
        "span", "code", "br", "details", "summary", "pre", "figure", "svg", "path", "rect", "i",
        "!DOCTYPE",
    ];
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(known.contains(&name), "<{tag}>");
        match tag {
            _ if tag.ends_with('/') || ["meta", "br", "!DOCTYPE"].contains(&name) => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "<{tag}>"),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Checks that spans of a thread do not overlap; batches are one span.
fn check_trace(text: &str, ended: u64) {
    let trace: Value = serde_json::from_str(text).unwrap();
    let mut threads = BTreeMap::<u64, Vec<(f64, f64)>>::new();
    let mut items = 0;
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            items += event["args"]["items"].as_array().map_or(1, Vec::len) as u64;
            let time = |name: &str| event[name].as_f64().unwrap();
            let spans = threads.entry(event["tid"].as_u64().unwrap()).or_default();
            spans.push((time("ts"), time("dur")));
        }
    }
    assert_eq!(items, ended);
    for spans in threads.values_mut() {
        spans.sort_by(|one, other| one.0.total_cmp(&other.0));
        let follow = |pair: &[(f64, f64)]| pair[0].0 + pair[0].1 <= pair[1].0 + 0.01;
        assert!(spans.windows(2).all(follow), "{spans:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn counts_add_up(steps in steps()) {
        let (_, report, tally) = play(&steps);
        let account = report.account;
        prop_assert_eq!((account.ok, account.failed), (tally.consumed, tally.failed));
        prop_assert_eq!(report.producers.iter().map(|producer| producer.items).sum::<u64>(), tally.ended);
        prop_assert_eq!(report.failures.len() as u64 + report.failures_left_out, tally.failed);
        prop_assert!(report.failures.is_sorted_by_key(|failure| failure.item));
        prop_assert_eq!((report.retries.items, report.retries.failed), (tally.retried, tally.retried));
        prop_assert_eq!(report.incidents.len() as u64, tally.failed + tally.retried);
        prop_assert_eq!(report.latency.map_or(0, |latency| latency.count), tally.measured);
        prop_assert_eq!(report.throughput.items.iter().sum::<u64>(), tally.consumed);
        prop_assert_eq!(report.events_lost, tally.lost);
        prop_assert_eq!(report.spans.len() as u64, tally.measured + tally.open);
        for bins in report.timeline.iter().flat_map(|timeline| &timeline.busy_ns) {
            prop_assert!(bins.len() <= 512);
            prop_assert!(Duration::from_nanos(bins.iter().sum()) <= report.lasted);
        }
    }

    #[test]
    fn json_and_back_is_the_same(steps in steps()) {
        let (middle, report, _) = play(&steps);
        for report in [middle, report] {
            let back = RunReport::from_json(&report.to_json()).unwrap();
            prop_assert_eq!(back, report);
        }
    }

    #[test]
    fn pages_escape_every_text_of_the_user(steps in steps()) {
        let (middle, report, _) = play(&steps);
        for mut report in [middle, report] {
            report.description = steps.first().map(|step| step.text.clone());
            let page = report.to_html();
            for mark in ["<zz", "\"zz", "'zz", "&zz"] {
                prop_assert!(!page.contains(mark), "{}", mark);
            }
            prop_assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
            check_markup(&page);
        }
    }

    #[test]
    fn terminal_text_has_no_control_characters(steps in steps()) {
        let (middle, report, _) = play(&steps);
        for report in [middle, report] {
            let text = report.to_string();
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
            // At most ten causes, twice, each with its error and four lines of items.
            prop_assert!(text.lines().count() < 250);
        }
    }

    #[test]
    fn traces_hold_every_span_once(steps in steps()) {
        let (_, report, tally) = play(&steps);
        check_trace(&report.to_trace(), tally.measured + tally.open);
    }
}

#[test]
fn a_million_items_stay_within_the_bounds() {
    let mut played = PlayedRun::new(2);
    let text = "e".repeat(100);
    for item in 0..500_000u64 {
        let producer = item as usize % 2;
        played.start(item * 10, producer, item, 1);
        played.finish(item * 10 + 9, producer, item);
        if item.is_multiple_of(20) {
            played.fail(item * 10 + 9, failure(item, producer, 1, &text));
        }
        played.consume(item * 10 + 9, 1);
    }
    let report = played.end(5_000_000);
    assert_eq!((report.spans.len(), report.spans_left_out), (MOST_SPANS, 400_000));
    assert_eq!((report.failures.len(), report.failures_left_out), (10_000, 15_000));
    assert_eq!((report.incidents.len(), report.incidents_left_out), (MOST_INCIDENTS, 15_000));
    assert_eq!((report.slowest.len(), report.latency.unwrap().count), (20, 500_000));
    assert_eq!(report.throughput.items.iter().sum::<u64>(), 500_000);
    let longest = report.timeline.iter().flat_map(|timeline| &timeline.busy_ns).map(Vec::len).max();
    assert!(longest <= Some(512));
    assert!(report.to_html().len() < 4 * 1_024 * 1_024);
    let lines = report.to_json().lines().count();
    assert!(lines < MOST_SPANS + 10_000 + MOST_INCIDENTS + 2_000, "{lines}");
}
