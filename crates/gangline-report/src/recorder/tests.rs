use super::*;
use crate::account::Account;
use crate::call_report::CallReport;
use crate::recorded_times::MOST_MEASURED;
use crate::samples::{PlayedRun, failure, micros};
use crate::{Bottleneck, RetryOutcome, SpentIn, SpentTime, TimeKind};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl PlayedRun {
    fn spent(
        &mut self,
        at: Duration,
        producer: usize,
        kind: TimeKind,
        took: Duration,
        place: SpentIn,
    ) {
        self.recorder.time_spent(at, producer, SpentTime { kind, took, place });
    }
}

fn busy(report: &RunReport) -> Vec<Duration> {
    let timeline = report.timeline.as_ref().unwrap();
    let sum = |bins: &Vec<u64>| Duration::from_nanos(bins.iter().sum());
    timeline.busy_ns.iter().map(sum).collect()
}

#[test]
fn a_batch_is_busy_once_and_measured_per_item() {
    let mut played = PlayedRun::new(2);
    (0..8).for_each(|item| played.start(1_000, 0, item, 1));
    (0..8).for_each(|item| played.finish(5_000, 0, item));
    played.consume(5_100, 8);
    let report = played.end(6_000);
    assert_eq!(busy(&report), [ms(4), ms(0)]);
    let latency = report.producers[0].latency.unwrap();
    assert_eq!((latency.count, latency.max), (8, ms(4)));
    assert_eq!(report.producers[1].latency, None);
    assert_eq!(report.latency, Some(latency));
    let slow = &report.slowest[0];
    assert_eq!((slow.item, slow.key.as_deref(), slow.together), (0, Some("key 0"), 8));
    assert_eq!((report.spans.len(), report.throughput.items.iter().sum::<u64>()), (8, 8));
}

/// A job waits for `--load` for 8 ms, works for 2 ms, waits again and works on.
#[test]
fn time_that_a_hook_counts_as_no_work_is_not_that_of_its_items() {
    let mut played = PlayedRun::new(2);
    (0..2).for_each(|item| played.start(1_000, 0, item, 1));
    played.spent(micros(9_000), 0, TimeKind::HeldBack, ms(8), SpentIn::Hook);
    let so_far = played.recorder.report().producers[0].times;
    assert_eq!((so_far.work, so_far.held_back, so_far.input), (ms(0), ms(8), ms(1)));
    played.spent(micros(14_000), 0, TimeKind::Journal, ms(3), SpentIn::Hook);
    (0..2).for_each(|item| played.finish(15_000, 0, item));
    // A producer that is not at work is not paused.
    played.spent(micros(16_000), 1, TimeKind::Loading, ms(1), SpentIn::Hook);
    played.spent(micros(16_000), 9, TimeKind::Loading, ms(1), SpentIn::Hook);
    played.spent(micros(19_000), 1, TimeKind::Order, ms(4), SpentIn::Wait);
    let report = played.end(20_000);
    assert_eq!(busy(&report), [ms(3), ms(0)]);
    let latency = report.latency.unwrap();
    assert_eq!((latency.count, latency.max), (2, ms(3)));
    let span = &report.spans[0];
    assert_eq!((span.start, span.took), (ms(12), ms(3)), "it ends when it ended");
    let others = &report.timeline.as_ref().unwrap().others;
    let sums = others.iter().map(|it| {
        let sum = |bins: &Vec<u64>| Duration::from_nanos(bins.iter().sum());
        (it.kind, it.ns.iter().map(sum).collect::<Vec<_>>())
    });
    let wanted = [
        (TimeKind::HeldBack, vec![ms(8), ms(0)]),
        (TimeKind::Order, vec![ms(0), ms(4)]),
        (TimeKind::Journal, vec![ms(3), ms(0)]),
    ];
    assert_eq!(sums.collect::<Vec<_>>(), wanted);
    let spans = report.time_spans.iter().map(|it| (it.producer, it.kind, it.start, it.took));
    let wanted = [
        (0, TimeKind::HeldBack, ms(1), ms(8)),
        (0, TimeKind::Journal, ms(11), ms(3)),
        (1, TimeKind::Order, ms(15), ms(4)),
    ];
    assert_eq!(spans.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_state_that_is_built_in_the_run_is_loading() {
    let mut played = PlayedRun::new(3);
    // One was ready before the run, one is in it, and one builds its state again.
    played.recorder.ready(micros(10), 0, ms(500), false);
    played.recorder.ready(micros(6_000), 1, ms(5), false);
    played.recorder.ready(micros(10), 2, ms(500), false);
    played.recorder.ready(micros(9_000), 2, ms(2), true);
    played.start(9_000, 2, 0, 1);
    played.finish(10_000, 2, 0);
    let so_far = played.recorder.report();
    let loading: Vec<_> = so_far.producers.iter().map(|it| it.times.loading).collect();
    assert_eq!(loading, [ms(0), ms(5), ms(2)]);
}

/// A worker is killed at its item, and is known to be lost 10 ms later.
#[test]
fn the_time_of_a_dead_worker_is_no_work() {
    let mut played = PlayedRun::new(2);
    played.recorder.worker_joined(micros(0), 0, "node/0");
    played.recorder.worker_joined(micros(0), 1, "node/1");
    played.start(1_000, 0, 0, 1);
    played.recorder.worker_lost(micros(15_000), 0, "silent", ms(10));
    played.finish(15_000, 0, 0);
    played.recorder.worker_lost(micros(15_000), 1, "silent", ms(10));
    let report = played.end(20_000);
    assert_eq!(busy(&report), [ms(4), ms(0)]);
    assert_eq!(report.slowest[0].took, ms(4), "what it did is no straggler");
    let others = &report.timeline.as_ref().unwrap().others;
    let dead = others.iter().find(|it| it.kind == TimeKind::Dead).unwrap();
    let sums: Vec<u64> = dead.ns.iter().map(|row| row.iter().sum()).collect();
    assert_eq!(sums, [10_000_000; 2]);
}

#[test]
fn each_attempt_counts_by_itself() {
    let mut played = PlayedRun::new(2);
    played.start(0, 0, 0, 1);
    played.finish(2_000, 0, 0);
    played.retry(2_000, failure(0, 0, 1, "busy"));
    played.start(3_000, 1, 0, 2);
    played.finish(4_000, 1, 0);
    played.consume(4_000, 1);
    let report = played.end(5_000);
    let attempts: Vec<_> = report.spans.iter().map(|span| (span.producer, span.attempt)).collect();
    assert_eq!(attempts, [(0, 1), (1, 2)]);
    assert_eq!((report.retries.items, report.retries.succeeded), (1, 1));
    assert_eq!(report.retries.list[0].outcome, RetryOutcome::Succeeded);
    assert_eq!(report.incidents[0].kind, IncidentKind::Retried);
    assert!(report.failures.is_empty(), "the failure is not final");
}

#[test]
fn a_run_that_ends_with_items_in_progress_has_their_time() {
    let mut played = PlayedRun::new(1);
    played.start(0, 0, 0, 1);
    played.finish(1_000, 0, 0);
    played.start(2_000, 0, 1, 1);
    let report = played.end(10_000);
    assert_eq!(busy(&report), [ms(9)]);
    assert_eq!(report.latency.unwrap().count, 1, "an unfinished item has no latency");
    let open = &report.spans[1];
    assert_eq!((open.is_open, open.start, open.took), (true, ms(2), ms(8)));
}

#[test]
fn lost_events_add_no_time() {
    let mut played = PlayedRun::new(1);
    played.start(0, 0, 0, 1);
    // The end of item 0 and the beginning of item 1 are lost.
    played.finish(20_000, 0, 1);
    played.start(30_000, 0, 2, 1);
    played.finish(31_000, 0, 2);
    played.recorder.events_lost(micros(31_000), 2);
    played.start(32_000, 0, 3, 1);
    let report = played.end(40_000);
    assert_eq!(busy(&report), [ms(1)]);
    assert_eq!((report.latency.unwrap().count, report.events_lost), (1, 2));
    assert_eq!(report.spans.len(), 1, "the end of 3 was lost too, or the run would not be over");
}

#[test]
fn a_run_without_item_events_has_no_latencies_and_no_timeline() {
    let mut played = PlayedRun::new(1);
    played.consume(500_000, 10);
    let report = played.end(1_000_000);
    assert!(!report.has_item_events());
    assert_eq!((report.timeline.as_ref(), report.latency, report.spans.len()), (None, None, 0));
    assert_eq!(report.throughput.items.iter().sum::<u64>(), 10);
}

/// Items counted every 50 ms were done at any time in between.
#[test]
fn a_steady_pace_is_a_flat_line() {
    let mut played = PlayedRun::new(1);
    (1..=61).for_each(|look| played.consume(look * 50_000 - 700, 5));
    let report = played.end(3_060_000);
    let rates = report.throughput.rates(120, report.lasted);
    assert!(rates.len() > 40, "{rates:?}");
    assert!(rates.iter().all(|&(_, rate)| (80.0..=120.0).contains(&rate)), "{rates:?}");
}

#[test]
fn items_after_a_pause_were_not_done_in_it() {
    let mut played = PlayedRun::new(1);
    (1..=40).for_each(|look| played.recorder.count_done_until(ms(50 * look)));
    played.consume(2_050_000, 100);
    let items = played.end(2_050_000).throughput.items;
    let (last, before) = items.split_last_chunk::<2>().map(|(rest, last)| (last, rest)).unwrap();
    assert_eq!((last.iter().sum(), before.iter().sum()), (100_u64, 0_u64), "{items:?}");
}

#[test]
fn a_run_in_progress_is_reported_up_to_the_last_event() {
    let mut played = PlayedRun::new(2);
    played.start(0, 1, 7, 1);
    played.recorder.head_stalled(micros(3_000), 7, ms(2));
    played.recorder.head_stalled(micros(4_000), 7, ms(3));
    let report = played.recorder.report();
    assert_eq!(report.ending, Ending::InProgress);
    assert_eq!(report.bottleneck, Bottleneck::Unknown);
    assert!(report.conclusion.contains("in progress"));
    assert_eq!((report.lasted, report.producers[1].working), (ms(4), ms(4)));
    assert_eq!(report.stalls, [Stall { item: 7, key: Some("key 7".to_owned()), lasted: ms(3) }]);
    played.finish(5_000, 1, 7);
    played.totals.stalls = vec![Stall::new(7, ms(4))];
    let report = played.end(6_000);
    assert_eq!(report.stalls[0].key.as_deref(), Some("key 7"), "the key is kept");
    assert_eq!(report.stalls[0].lasted, ms(4));
}

#[test]
fn an_item_that_is_waited_for_keeps_its_key_also_between_attempts() {
    let mut played = PlayedRun::new(1);
    let failure = |item: u64| Failure {
        item: Some(item),
        key: Some(format!("key {item}")),
        attempts: 1,
        ..Failure::default()
    };
    // The first is with no producer when it is first waited for, and the second never is when it is looked for.
    played.recorder.head_stalled(micros(1_000), 7, ms(1));
    played.start(2_000, 0, 7, 2);
    played.recorder.head_stalled(micros(3_000), 7, ms(2));
    played.finish(4_000, 0, 7);
    played.retry(5_000, failure(8));
    played.totals.stalls = vec![Stall::new(7, ms(3)), Stall::new(8, ms(2)), Stall::new(9, ms(1))];
    let stalls = played.end(9_000).stalls;
    let keys: Vec<_> = stalls.iter().map(|stall| stall.key.as_deref()).collect();
    assert_eq!(keys, [Some("key 7"), Some("key 8"), None]);
}

#[test]
fn a_call_that_waits_for_its_retry_has_not_succeeded_when_later_calls_are_answered() {
    let mut played = PlayedRun::new(1);
    played.retry(1_000, Failure { item: Some(0), attempts: 1, ..Failure::default() });
    let mut totals = played.totals.clone();
    totals.ending = Ending::InProgress;
    totals.account.ok = 50;
    totals.calls = Some(CallReport::default());
    let report = played.recorder.report_with(totals);
    assert_eq!((report.retries.items, report.retries.succeeded), (1, 0), "{report}");
}

#[test]
fn the_next_run_starts_empty_with_the_same_description() {
    let mut recorder = Recorder::new(Some("work".to_owned()));
    let begin = |recorder: &mut Recorder| {
        recorder.begin(Some(3), Order::Completion, &["cpu".to_owned()], &[]);
    };
    begin(&mut recorder);
    recorder.items_done(ms(1), 3);
    recorder.items_consumed(ms(1), 3);
    recorder.events_lost(ms(1), 3);
    begin(&mut recorder);
    let report = recorder.report();
    assert_eq!(report.description.as_deref(), Some("work"));
    assert_eq!((report.items, report.order), (Some(3), Order::Completion));
    assert_eq!((report.account, report.lasted), (Account::default(), Duration::ZERO));
    assert_eq!((report.events_lost, report.throughput.items.len()), (0, 0));
}

#[test]
fn lost_producers_are_reported_once() {
    let mut played = PlayedRun::new(2);
    played.recorder.quarantined(micros(1_000), 1, &"gone".into());
    played.recorder.quarantined(micros(2_000), 1, &"gone".into());
    played.recorder.abandoned(micros(3_000), 1);
    let report = played.recorder.report();
    assert_eq!(report.producers[1].quarantined.as_deref(), Some("gone"));
    assert_eq!(report.threads_abandoned(), 1);
    let kinds: Vec<_> = report.incidents.iter().map(|incident| incident.kind).collect();
    assert_eq!(kinds, [IncidentKind::Quarantined, IncidentKind::Abandoned]);
}

#[test]
fn a_timed_out_attempt_counts_up_to_its_timeout() {
    let mut played = PlayedRun::new(1);
    played.start(0, 0, 7, 1);
    played.finish(10, 0, 7);
    played.recorder.abandoned(micros(3_020), 0);
    // Earlier events arrive late.
    [8, 9].into_iter().for_each(|item| played.start(20, 0, item, 1));
    played.recorder.count_done_until(ms(4));
    // The end, which may still arrive, changes nothing.
    played.finish(4_500, 0, 8);
    let report = played.end(5_000);
    let slow: Vec<_> = report.slowest.iter().map(|slow| (slow.item, slow.took)).collect();
    assert_eq!(slow, [(8, ms(3)), (7, micros(10))], "a batch is one attempt");
    assert_eq!(report.latency.unwrap().count, 3);
}

#[test]
fn producers_without_latencies_of_their_own_count_in_those_of_all() {
    let mut played = PlayedRun::new(MOST_MEASURED + 1);
    for producer in [0, MOST_MEASURED] {
        played.start(0, producer, producer as u64, 1);
        played.finish(1_000 + producer as u64, producer, producer as u64);
    }
    let report = played.end(2_000);
    let latency = report.latency.unwrap();
    assert_eq!((latency.count, latency.max), (2, Duration::from_micros(1_256)));
    assert!(report.producers[0].latency.is_some());
    assert_eq!(report.producers[MOST_MEASURED].latency, None);
}

#[test]
fn an_unknown_producer_is_ignored() {
    let mut played = PlayedRun::new(1);
    played.start(0, 5, 0, 1);
    played.recorder.item_finished(micros(10), 5, 0);
    played.recorder.abandoned(micros(10), 5);
    assert_eq!(busy(&played.end(1_000)), [Duration::ZERO]);
}
