//! What a conclusion advises, and what it says of a run that no setting limits.

use super::*;

fn says(totals: &RunReport, limited: Bottleneck, parts: &[&str]) {
    let (bottleneck, sentence) = decide(totals);
    assert_eq!(bottleneck, limited, "{sentence}");
    parts.iter().for_each(|part| assert!(sentence.contains(part), "{part}: {sentence}"));
}

fn each(mut totals: RunReport, change: impl Fn(&mut ProducerReport)) -> RunReport {
    totals.producers.iter_mut().for_each(change);
    totals
}

#[test]
fn work_of_the_source_moves_to_producers_that_have_the_time() {
    let source = |working| RunReport { source_working: time(9.8), ..totals(&[working; 2]) };
    says(&source(0.3), Bottleneck::Source, &["do less in the iterator (move work that needs no"]);
    let (_, sentence) = decide(&source(0.7));
    assert!(!sentence.contains("`producer_work`"), "it would limit the run there: {sentence}");
}

#[test]
fn as_many_producers_are_advised_as_the_other_parts_keep_up_with() {
    let consumer = RunReport { consumer_working: time(4.0), ..totals(&[0.98, 0.98]) };
    says(&consumer, Bottleneck::Producers, &["use more producers (", "keep up with `devices(6)`)"]);
    let alone = totals(&[0.98, 0.98]);
    says(&alone, Bottleneck::Producers, &["`devices(16)`"]);
    let few = RunReport { account: Account { ok: 20, ..Account::default() }, ..alone };
    says(&few, Bottleneck::Producers, &["`devices(10)`"]);
    let gpus = each(totals(&[0.98, 0.98]), |producer| producer.place = "cuda:0".to_owned());
    says(&gpus, Bottleneck::Producers, &["use more producers (", "keep up with 16 of them)"]);
    let (_, sentence) = decide(&RunReport { consumer_working: time(9.6), ..totals(&[0.98]) });
    assert!(!sentence.contains("devices("), "{sentence}");
}

#[test]
fn larger_batches_are_advised_as_far_as_items_window_and_memory_have_room() {
    let batches = |calls| {
        let splits = SplitReport { batches: calls, calls, ..SplitReport::default() };
        RunReport { splits, window: 4_096, ..totals(&[0.98, 0.98]) }
    };
    says(
        &batches(500),
        Bottleneck::Producers,
        &["use more producers", "size of batches (`batch(Batch::auto())`)."],
    );
    says(
        &batches(100),
        Bottleneck::Producers,
        &["try larger batches (`batch(Batch::up_to(40))`)."],
    );
    let narrow = RunReport { window: 50, ..batches(100) };
    says(&narrow, Bottleneck::Producers, &["(`batch(Batch::up_to(25))`)"]);
    let full = each(batches(100), |producer| producer.batch_ceiling = Some(10));
    says(
        &full,
        Bottleneck::Producers,
        &["memory has room for batches of at most 10, so use `batch(Batch::up_to(10))`"],
    );
}

#[test]
fn a_window_that_keeps_busy_producers_waiting_limits_the_run() {
    let weak = each(totals(&[0.86, 0.86]), |producer| producer.times.order = time(1.3));
    let weak = RunReport { source_waiting: time(3.0), ..weak };
    says(&weak, Bottleneck::Window, &["use `window(256)`"]);
    let grows = RunReport { window_limit: 512, ..weak.clone() };
    says(&grows, Bottleneck::Window, &["use `window(512)`"]);
    let full = RunReport { source_waiting: time(9.9), ..totals(&[0.4, 0.4]) };
    says(
        &full,
        Bottleneck::Window,
        &["full for 99 % of the time, and kept the 2 producers waiting for 59 % of it"],
    );
    let bytes = RunReport { window_memory: Some(1 << 20), ..weak };
    let parts = ["The memory of the window limited", "use `window_memory(4194304)`."];
    says(&bytes, Bottleneck::Window, &parts);
}

#[test]
fn attempts_that_fail_are_work_of_the_producers_for_nothing() {
    let failing = |failed| each(totals(&[0.98, 0.98]), |producer| producer.failed = failed);
    let parts = ["; find out why items fail (50 % of the attempts failed), or use more"];
    says(&failing(500), Bottleneck::Producers, &parts);
    let (_, sentence) = decide(&failing(50));
    assert!(!sentence.contains("failed"), "{sentence}");
    let skipped = Account { ok: 500, failed: 500, ..Account::default() };
    let (_, sentence) = decide(&RunReport { account: skipped, ..failing(250) });
    assert!(!sentence.contains("failed"), "no attempt was made again: {sentence}");
}

#[test]
fn a_larger_window_is_advised_beside_a_backoff_only_if_it_was_full() {
    let tail = each(totals(&[0.3, 0.3]), |producer| producer.backing_off = time(6.0));
    says(&tail, Bottleneck::Backoff, &["make `backoff` shorter."]);
    let before = RunReport { source_waiting: time(3.9), ..tail.clone() };
    says(&before, Bottleneck::Backoff, &["make `backoff` shorter."]);
    let full = RunReport { source_waiting: time(9.0), ..tail };
    says(&full, Bottleneck::Backoff, &["make `backoff` shorter, or use `window(256)` if memory"]);
}

#[test]
fn a_run_of_few_items_or_batches_says_so() {
    let of = |ok, working: &[f64]| RunReport {
        account: Account { ok, ..Account::default() },
        ..totals(working)
    };
    let parts = ["Too few items limited the run: it had 3 items for 4 producers"];
    says(&of(3, &[0.9, 0.9, 0.9, 0.0]), Bottleneck::TooFew, &parts);
    says(&of(9, &[0.99, 0.5, 0.5, 0.5]), Bottleneck::TooFew, &["; put long items first"]);
    says(&of(99, &[0.99, 0.5, 0.5, 0.5]), Bottleneck::Uneven, &["put long items first"]);
    let splits = SplitReport { batches: 2, calls: 2, ..SplitReport::default() };
    let batches = RunReport { splits, ..of(16, &[0.99, 0.99, 0.0, 0.0]) };
    says(&batches, Bottleneck::TooFew, &["16 items in 2 calls", "`batch(Batch::up_to(4))`"]);
    let splits = SplitReport { batches: 5, calls: 5, ..SplitReport::default() };
    let uneven = RunReport { splits, ..of(500, &[0.99, 0.5, 0.5, 0.5]) };
    let parts = ["; use smaller batches (`batch(Batch::up_to(63))`), or put more items"];
    says(&uneven, Bottleneck::TooFew, &parts);
    let (_, sentence) = decide(&of(1, &[0.9, 0.0]));
    assert!(sentence.contains("; split it into parts"), "it has no order: {sentence}");
    let (_, sentence) = decide(&of(99, &[0.99, 0.5, 0.5, 0.5]));
    assert!(!sentence.contains("batches"), "there are none: {sentence}");
}

#[test]
fn few_items_are_not_to_blame_for_what_another_part_took() {
    let of = |ok, working: &[f64]| RunReport {
        account: Account { ok, ..Account::default() },
        ..totals(working)
    };
    let source = RunReport { source_working: time(9.0), ..of(3, &[0.02; 4]) };
    says(&source, Bottleneck::Source, &["at work 90 % of the time"]);
    let consumer = RunReport { consumer_working: time(9.0), ..of(3, &[0.02; 4]) };
    says(&consumer, Bottleneck::Consumer, &["at work 90 % of the time"]);
    let backoff = each(of(1, &[0.2]), |producer| producer.backing_off = time(8.0));
    says(&backoff, Bottleneck::Backoff, &["find out why items fail"]);
    let parts = ["too short to say"];
    says(&of(3, &[0.1; 4]), Bottleneck::Unknown, &parts);
    says(&of(1, &[0.9]), Bottleneck::Unknown, &parts);
    let stopped = Account { ok: 1, cancelled: 2, ..Account::default() };
    says(&RunReport { account: stopped, ..of(3, &[0.9; 4]) }, Bottleneck::Unknown, &parts);
}

#[test]
fn getting_ready_limits_a_run_that_is_shorter() {
    let parts = ["producers took 12.0 s to get ready for a run of 10.0 s; use one pool for more"];
    let slow = RunReport { start_up: time(12.0), ..totals(&[0.9]) };
    says(&slow, Bottleneck::StartUp, &parts);
    let short = RunReport { start_up: time(0.2), lasted: time(0.001), ..totals(&[0.0]) };
    says(&short, Bottleneck::StartUp, &["producers took 200 ms"]);
    says(&RunReport { start_up: time(8.0), ..totals(&[0.9]) }, Bottleneck::Producers, &[]);
    let failed = RunReport { ending: Ending::Failed, ..slow };
    says(&failed, Bottleneck::Producers, &["Until it failed"]);
    let consumer = RunReport { consumer_init: time(3.0), ..totals(&[0.7]) };
    says(
        &consumer,
        Bottleneck::StartUp,
        &["`consumer_init` took 3.00 s of 10.0 s", "before the run"],
    );
}

#[test]
fn producers_that_get_ready_in_a_run_limit_it() {
    let loading = |share, of_run| {
        each(totals(&[share, share]), move |producer| producer.times.loading = time(10.0 * of_run))
    };
    let parts = ["producers took 60 % of it on average to get ready; use one pool for more runs"];
    says(&loading(0.39, 0.6), Bottleneck::StartUp, &parts);
    // Those that worked the rest of the time had no other to wait for.
    says(&loading(0.84, 0.15), Bottleneck::Producers, &["worked 84 %"]);
}

#[test]
fn states_that_are_recycled_often_limit_a_run() {
    let recycled = each(totals(&[0.3, 0.3]), |producer| {
        (producer.recycles, producer.recycling) = (250, time(6.0));
    });
    let parts = ["Rebuilding recycled states", "500 states were recycled", "`recycle_after(80)`"];
    says(&recycled, Bottleneck::Rebuilding, &parts);
}

#[test]
fn no_more_memory_is_advised_than_the_machine_has() {
    let held_up = each(totals(&[0.5, 0.5]), |producer| producer.times.order = time(4.0));
    let of = |bytes| RunReport {
        source_waiting: time(5.5),
        window_memory: Some(bytes),
        memory: Some(16 << 30),
        ..held_up.clone()
    };
    let gib = 1 << 30;
    let said = |bytes| decided(&of(bytes), &[], None);
    let roomy = said(gib);
    assert_eq!(roomy.advice, [("window_memory".to_owned(), 4 * gib)]);
    assert!(roomy.sentence.ends_with("; use `window_memory(4294967296)`."), "{}", roomy.sentence);
    let capped = said(3 * gib);
    assert_eq!(capped.advice, [("window_memory".to_owned(), 8 * gib)]);
    let says =
        "use `window_memory(8589934592)`, half of the 17.2 GB of this machine, but not more.";
    assert!(capped.sentence.ends_with(says), "{}", capped.sentence);
    for bytes in [5 * gib, 8 * gib, 64 * gib] {
        let full = said(bytes);
        assert_eq!((full.bottleneck, full.advice), (Bottleneck::Window, vec![]));
        let says = "use a machine with more memory, since this one has 17.2 GB.";
        assert!(full.sentence.ends_with(says), "{}", full.sentence);
    }
}

#[test]
fn no_setting_is_advised_that_is_set_already() {
    let uneven = totals(&[0.3, 0.99, 0.3]);
    assert_eq!(decided(&uneven, &[], None).advice, [("speculate".to_owned(), 0)]);
    let copies = decided(&uneven, &[("speculate", "yes")], None);
    assert_eq!(copies.advice, []);
    assert!(copies.sentence.ends_with("; put long items first."), "{}", copies.sentence);

    let late = each(totals(&[0.5, 0.5]), |producer| producer.times.order = time(4.0));
    let late = RunReport { source_waiting: time(5.0), head_stalled: time(5.0), ..late };
    let copies = decided(&late, &[("speculate", "yes")], None);
    assert_eq!(copies.bottleneck, Bottleneck::Head);
    assert_eq!(copies.advice, [("completion_order".to_owned(), 0)]);

    let splits = SplitReport { batches: 100, calls: 100, ..SplitReport::default() };
    let batches = RunReport { splits, window: 4_096, ..totals(&[0.98, 0.98]) };
    let with = |rule| decided(&batches, &[("batch", rule)], None).advice;
    let (more, larger) = (("devices".to_owned(), 16), ("batch".to_owned(), 40));
    assert_eq!(with("up to 10"), [more.clone(), larger]);
    assert_eq!(
        with("40 within 5 ms"),
        std::slice::from_ref(&more),
        "larger ones did not come about"
    );
    assert_eq!(with("auto, at most 64"), std::slice::from_ref(&more));
    let long =
        RunReport { splits: SplitReport { calls: 500, ..batches.splits.clone() }, ..batches };
    assert_eq!(
        decided(&long, &[("batch", "of 2")], None).advice,
        [more.clone(), ("auto_batch".to_owned(), 0)]
    );
    assert_eq!(decided(&long, &[("batch", "auto")], None).advice, [more]);
}

#[test]
fn no_more_producers_are_advised_than_the_cores_have_time_for() {
    let on = |cores, computing| {
        let totals = RunReport { computing: time(computing), ..totals(&[0.98, 0.98]) };
        decided(&totals, &[], cores)
    };
    let devices = |producers| [("devices".to_owned(), producers)];
    assert_eq!(on(Some(2), 0.5).advice, devices(16), "they sleep");
    assert_eq!(on(Some(8), 19.0).advice, devices(8), "each computes");
    assert_eq!(on(None, 19.0).advice, devices(16), "it is not known");
    let full = on(Some(2), 19.0);
    assert_eq!((full.bottleneck, full.advice), (Bottleneck::Producers, vec![]));
    let says = "make the hook faster or use more or faster machines, since this one computed on all of its 2 cores";
    assert!(full.sentence.contains(says), "{}", full.sentence);
}

#[test]
fn items_in_batches_are_not_to_be_split_into_parts() {
    let splits = SplitReport { batches: 2, calls: 2, ..SplitReport::default() };
    let account = Account { ok: 16, ..Account::default() };
    let batches = RunReport { account, splits, ..totals(&[0.99, 0.99, 0.0, 0.0]) };
    let (_, sentence) = decide(&batches);
    let says = "; use smaller batches (`batch(Batch::up_to(4))`), or put more items into one run.";
    assert!(sentence.ends_with(says), "{sentence}");
    let single = RunReport { splits: SplitReport::default(), ..batches };
    let few = Account { ok: 3, ..Account::default() };
    let (_, sentence) = decide(&RunReport { account: few, ..single });
    let says = "; split them into parts, or put more items into one run.";
    assert!(sentence.ends_with(says), "{sentence}");
}

#[test]
fn the_rest_of_a_run_that_was_nearly_done_is_judged() {
    let of = |ok, lasted: f64| {
        let account = Account { ok, already_done: 300, ..Account::default() };
        RunReport { account, lasted: time(lasted), ..totals(&[0.98, 0.98]) }
    };
    let says = "An earlier run had already done 300 of 301 items. The rest is too short to say what limited it: it had \
                1 item for 2 producers in 6.00 ms.";
    assert_eq!(decide(&of(1, 0.006)), (Bottleneck::Unknown, says.to_owned()));
    let (bottleneck, sentence) = decide(&of(100, 10.0));
    assert_eq!(bottleneck, Bottleneck::Producers);
    let says = "An earlier run had already done 300 of 400 items. The producers limited the run: ";
    assert!(sentence.starts_with(says), "{sentence}");
    let cancelled = RunReport { ending: Ending::Cancelled, ..of(100, 10.0) };
    let says =
        "An earlier run had already done 300 of 400 items. Until it was cancelled after 10.0 s, ";
    assert!(decide(&cancelled).1.starts_with(says), "{}", decide(&cancelled).1);
}

#[test]
fn a_window_that_was_not_full_is_not_advised_to_be_larger() {
    let mixed = RunReport { source_working: time(5.0), ..totals(&[0.5, 0.5]) };
    let (_, sentence) = decide(&mixed);
    assert!(sentence.ends_with("and the window was full for 0 %."), "{sentence}");
    let full = RunReport { source_waiting: time(3.0), ..mixed };
    let (_, sentence) = decide(&full);
    assert!(
        sentence.ends_with("; if parts are slow in turns, use a larger `window(n)`."),
        "{sentence}"
    );
}
