mod advice;

use super::*;
use crate::account::Account;
use crate::producer_report::{ProducerReport, WorkerReport};
use crate::provenance::Provenance;
use crate::run_report::Stall;
use crate::split_report::SplitReport;
use crate::vocabulary::Vocabulary;
use crate::wording;
use proptest::prelude::*;

const SECOND: f64 = 1.0;

/// A run of 10 s: the share that each producer worked; it waited for the rest.
fn totals(working: &[f64]) -> RunReport {
    let share = |share: f64| Duration::from_secs_f64(10.0 * share);
    let producer = |&working: &f64| ProducerReport {
        place: "cpu".to_owned(),
        working: share(working),
        waiting: share(1.0 - working),
        ..ProducerReport::default()
    };
    RunReport {
        account: Account { ok: 1_000, ..Account::default() },
        lasted: Duration::from_secs(10),
        window: 64,
        producers: working.iter().map(producer).collect(),
        ..RunReport::default()
    }
}

/// The bottleneck and its sentence, of a run with default settings.
fn decide(totals: &RunReport) -> (Bottleneck, String) {
    let Said { bottleneck, sentence, .. } = decided(totals, &[], None);
    (bottleneck, sentence)
}

/// What a report says, in the words of the library.
struct Said {
    bottleneck: Bottleneck,
    sentence: String,
    /// The advised settings with their values; 0 for those without.
    advice: Vec<(String, u64)>,
}

fn decided(totals: &RunReport, settings: &[(&str, &str)], cores: Option<u64>) -> Said {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings = settings.iter().map(owned).collect();
    let provenance = Provenance { settings, cores, ..Provenance::default() };
    let conclusion = super::decide(&RunReport { provenance, ..totals.clone() });
    let settings = wording::settings(&conclusion, Vocabulary::Items).into_iter();
    let value = |value: Option<serde_json::Value>| value.and_then(|it| it.as_u64()).unwrap_or(0);
    Said {
        bottleneck: conclusion.bottleneck(),
        sentence: wording::text(&conclusion, Vocabulary::Items),
        advice: settings.map(|it| (it.setting, value(it.value))).collect(),
    }
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn the_part_at_work_most_of_the_time_is_the_bottleneck() {
    let devices = RunReport { source_working: time(0.5), ..totals(&[0.98, 0.96]) };
    let (bottleneck, sentence) = decide(&devices);
    assert_eq!(bottleneck, Bottleneck::Producers);
    assert!(sentence.starts_with("The producers limited the run: the 2 producers worked 97 %"));
    assert!(sentence.contains("more producers"), "{sentence}");

    let source = RunReport { source_working: time(9.2), ..totals(&[0.2]) };
    let (bottleneck, sentence) = decide(&source);
    assert_eq!(bottleneck, Bottleneck::Source);
    assert!(
        sentence.contains("at work 92 % of the time, while the producer found nothing for 80 %")
    );

    let consumer =
        RunReport { consumer_working: time(9.5), source_waiting: time(9.0), ..totals(&[0.4, 0.4]) };
    let (bottleneck, sentence) = decide(&consumer);
    assert_eq!(bottleneck, Bottleneck::Consumer);
    assert!(sentence.contains("95 %") && sentence.contains("`consumer_work`"), "{sentence}");
}

#[test]
fn callers_and_stages_have_names_of_their_own() {
    let behind = |destination| RunReport {
        consumer_working: time(9.5),
        source_working: time(9.0),
        destination,
        origin: Origin::StageBefore,
        ..totals(&[0.1])
    };
    for (destination, says) in [
        (Destination::Outputs, "The caller of `outputs` limited the run: "),
        (Destination::NextStage, "The next stage limited the run: "),
    ] {
        let (bottleneck, sentence) = decide(&behind(destination));
        assert_eq!(bottleneck, Bottleneck::Consumer);
        assert!(sentence.starts_with(says) && !sentence.contains("consumer"), "{sentence}");
        assert!(sentence.contains("followed by the stage before (90 %)"), "{sentence}");
    }
    let slow = RunReport { consumer_working: time(0.1), ..behind(Destination::Outputs) };
    let (bottleneck, sentence) = decide(&slow);
    assert_eq!(bottleneck, Bottleneck::Source);
    assert!(sentence.starts_with("The stage before limited the run: "), "{sentence}");
    assert!(!sentence.contains("iterator"), "{sentence}");
    let mixed = RunReport { source_working: time(5.0), ..slow };
    assert!(decide(&mixed).1.contains("the caller of `outputs` 1 %"), "{}", decide(&mixed).1);
}

#[test]
fn a_close_second_is_named() {
    let both = RunReport { source_working: time(9.0), ..totals(&[0.95]) };
    assert!(decide(&both).1.contains("closely followed by the source (90 %)"));
    let one = RunReport { source_working: time(7.6), ..totals(&[0.95]) };
    assert!(!decide(&one).1.contains("closely"));
}

#[test]
fn a_full_window_limits_where_producers_wait_and_the_consumer_does_not_work() {
    let mut narrow = RunReport { source_waiting: time(5.5), ..totals(&[0.5, 0.5]) };
    assert_eq!(decide(&narrow).0, Bottleneck::Mixed, "the producers waited at other times");
    narrow.producers.iter_mut().for_each(|producer| producer.times.order = time(4.0));
    let (bottleneck, sentence) = decide(&narrow);
    assert_eq!(bottleneck, Bottleneck::Window);
    assert!(sentence.contains("; use `window(256)` if memory has room"), "{sentence}");

    let head = RunReport {
        head_stalled: time(5.0),
        stalls: vec![Stall::new(17, time(3.1))],
        ..narrow.clone()
    };
    let (bottleneck, sentence) = decide(&head);
    assert_eq!(bottleneck, Bottleneck::Head);
    let says = "results waited 5.00 s for the head of the line, 3.10 s of it for item 17, which cost 8.00 s";
    assert!(sentence.contains(says), "{sentence}");

    let busy = RunReport { head_stalled: time(9.0), source_waiting: time(9.0), ..totals(&[0.97]) };
    assert_eq!(decide(&busy).0, Bottleneck::Producers, "no producer lacked items");
    let behind = RunReport { consumer_working: time(7.0), ..narrow };
    assert_eq!(decide(&behind).0, Bottleneck::Mixed, "the window is full since it is slow");
}

#[test]
fn backoff_is_blamed_neither_on_devices_nor_on_the_window() {
    let mut slow = RunReport { source_waiting: time(9.0), ..totals(&[0.03]) };
    (slow.producers[0].times.order, slow.producers[0].backing_off) = (time(0.3), time(9.4));
    let (bottleneck, sentence) = decide(&slow);
    assert_eq!(bottleneck, Bottleneck::Backoff);
    let has = |words| sentence.contains(words);
    assert!(has("94 %") && has("why items fail") && has("`backoff` shorter"), "{sentence}");
}

#[test]
fn a_service_is_not_advised_to_have_a_larger_window() {
    let mut slow = RunReport { window: 0, ..totals(&[0.03, 0.03]) };
    assert_eq!(decide(&slow).0, Bottleneck::Mixed);
    let sentence = decide(&slow).1;
    assert!(sentence.contains("waited for calls"), "{sentence}");
    assert!(!sentence.contains("window") && !sentence.contains("source"), "{sentence}");
    slow.producers.iter_mut().for_each(|producer| producer.backing_off = time(9.4));
    let (bottleneck, sentence) = decide(&slow);
    assert_eq!(bottleneck, Bottleneck::Backoff);
    assert!(
        sentence.ends_with("find out why items fail, or make `backoff` shorter."),
        "{sentence}"
    );
}

#[test]
fn one_producer_that_works_on_alone_is_uneven_work() {
    let (bottleneck, sentence) = decide(&totals(&[0.3, 0.99, 0.3]));
    assert_eq!(bottleneck, Bottleneck::Uneven);
    let says = "producer 1 (cpu) worked 99 % of the time, and the 3 producers 53 % on average";
    assert!(sentence.contains(says), "{sentence}");
}

#[test]
fn a_service_is_not_advised_to_put_calls_in_another_order() {
    let calls = RunReport { window: NO_WINDOW, ..totals(&[0.3, 0.99, 0.3]) };
    let (bottleneck, sentence) = decide(&calls);
    assert_eq!(bottleneck, Bottleneck::Uneven);
    assert!(!sentence.contains("put long"), "{sentence}");
    assert!(sentence.contains("53 % on average"), "{sentence}");
}

#[test]
fn states_are_lost_to_panics_and_in_processes_to_crashes() {
    let mut totals = totals(&[0.5, 0.5]);
    (totals.producers[0].states_lost, totals.producers[0].rebuilds) = (1, 1);
    totals.producers[0].rebuilding = time(5.0);
    let (bottleneck, sentence) = decide(&totals);
    assert_eq!(bottleneck, Bottleneck::Rebuilding);
    assert!(sentence.contains("since panics lost 1 state); find out"), "{sentence}");
    totals.producers[0].worker = Some(WorkerReport::default());
    let (bottleneck, sentence) = decide(&totals);
    assert_eq!(bottleneck, Bottleneck::Rebuilding);
    assert!(sentence.contains("panic, crash or take too long"), "{sentence}");
}

#[test]
fn parts_that_are_slow_in_turns_are_no_single_bottleneck() {
    let mixed = RunReport { source_working: time(5.0), ..totals(&[0.5, 0.5]) };
    let (bottleneck, sentence) = decide(&mixed);
    assert_eq!(bottleneck, Bottleneck::Mixed);
    assert!(sentence.contains("the source was at work 50 %"), "{sentence}");
}

#[test]
fn runs_that_are_empty_or_short_have_no_bottleneck() {
    let said = |totals: &RunReport| {
        let (bottleneck, sentence) = decide(totals);
        assert_eq!(bottleneck, Bottleneck::Unknown, "{sentence}");
        sentence
    };
    let empty = RunReport { account: Account::default(), ..totals(&[0.0]) };
    let none = "No item was read: the input had none, or the run was ended before.";
    assert_eq!(said(&empty), none);
    let unread = Account { unread: Some(5), ..Account::default() };
    let finished = RunReport { account: unread, ..empty.clone() };
    let before = "No item was read: the run was ended before, with 5 items unread.";
    assert_eq!(said(&finished), before);
    let failed = RunReport { ending: Ending::Failed, ..empty.clone() };
    assert_eq!(said(&failed), "The run failed after 10.0 s, before any item was read.");
    let cancelled = RunReport { ending: Ending::Cancelled, ..failed };
    assert_eq!(said(&cancelled), "The run was cancelled after 10.0 s, before any item was read.");
    let skipped = Account { already_done: 3, ..Account::default() };
    let skipped = RunReport { account: skipped, ..empty };
    assert_eq!(said(&skipped), "There was nothing to do: an earlier run had already done 3 items.");

    let few = Account { ok: 3, ..Account::default() };
    let few = RunReport { account: few, ..totals(&[0.9, 0.9]) };
    let cancelled = RunReport { ending: Ending::Cancelled, ..few };
    assert!(said(&cancelled).contains("too short to say"), "{}", said(&cancelled));
    let quick = RunReport { lasted: time(0.009), ..totals(&[0.0]) };
    assert!(said(&quick).contains("1,000 items for 1 producer in 9.00 ms"));
    let quick = RunReport { ending: Ending::Failed, ..quick };
    assert!(said(&quick).ends_with("in 9.00 ms, and failed."));
    assert!(!said(&RunReport::default()).is_empty());
}

#[test]
fn a_run_that_ended_early_is_decided_up_to_its_end() {
    let failed = RunReport { ending: Ending::Failed, ..totals(&[0.98]) };
    assert!(decide(&failed).1.starts_with("Until it failed after 10.0 s, the producers limited"));
    let cancelled = RunReport { ending: Ending::Cancelled, ..failed };
    assert!(decide(&cancelled).1.starts_with("Until it was cancelled after 10.0 s, the producers"));
}

#[test]
fn producers_that_were_lost_do_not_count_as_idle() {
    let mut totals = totals(&[0.95, 0.1]);
    totals.producers[1].quarantined = Some("gone".to_owned());
    let (bottleneck, sentence) = decide(&totals);
    assert_eq!(bottleneck, Bottleneck::Producers);
    assert!(sentence.ends_with("; 1 of 2 producers was lost during the run."), "{sentence}");
    assert!(sentence.contains("the remaining producer worked 95 %"), "{sentence}");
    totals.producers[0].abandoned = true;
    assert!(decide(&totals).1.ends_with("; 2 of 2 producers were lost during the run."));
}

proptest! {
    #[test]
    fn every_run_has_one_sentence(
        times in proptest::collection::vec(0.0..20.0 * SECOND, 8),
        working in proptest::collection::vec(0.0..1.0, 0..5),
        (ok, cancelled, window) in (0u64..20, any::<bool>(), any::<u64>()),
    ) {
        let totals = RunReport {
            account: Account { ok, ..Account::default() },
            lasted: time(times[0]),
            source_working: time(times[1]),
            source_waiting: time(times[2]),
            consumer_working: time(times[3]),
            consumer_waiting: time(times[4]),
            head_stalled: time(times[5]),
            ending: if cancelled { Ending::Cancelled } else { Ending::Finished },
            window,
            ..totals(&working)
        };
        let (bottleneck, sentence) = decide(&totals);
        prop_assert!(sentence.ends_with('.') && !sentence.contains("NaN"), "{}", sentence);
        prop_assert!(sentence.starts_with(|c: char| c.is_ascii_uppercase()));
        let is_few = ok < 2 * working.len() as u64;
        let is_short = times[0] < 0.01 || ok == 0 || is_few && (cancelled || window == 0);
        prop_assert!(bottleneck == Bottleneck::Unknown || !is_short);
        prop_assert!(bottleneck != Bottleneck::Unknown || is_short || is_few);
    }
}

#[test]
fn workers_that_came_late_count_for_their_own_time() {
    let worker = |present: f64, working: f64| ProducerReport {
        place: "node/0".to_owned(),
        working: time(working),
        waiting: time(present - working),
        worker: Some(WorkerReport { host: Some("node".to_owned()), ..WorkerReport::default() }),
        ..ProducerReport::default()
    };
    let totals = RunReport {
        account: Account { ok: 1_000, ..Account::default() },
        lasted: time(10.0),
        window: 64,
        producers: vec![worker(10.0, 9.5), worker(1.0, 0.9)],
        ..RunReport::default()
    };
    let (bottleneck, sentence) = decide(&totals);
    assert_eq!(bottleneck, Bottleneck::Producers, "{sentence}");
    assert!(sentence.contains("the 2 workers worked 95 % of the time"), "{sentence}");
    assert!(sentence.contains("use more workers"), "{sentence}");
    let mut idle = totals;
    idle.producers[0] = worker(10.0, 1.5);
    idle.producers[1].worker.as_mut().unwrap().lost = Some("silent".to_owned());
    let (bottleneck, sentence) = decide(&idle);
    assert_eq!(bottleneck, Bottleneck::Mixed, "{sentence}");
    assert!(sentence.contains("the workers 15 %"), "{sentence}");
    assert!(sentence.contains("1 of 2 workers was lost"), "{sentence}");
}

/// Each kind of time that is no work is named, and not the producers, the consumer or the order.
#[test]
fn what_kept_producers_from_work_is_named() {
    let aside = |set: &dyn Fn(&mut RunReport)| {
        let mut totals = totals(&[0.2; 4]);
        totals.producers.iter_mut().for_each(|it| it.waiting = time(1.0));
        set(&mut totals);
        decide(&totals)
    };
    let (bottleneck, sentence) = aside(&|it| {
        it.held_back_by = [("--load", 9.0), ("--delay", 2.0), (BACKOFF, 30.0)]
            .map(|(cause, held)| (cause.to_owned(), time(held)))
            .into();
    });
    let said = "`--load` limited the run: it held items back for 9.00 s of 10.0 s, and the producers worked 20 % of the \
                time; loosen it if the machine has room for more items at once.";
    assert_eq!((bottleneck, &*sentence), (Bottleneck::HeldBack, said));
    let (bottleneck, sentence) =
        aside(&|it| it.producers.iter_mut().for_each(|it| it.times.journal = time(6.0)));
    assert_eq!(bottleneck, Bottleneck::Journal);
    assert!(sentence.contains("while it was written, the producers wrote outputs for 60 % of the time; put it on a faster disk"), "{sentence}");
    let (bottleneck, sentence) = aside(&|it| it.producers[0].times.dead = time(6.0));
    assert_eq!(bottleneck, Bottleneck::LostWorker);
    assert!(
        sentence.starts_with("A lost worker limited the run: its items waited 6.00 s"),
        "{sentence}"
    );
    let (bottleneck, sentence) =
        aside(&|it| it.producers.iter_mut().for_each(|it| it.times.loading = time(5.0)));
    assert_eq!(bottleneck, Bottleneck::StartUp);
    assert!(sentence.contains("the producers took 50 % of it on average"), "{sentence}");
}

/// The consumer's thread writes the journal, and has little to do for its hook.
#[test]
fn a_slow_journal_is_not_the_consumer() {
    let mut slow =
        RunReport { consumer_working: time(0.5), journal_writing: time(8.8), ..totals(&[0.3; 2]) };
    slow.source_waiting = time(9.0);
    slow.producers.iter_mut().for_each(|it| it.times.order = time(7.0));
    let (bottleneck, sentence) = decide(&slow);
    assert_eq!(bottleneck, Bottleneck::Journal);
    assert!(
        sentence.starts_with("The journal limited the run: while it was written, no output was taken for 88 % of the time; put"),
        "{sentence}"
    );
    let hook = RunReport { consumer_working: time(8.5), journal_writing: time(0.5), ..slow };
    assert_eq!(decide(&hook).0, Bottleneck::Consumer);
}

/// What held work back is no limit if the producers worked all the time, or if that took next to no time.
#[test]
fn what_holds_little_back_is_not_named() {
    let held = |working: f64, held: f64| {
        let held_back_by = [("--load".to_owned(), time(held))].into();
        decide(&RunReport { held_back_by, ..totals(&[working; 4]) }).0
    };
    assert_eq!(held(0.95, 9.0), Bottleneck::Producers);
    assert_eq!(held(0.5, 0.5), Bottleneck::Mixed);
    assert_eq!(held(0.5, 4.0), Bottleneck::HeldBack);
}
