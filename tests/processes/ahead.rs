//! Items that are sent to a process before it is done with earlier ones.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use gangline::process::Processes;
use gangline::{CancelToken, Error, OnError, OrderedRunner};

use crate::chores::{CHORES, Chore, Chores, builder, pid_in, squared, squares};
use crate::suite::tests;

tests![
    a_slow_item_keeps_no_item_back_that_was_sent_with_it,
    an_item_that_one_process_keeps_for_long_is_copied_by_another,
    a_crash_in_a_burst_fails_its_own_item_only,
    a_panic_in_a_burst_fails_its_own_item_only,
    a_process_that_ends_after_a_panic_loses_no_item_that_was_sent_ahead,
    errors_in_a_burst_fail_their_own_items_only,
    the_time_of_an_item_begins_with_the_answer_to_the_one_before,
    a_cancel_leaves_nothing_begun_that_was_sent_ahead,
    a_run_that_fails_begins_nothing_that_was_sent_ahead,
    items_one_by_one_give_the_same_results,
];

/// Quick items, so that more and more are sent ahead.
const BURST: u64 = 300;

/// After each burst an item waits for one that comes 20 items later.
fn items_that_wait_for_later_ones(directory: &std::path::Path) -> Vec<Chore> {
    let burst = |n: u64| {
        let gate: PathBuf = directory.join(n.to_string());
        let mut items = squares(0..BURST);
        items.push(Chore::Await(gate.with_extension("begun"), gate.clone()));
        items.extend(squares(0..20));
        items.push(Chore::Touch(gate));
        items
    };
    (0..10).flat_map(burst).collect()
}

fn a_slow_item_keeps_no_item_back_that_was_sent_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let items = items_that_wait_for_later_ones(directory.path());
    let count = items.len();
    let mut pool = builder(2).window(64).build().unwrap();
    // Otherwise this never ends.
    assert_eq!(pool.run(items).unwrap().len(), count);
    assert_eq!(pool.account().ok, count as u64);
    pool.close().unwrap();
}

fn an_item_that_one_process_keeps_for_long_is_copied_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let items = items_that_wait_for_later_ones(directory.path());
    let count = items.len();
    let mut pool = builder(3).window(64).speculate().build().unwrap();
    assert_eq!(pool.run(items).unwrap().len(), count);
    assert_eq!(pool.account().ok, count as u64);
}

/// The process may end before it has handed back what was sent ahead. The item in front was lost then, and the run did
/// not end.
fn a_process_that_ends_after_a_panic_loses_no_item_that_was_sent_ahead() {
    let mut pool = builder(2).window(64).on_error(OnError::Skip).build().unwrap();
    let burst = |n: u64| squares(0..40).into_iter().chain([Chore::PanicAndAbort(n * 25 % 400)]);
    let outputs = pool.run((0..60).flat_map(burst)).unwrap();
    // The process that ends may have begun another item.
    let account = pool.account();
    assert_eq!((outputs.len() as u64, account.ok + account.failed), (account.ok, 60 * 41));
    assert!((60..=120).contains(&account.failed), "{account:?}");
}

/// Runs with such an item after each burst. Each fails with such an error, and all others have their results in order.
fn fails(bad: &Chore, is_such: fn(&Error) -> bool) {
    let mut pool = builder(2).window(64).on_error(OnError::Skip).build().unwrap();
    let burst = || squares(0..BURST).into_iter().chain([bad.clone()]);
    let outputs = pool.run((0..5).flat_map(|_| burst())).unwrap();
    let expected: Vec<_> = (0..5).flat_map(|_| squared(0..BURST)).collect();
    assert_eq!(outputs, expected);
    let items: Vec<_> = pool.failures().iter().filter_map(Error::item).collect();
    assert_eq!(items, (1..=5).map(|n| n * (BURST + 1) - 1).collect::<Vec<_>>());
    assert!(pool.failures().iter().all(|error| error.attempt() == Some(1)));
    assert!(pool.failures().iter().all(is_such));
    pool.close().unwrap();
}

fn a_crash_in_a_burst_fails_its_own_item_only() {
    fails(&Chore::Abort, |error| matches!(error, Error::HookCrashed { .. }));
}

fn a_panic_in_a_burst_fails_its_own_item_only() {
    fails(&Chore::Panic("a panic in a burst".into()), Error::is_panic);
}

fn errors_in_a_burst_fail_their_own_items_only() {
    fails(&Chore::Fail("an error in a burst".into()), |error| !error.is_panic());
}

fn the_time_of_an_item_begins_with_the_answer_to_the_one_before() {
    let mut pool = builder(1).window(64).item_timeout(Duration::from_millis(400)).build().unwrap();
    let mut items = squares(0..BURST);
    items.extend((0..12).map(|_| Chore::Sleep(50)));
    assert_eq!(pool.run(items).unwrap().len(), 312, "together they take 600 ms");
}

fn a_cancel_leaves_nothing_begun_that_was_sent_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let (path, late) = (directory.path().join("pid"), directory.path().join("late"));
    let token = CancelToken::new();
    let pool = OrderedRunner::builder(Chores::new()).devices(1).cancel_token(token.clone());
    let pool = pool.window(64).processes(&CHORES, Processes::new().kill_after(None));
    let mut pool = pool.build().unwrap();
    let before = pool.run([Chore::Pid]).unwrap();
    let mut items = squares(0..BURST);
    items.push(Chore::Hang(path.clone()));
    items.push(Chore::Touch(late.clone()));
    items.extend(squares(0..20));
    let cancelling = thread::spawn(move || {
        pid_in(&path);
        token.cancel();
    });
    assert!(pool.run(items).unwrap_err().is_cancelled());
    cancelling.join().unwrap();
    assert_eq!(pool.run([Chore::Pid]).unwrap(), before, "the process lives on");
    assert!(!late.exists());
    pool.close().unwrap();
}

fn a_run_that_fails_begins_nothing_that_was_sent_ahead() {
    let mut pool = builder(2).window(64).build().unwrap();
    let mut items = squares(0..BURST);
    items.push(Chore::Fail("the end".into()));
    items.extend(squares(0..BURST));
    let error = pool.run(items).unwrap_err();
    assert_eq!(error.item(), Some(BURST));
    assert_eq!(pool.run(squares(0..BURST)).unwrap(), squared(0..BURST), "the pool works on");
    pool.close().unwrap();
}

fn items_one_by_one_give_the_same_results() {
    for ahead in [0, 1, 2, 1000] {
        let pool = OrderedRunner::builder(Chores::new()).devices(2);
        let mut pool = pool.processes(&CHORES, Processes::new().ahead(ahead)).build().unwrap();
        assert_eq!(pool.run(squares(0..BURST)).unwrap(), squared(0..BURST), "{ahead}");
    }
}
