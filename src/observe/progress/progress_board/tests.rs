use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::observe::progress::tests::{done, ended, failed, finished, ms, started, starts, totals};

fn board(events: &[(u64, Event)]) -> ProgressBoard {
    let mut board = ProgressBoard::new("Segmenting", 2);
    for (at, event) in events {
        board.observe(ms(*at), event);
    }
    board
}

#[test]
fn a_run_and_its_producers_have_a_line_each() {
    let mut board = board(&[
        (0, started(Some(8), &["cuda:0", "cpu"])),
        (0, Event::ProducerReady { producer: 0, took: ms(9), is_rebuilt: false }),
        (0, starts(0, 0, Some("a.tif"))),
        (0, starts(1, 1, None)),
        (2_000, finished(0, 0)),
        (2_000, done(1)),
        (2_000, starts(2, 0, Some("b.tif"))),
        (4_000, finished(2, 0)),
    ]);
    board.pass(ms(5_000));
    let lines = [
        "Segmenting  [#####-------------------------------------]  1/8 in 5.0 s  0.2/s  36 s left",
        "  0  cuda:0  2 items   80 % busy  waiting",
        "  1  cpu     0 items  100 % busy  item 1, 5.0 s",
    ];
    assert_eq!(board.lines(18, 90), lines);
    assert_eq!(board.line(), "Segmenting: 1/8 in 5.0 s, 0.2/s, 36 s left");
}

#[test]
fn the_workers_of_a_cluster_are_counted() {
    let joined = |producer| Event::WorkerJoined {
        producer,
        host: "a".into(),
        place: format!("a/{producer}").into(),
    };
    let mut events = vec![(0, started(Some(8), &["cpu", "cpu"])), (0, joined(0))];
    assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 1 worker");
    events.push((5, joined(1)));
    assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 2 workers");
    events.extend(
        [0, 1].map(|producer| {
            (9, Event::WorkerLeft { producer, lost: None, silent: Duration::ZERO })
        }),
    );
    assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 0 workers");
}

#[test]
fn one_slow_item_does_not_hide_those_behind_it() {
    let blocked = |item| Event::HeadOfLineBlocked { item, lasted: ms(100) };
    let mut events = vec![
        (0, started(Some(150), &["cpu", "cpu"])),
        (0, starts(0, 0, None)),
        (0, starts(1, 1, Some("b.tif"))),
        (400, blocked(0)),
        (5_600, done(148)),
        (5_600, failed(7, "bad")),
    ];
    let line = "Segmenting: 149/150 in 5.6 s, 26.6/s, 0.0 s left, 1 failed, \
                149 done, 0 delivered (item 0 has run for 5.6 s)";
    assert_eq!(board(&events).line(), line);
    let lines = board(&events).lines(9, 90);
    assert_eq!(lines[1], "  149 done, 0 delivered (item 0 has run for 5.6 s)");
    assert_eq!(lines.len(), 4);
    assert_eq!(board(&events).lines(1, 90).len(), 1);
    events.push((5_600, Event::ItemsDelivered { items: 1 }));
    assert!(!board(&events).line().contains("delivered"), "the next one is not slow");
    events.push((5_700, blocked(1)));
    let line = board(&events).line();
    assert!(line.ends_with("149 done, 1 delivered (b.tif has run for 5.7 s)"), "{line}");
    events.push((5_700, finished(1, 1)));
    let line = board(&events).line();
    assert!(line.ends_with("149 done, 1 delivered (waiting for item 1)"), "{line}");
}

#[test]
fn only_seats_with_a_worker_have_a_line() {
    let joined = |seat: usize| Event::WorkerJoined {
        producer: seat,
        host: "node".into(),
        place: format!("node/{seat}").into(),
    };
    let mut board = board(&[(0, started(Some(8), &["", "", ""])), (1_000, joined(1))]);
    board.observe(ms(1_000), &starts(0, 1, None));
    board.observe(ms(2_000), &starts(1, 1, None));
    board.pass(ms(3_000));
    let line = "  1  node/1  0 items  100 % busy  item 0 and 1 more, 2.0 s";
    assert_eq!(board.lines(9, 90)[1..], [line]);
    board.observe(ms(3_000), &finished(0, 1));
    board.pass(ms(5_000));
    let line = "  1  node/1  1 item   100 % busy  item 1, 3.0 s";
    assert_eq!(board.lines(9, 90)[1..], [line]);
    board.observe(ms(5_000), &finished(1, 1));
    board.pass(ms(9_000));
    let line = "  1  node/1  2 items   50 % busy  waiting";
    assert_eq!(board.lines(9, 90)[1..], [line]);
    let left = |lost: Option<&str>| Event::WorkerLeft {
        producer: 1,
        lost: lost.map(Into::into),
        silent: Duration::ZERO,
    };
    let message = board.observe(ms(9_000), &left(Some("silent")));
    assert_eq!(message.as_deref(), Some("Segmenting: worker node/1 is lost: silent"));
    assert_eq!(board.lines(9, 90).len(), 1);
    assert_eq!(board.observe(ms(9_000), &joined(2)), None);
    assert_eq!(board.observe(ms(9_500), &left(None)), None);
    assert_eq!(board.lines(9, 90).len(), 2);
}

#[test]
fn a_narrow_display_keeps_the_failures_and_the_names_of_items() {
    let key = Some("tile-46.tif");
    let board = board(&[
        (0, started(Some(100), &["cuda:0"])),
        (0, starts(3, 0, key)),
        (1_000, done(45)),
        (1_000, failed(4, "bad")),
    ]);
    let lines = board.lines(3, 40);
    assert!(
        lines[1].starts_with("  46/100 in 1.0 s") && lines[1].ends_with("1 failed"),
        "{lines:?}"
    );
    assert_eq!(lines[2], "  0  cuda:0  0 items  tile-46.tif, 1.0 s");
    assert!(lines.iter().all(|line| display_width(line) <= 40), "{lines:?}");
    assert!(board.lines(3, 80)[1].contains("% busy"));
}

#[test]
fn the_bar_takes_the_room_that_the_figures_leave() {
    let board = board(&[(0, started(Some(4), &["cpu"])), (1_000, done(2))]);
    let head = |columns| board.lines(1, columns).remove(0);
    for columns in [50, 80, 81, 200] {
        let width = head(columns).chars().count();
        assert!((columns - FIGURES_STEP..=columns).contains(&width), "{width} of {columns}");
    }
    let narrow = ["Segmenting  [########--------]", "  2/4 in 1.0 s  1.0 s left"];
    assert_eq!(board.lines(3, 30)[..2], narrow, "there is no room for the rate");
    assert_eq!(head(30), "Segmenting  2/4 in 1.0 s  1.0 s left", "there is one line");
}

#[test]
fn failures_and_lost_producers_are_red() {
    let quarantined = Event::ProducerQuarantined { producer: 0, reason: "gone".into() };
    let events = [(0, started(Some(4), &["cpu"])), (1_000, failed(0, "bad")), (1_000, quarantined)];
    let mut board = ProgressBoard::new("", 2).colors(Colors::On);
    for (at, event) in &events {
        board.observe(ms(*at), event);
    }
    let lines = board.lines(2, 80);
    assert!(lines[0].ends_with("\u{1b}[31m1 failed\u{1b}[0m"), "{lines:?}");
    assert!(lines[0].contains("\u{1b}[32m#"), "{lines:?}");
    assert!(lines[1].starts_with("\u{1b}[31m  0  cpu"), "{lines:?}");
    let mut error = totals(0, 1, 9);
    (error.ending, error.error) = (Ending::Failed, Some("bad".to_owned()));
    assert!(board.result(&error, error.account).starts_with("\u{1b}[31mfailed\u{1b}[0m, 1/4"));
}

#[test]
fn a_total_that_is_known_late_is_shown_from_then_on() {
    let events = [(0, started(None, &["cpu"])), (0, done(5))];
    let mut board = board(&events);
    board.expect(|| None);
    assert!(board.line().starts_with("Segmenting: 5 items in"), "{}", board.line());
    board.expect(|| Some(10));
    board.expect(|| unreachable!("it is known"));
    assert!(board.line().starts_with("Segmenting: 5/10 in"), "{}", board.line());
}

#[test]
fn a_display_that_shows_no_failures_shows_no_further_ones() {
    let mut board = ProgressBoard::new("", 0);
    assert_eq!(board.observe(Duration::ZERO, &failed(1, "no")), None);
}

#[test]
fn without_a_total_or_a_name_there_is_a_count() {
    let mut board = ProgressBoard::new("", 1);
    board.observe(ms(0), &started(None, &["cpu"]));
    board.observe(ms(10_000), &done(20));
    assert_eq!(board.lines(1, 80), ["20 items in 10 s  2.0/s"]);
    assert_eq!(board.line(), "20 items in 10 s, 2.0/s");
}

#[test]
fn an_input_that_said_too_few_or_none_is_counted() {
    let line = |events: &[(u64, Event)]| board(events).lines(1, 50).remove(0);
    let few = line(&[(0, started(Some(1), &["cpu"])), (1_000, done(2))]);
    assert_eq!(few, "Segmenting  2 items in 1.0 s  2.0/s");
    let none = line(&[(0, started(Some(0), &["cpu"]))]);
    assert_eq!(none, "Segmenting  [##################]  0/0 in 0.0 s");
}

#[test]
fn failed_and_already_done_items_count_as_finished() {
    let retry = Event::ItemRetried { failure: Arc::default() };
    let board = board(&[
        (0, started(Some(10), &["cpu"])),
        (0, Event::ItemAlreadyDone { item: 0 }),
        (0, Event::ItemAlreadyDone { item: 1 }),
        (500, retry),
        (1_000, failed(2, "bad")),
        (1_000, done(1)),
    ]);
    // Items that are already done take no time, so they do not count for the rate.
    let line = "Segmenting: 4/10 in 1.0 s, 2.0/s, 2.9 s left, 1 retried, 1 failed, 2 already done";
    assert_eq!(board.line(), line);
}

#[test]
fn failures_of_the_consumer_or_of_no_item_count_no_further_item() {
    let fails = |item, hook: Option<&str>| {
        let mut failure = Failure::default();
        (failure.item, failure.hook) = (item, hook.map(str::to_owned));
        Event::ItemFailed { failure: Arc::new(failure) }
    };
    let board = board(&[
        (0, started(Some(10), &["cpu"])),
        (500, fails(Some(0), Some("consumer_work"))),
        (1_000, done(4)),
        (1_000, fails(Some(4), Some("producer_work_batch"))),
        (1_000, fails(Some(1), Some("consumer_work"))),
        (1_000, fails(None, None)),
    ]);
    let line = "Segmenting: 5/10 in 1.0 s, 5.0/s, 0.9 s left, 4 failed";
    assert_eq!(board.line(), line);
}

#[test]
fn the_first_failures_are_shown() {
    let mut board = board(&[(0, started(Some(10), &["cpu"]))]);
    let told: Vec<Option<String>> =
        (0..4).map(|item| board.observe(ms(item), &failed(item, "bad\n"))).collect();
    let told: Vec<Option<&str>> = told.iter().map(Option::as_deref).collect();
    let expected = [
        Some("Segmenting: producer_work failed for item 0: bad\\n"),
        Some("Segmenting: producer_work failed for item 1: bad\\n"),
        Some("Segmenting: further failures are counted, not shown"),
        None,
    ];
    assert_eq!(told, expected);
}

#[test]
fn the_result_is_taken_from_the_totals() {
    let board = board(&[(0, started(Some(10), &["cpu"])), (1, failed(3, "bad"))]);
    let result = |change: fn(&mut RunReport)| {
        let mut totals = totals(8, 1, 4_000);
        change(&mut totals);
        board.result(&totals, totals.account)
    };
    assert_eq!(result(|_| ()), "Segmenting: 9/10 in 4.0 s, 2.2/s, 1 failed");
    let cancelled = |totals: &mut RunReport| {
        (totals.ending, totals.error) = (Ending::Cancelled, Some("cancelled".to_owned()));
    };
    let text = "Segmenting: cancelled, 9/10 in 4.0 s, 2.2/s, 1 failed";
    assert_eq!(result(cancelled), text);
    let text = "Segmenting: failed, 9/10 in 4.0 s, 2.2/s, 1 failed";
    let told = |totals: &mut RunReport| {
        let error = "producer_work failed for item 3: bad".to_owned();
        (totals.ending, totals.error) = (Ending::Failed, Some(error));
    };
    assert_eq!(result(told), text, "it was shown when it happened");
    let another = |totals: &mut RunReport| {
        (totals.ending, totals.error) = (Ending::Failed, Some("no\ndisk".to_owned()));
    };
    assert_eq!(result(another), format!("{text}: no\\ndisk"));
}

#[test]
fn producers_without_room_are_summed_up() {
    let places = vec!["cpu"; 1_000];
    let mut board = board(&[(0, started(None, &places))]);
    for producer in 0..1_000 {
        board.observe(ms(0), &starts(producer as u64, producer, None));
        board.observe(ms(1_000), &finished(producer as u64, producer));
    }
    board.pass(ms(4_000));
    let lines = board.lines(4, 80);
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[1], "  0  cpu  1 item    25 % busy  waiting");
    assert_eq!(lines[3], "  and 998 more: 998 items, 25 % busy");
    let lengths = [0, 1, 2, 3, 1_001, 2_000].map(|most| board.lines(most, 80).len());
    assert_eq!(lengths, [1, 1, 2, 3, 1_001, 1_001]);
    assert_eq!(board.lines(2, 80)[1], "  and 1000 more: 1000 items, 25 % busy");
}

#[test]
fn a_lost_producer_is_shown_with_the_reason() {
    let mut board = board(&[(0, started(None, &["cuda:0", "cuda:1"]))]);
    let quarantined =
        Event::ProducerQuarantined { producer: 1, reason: "fell off\nthe bus".into() };
    let told = board.observe(ms(5), &quarantined);
    let text = "Segmenting: producer 1 on cuda:1 is out of service: fell off\\nthe bus";
    assert_eq!(told.as_deref(), Some(text));
    assert!(board.lines(9, 80)[2].ends_with("out of service: fell off\\nthe bus"));
    let told = board.observe(ms(5), &Event::ProducerAbandoned { producer: 0 }).unwrap();
    assert!(told.contains("abandoned"), "{told}");
}

#[test]
fn a_new_run_starts_empty() {
    let mut used = board(&[
        (0, started(Some(2), &["cpu", "cpu"])),
        (70_000, failed(0, "bad")),
        (70_000, starts(1, 1, None)),
        (80_000, ended(totals(0, 1, 80_000))),
    ]);
    let again = started(Some(3), &["cpu"]);
    used.observe(ms(0), &again);
    assert_eq!(used.lines(9, 80), board(&[(0, again)]).lines(9, 80));
}

/// Any event of a run with one producer, in any order.
fn any_event() -> impl Strategy<Value = Event> {
    let producer = 0_usize..4;
    prop_oneof![
        (0_u64..9, producer.clone(), any::<Option<String>>(), 0_u32..3).prop_map(
            |(item, producer, key, attempt)| {
                let key = key.map(Arc::from);
                Event::ItemStarted { item, key, producer, attempt }
            }
        ),
        (0_u64..9, producer.clone())
            .prop_map(|(item, producer)| Event::ItemFinished { item, producer }),
        producer.clone().prop_map(|producer| Event::ProducerReady {
            producer,
            took: Duration::ZERO,
            is_rebuilt: true
        }),
        any::<u64>().prop_map(|items| Event::ItemsDone { items }),
        any::<u64>().prop_map(|items| Event::ItemsDelivered { items }),
        (0_u64..9).prop_map(|item| Event::HeadOfLineBlocked { item, lasted: Duration::ZERO }),
        any::<u64>().prop_map(|events| Event::EventsLost { events }),
        (0_u64..9, any::<String>()).prop_map(|(item, error)| failed(item, &error)),
        (producer, any::<String>()).prop_map(|(producer, reason)| {
            Event::ProducerQuarantined { producer, reason: reason.into() }
        }),
        (any::<Option<u64>>(), any::<String>(), 0_usize..4)
            .prop_map(|(items, place, n)| { started(items, &vec![place.as_str(); n]) }),
    ]
}

proptest! {
    #[test]
    fn any_events_give_the_right_number_of_lines(
        desc in any::<String>(),
        events in prop::collection::vec((0_u64..100_000, any_event()), 0..40),
        most in 0_usize..8,
    ) {
        let mut board = ProgressBoard::new(&desc, 3);
        for (at, event) in &events {
            let told = board.observe(ms(*at), event);
            prop_assert!(!told.unwrap_or_default().contains(char::is_control));
            let lines = board.lines(most, 80);
            prop_assert!((1..=most.max(1)).contains(&lines.len()));
            prop_assert!(!lines.concat().contains(char::is_control));
            prop_assert!(!board.line().contains(char::is_control));
        }
    }

    /// One producer that works on one batch after the other, with all of its events.
    #[test]
    fn busy_is_the_time_between_the_beginnings_and_the_ends(
        calls in prop::collection::vec((1_u64..5, 0_u64..5_000, 0_u64..5_000), 1..20),
    ) {
        let mut board = board(&[(0, started(None, &["cpu"]))]);
        let (mut at, mut busy, mut item) = (0, 0, 0);
        for (items, waits, works) in calls {
            at += waits;
            (item..item + items).for_each(|i| {
                board.observe(ms(at), &starts(i, 0, None));
            });
            at += works;
            busy += works;
            (item..item + items).for_each(|i| {
                board.observe(ms(at), &finished(i, 0));
            });
            item += items;
        }
        let watch = &board.producers[0];
        prop_assert_eq!(watch.items, item);
        prop_assert_eq!(watch.busy(ms(at)), (ms(busy), ms(at)));
    }
}
