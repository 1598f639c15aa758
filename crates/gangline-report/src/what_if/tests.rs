//! Predictions for reports that are made by hand.

use std::time::Duration;

use gangline_scheduler::Order;
use gangline_scheduler::batch::Batch;

use super::*;
use crate::account::Ending;
use crate::advice::Advice;
use crate::conclusion::{Conclusion, Limit, Percent};
use crate::{ProducerReport, Span, Timeline};

const MS: Duration = Duration::from_millis(1);

/// The report of a run in which each producer worked on its items without a pause.
fn report(producers: &[&[(u64, u32)]], settings: &[(&str, &str)]) -> RunReport {
    let mut report = RunReport {
        ending: Ending::Finished,
        timeline: Some(Timeline::default()),
        window: 1_000,
        ..RunReport::default()
    };
    for (number, items) in producers.iter().enumerate() {
        let place = "cpu".to_owned();
        report.producers.push(ProducerReport { place, ..ProducerReport::default() });
        let mut now = Duration::ZERO;
        for &(item, ms) in *items {
            let (took, start) = (ms * MS, now);
            let span = Span { item, producer: number, attempt: 1, start, took, ..Span::default() };
            report.spans.push(span);
            now += took;
        }
        report.lasted = report.lasted.max(now);
    }
    for (name, value) in settings {
        report.provenance.settings.insert((*name).to_owned(), (*value).to_owned());
    }
    report
}

/// Twenty items of 10 ms on one producer.
fn even() -> RunReport {
    let items: Vec<_> = (0..20).map(|item| (item, 10)).collect();
    report(&[&items], &[("window", "grows as needed")])
}

#[test]
fn more_producers_take_their_share_of_the_items() {
    let report = even();
    for producers in [1, 2, 4, 20] {
        let prediction = report.what_if(&Settings::new().producers(producers));
        assert_eq!(prediction.refused, []);
        assert_eq!(prediction.lasted, 200 * MS / producers as u32);
    }
}

#[test]
fn a_larger_window_lets_others_go_on_behind_a_slow_item() {
    let slow: Vec<_> = [(0, 90), (13, 10), (14, 10)].into();
    let others: Vec<_> = (1..4).chain(15..20).chain(4..13).map(|item| (item, 10)).collect();
    let report = report(&[&slow, &others], &[("window", "4")]);
    // A window of four holds the other up at the fourth item.
    let narrow = report.what_if(&Settings::new().window(4));
    let wide = report.what_if(&Settings::new().window(64));
    assert!(wide.lasted < narrow.lasted, "{wide} {narrow}");
}

#[test]
fn the_conclusion_of_a_run_that_was_held_up_quotes_a_larger_window() {
    // Behind an item of 90 ms, two of the other producer's are done before the window of three is full.
    let (slow, others) = (vec![(0, 90)], vec![(1, 10), (2, 10)]);
    let mut report = report(&[&slow, &others], &[("window", "3")]);
    let mut now = 90 * MS;
    for item in 3..30 {
        let producer = (item % 2) as usize;
        let took = 10 * MS;
        let start = now;
        report.spans.push(Span { item, producer, attempt: 1, start, took, ..Span::default() });
        now += if producer == 0 { took } else { Duration::ZERO };
    }
    report.lasted = 230 * MS;
    report.window = 3;
    let (full, held_up) = (Percent(0.5), Percent(0.3));
    let window = |advice: Vec<Advice>| Conclusion {
        limit: Some(Limit::Window { full, held_up }),
        lasted: report.lasted.as_secs_f64(),
        advice,
        ..Conclusion::default()
    };
    let quoted = |findings: Conclusion| {
        let mut report = report.clone();
        report.conclude(findings);
        recorded::quote(&mut report);
        report.conclusion.split_once(" With ").map(|(_, quoted)| quoted.to_owned())
    };
    let mixed = Some(Limit::MixedCalls { busy: full, rebuilding: held_up });
    let wider = window(vec![Advice::Window { items: 12 }, Advice::Speculate]);
    let other = quoted(Conclusion { limit: mixed, ..wider.clone() });
    assert_eq!(other, None, "the bottleneck is another");
    let sentence = quoted(wider).expect("a prediction is quoted");
    assert!(sentence.starts_with("`window(12)` this run would have taken "), "{sentence}");
    assert!(sentence.ends_with(", not 230 ms."), "{sentence}");
    assert_eq!(quoted(window(vec![Advice::CompletionOrder])), None, "no window is advised");
}

#[test]
fn a_setting_whose_effect_is_not_recorded_is_refused_with_the_reason() {
    let report = even();
    let asked = Settings::new().window(0).batch(Batch::of(8)).producers(0).retries(2);
    let prediction = report.what_if(&asked);
    let refused: Vec<_> = prediction.refused.iter().map(|it| it.setting.as_str()).collect();
    assert_eq!(refused, ["devices(0)", "window(0)", "batch(of 8)"]);
    assert_eq!(prediction.settings, Settings::new().retries(2), "nothing failed");
    assert!(prediction.refused[2].why.contains("items came one by one"), "{prediction}");
    assert_eq!(prediction.lasted, report.lasted);
}

#[test]
fn a_report_that_is_not_whole_refuses_everything() {
    type Change = fn(&mut RunReport);
    let changes: [(Change, &str); 6] = [
        (|it| it.spans.clear(), "no times of items"),
        (|it| it.ending = Ending::Cancelled, "did not end by itself"),
        (|it| it.spans_left_out = 3, "lacks 3"),
        (|it| it.splits.split = 1, "split"),
        (|it| it.lasted *= 3, "not 600 ms"),
        (
            |it| {
                it.provenance.settings.insert("speculate".to_owned(), "yes".to_owned());
            },
            "`speculate`",
        ),
    ];
    for (change, why) in changes {
        let mut report = even();
        change(&mut report);
        let prediction = report.what_if(&Settings::new().producers(2));
        assert_eq!(prediction.settings, Settings::default());
        assert!(prediction.refused[0].why.contains(why), "{prediction}");
    }
}

#[test]
fn batches_take_what_the_recorded_ones_take_by_their_size() {
    // 5 ms and 1 ms more for each item: 66 ms, where full batches of 8 would have taken 61 ms. The rest is overhead.
    let mut report = report(&[&[]], &[("batch", "of 8"), ("window", "64")]);
    let mut start = Duration::ZERO;
    let mut item = 0;
    for size in [8, 4, 8, 4, 8, 4] {
        let took = (5 + size) * MS;
        for _ in 0..size {
            let span = Span { item, attempt: 1, start, took, ..Span::default() };
            report.spans.push(span);
            item += 1;
        }
        start += took;
    }
    report.lasted = start;
    assert_eq!(
        report.what_if(&Settings::new().batch(Batch::of(4))).lasted.as_millis(),
        81 * 66 / 61
    );
    assert_eq!(
        report.what_if(&Settings::new().batch(Batch::of(12))).lasted.as_millis(),
        51 * 66 / 61
    );
    let narrow = report.what_if(&Settings::new().window(7));
    assert!(narrow.refused[0].why.contains("no room for a batch of 8"), "{narrow}");
    let too_large = report.what_if(&Settings::new().batch(Batch::of(17)));
    assert!(too_large.refused[0].why.contains("the largest batch had 8"), "{too_large}");
}

#[test]
fn an_item_that_failed_may_be_tried_less_often_but_not_more() {
    let mut report = report(
        &[&[(0, 10), (0, 10), (1, 10)]],
        &[("retries", "1"), ("on_error", "skip"), ("backoff", "0 ns"), ("window", "8")],
    );
    report.spans[1].attempt = 2;
    let failure = crate::Failure { item: Some(0), ..Default::default() };
    report.failures.push(failure);
    assert_eq!(report.what_if(&Settings::new().retries(0)).lasted, 20 * MS);
    let more = report.what_if(&Settings::new().retries(2));
    assert!(more.refused[0].why.contains("item 0 failed 2 times"), "{more}");
}

#[test]
fn fewer_retries_that_would_have_ended_the_run_are_refused() {
    let attempts = [(0, 10), (0, 10), (1, 10)];
    let mut report = report(&[&attempts], &[("retries", "1"), ("backoff", "0 ns")]);
    report.spans[1].attempt = 2;
    let refused = report.what_if(&Settings::new().retries(0)).refused;
    assert_eq!(refused[0].why, "item 0 would have failed and ended the run");
    assert_eq!(report.what_if(&Settings::new().retries(5)).refused, []);
}

#[test]
fn producers_beyond_all_reason_are_refused() {
    let settings = Settings::new().window(1_000).batch(Batch::up_to(usize::MAX));
    for producers in [100_000, usize::MAX] {
        let prediction = even().what_if(&settings.clone().producers(producers));
        assert!(prediction.refused[0].why.contains("from 1 to 10000 producers"), "{prediction}");
    }
}

#[test]
fn a_slower_device_takes_longer_for_the_same_items() {
    let fast: Vec<_> = (0..10).map(|item| (2 * item, 10)).collect();
    let slow: Vec<_> = (0..5).map(|item| (2 * item + 1, 20)).collect();
    let mut report = report(&[&fast, &slow], &[("window", "64"), ("order", "completion")]);
    report.order = Order::Completion;
    report.producers[1].place = "cuda:1".to_owned();
    // 15 items, one producer at 10 ms.
    assert_eq!(report.what_if(&Settings::new().producers(1)).lasted, 150 * MS);
    // Two fast and two slow ones do six items in 20 ms, and of the last three a slow one has one.
    assert_eq!(report.what_if(&Settings::new().producers(4)).lasted, 60 * MS);
}

#[test]
fn predictions_are_sentences() {
    let report = even();
    let prediction = report.what_if(&Settings::new().producers(2).batch(Batch::up_to(4)));
    assert_eq!(
        prediction.to_string(),
        "with `devices(2)` this run would have taken 100 ms, not 200 ms\n\
         what `batch(up to 4)` would have changed is not known: items came one by one, so how long batches take is not \
         known"
    );
}
