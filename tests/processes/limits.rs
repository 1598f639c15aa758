//! Timeouts and cancels, which end the process of a hook.

use std::thread;
use std::time::Duration;

use gangline::process::Processes;
use gangline::{CancelToken, CfgNode, Error, Hook, OnError, OrderedRunner};

use crate::chores::{CHORES, Chore, Chores, await_end, builder, pid_in, squared, squares};
use crate::suite::tests;

tests![
    a_hook_that_hangs_is_killed,
    a_stopped_process_is_killed,
    an_init_that_hangs_is_killed,
    a_cancelled_hook_gives_up_by_itself,
    a_cancelled_hook_that_goes_on_is_killed,
    a_cancelled_build_ends_the_processes,
    a_run_that_is_over_its_time_leaves_no_process,
];

/// Longer than a busy machine keeps an answer from its coordinator.
const SHORT: Duration = Duration::from_millis(500);

fn killed_in_time(chore: Chore) {
    let pool = builder(1).item_timeout(SHORT).on_error(OnError::Skip);
    let mut pool = pool.build().unwrap();
    let mut items = squares(0..5);
    items.insert(2, chore);
    assert_eq!(pool.run(items).unwrap(), squared(0..5), "the only producer goes on");
    let failure = &pool.failures()[0];
    assert!(failure.is_timeout() && failure.item() == Some(2), "{failure:?}");
    assert!(failure.to_string().starts_with("producer_work took longer than 500 ms for item 2"));
    let report = pool.report();
    let failed = "item 2 in producer_work on cpu: took longer than 500 ms\n";
    assert!(report.to_string().contains(failed), "{report}");
    pool.close().unwrap();
}

fn a_hook_that_hangs_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    killed_in_time(Chore::HangOn(path.clone()));
    await_end(pid_in(&path));
}

fn a_stopped_process_is_killed() {
    killed_in_time(Chore::Stop);
}

fn an_init_that_hangs_is_killed() {
    let cfg = CfgNode::new().with("init", "hang").unwrap();
    let error = builder(2).cfg(cfg).init_timeout(SHORT).build().unwrap_err();
    assert!(error.is_timeout() && error.hook() == Some(Hook::ProducerInit), "{error:?}");
}

/// Cancels a run once its hook has begun. Returns the process of the hook, which may have ended.
fn cancelled(chore: fn(std::path::PathBuf) -> Chore, processes: Processes) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let token = CancelToken::new();
    let builder = OrderedRunner::builder(Chores::new()).devices(1).cancel_token(token.clone());
    let mut pool = builder.processes(&CHORES, processes).build().unwrap();
    let before = pool.run([Chore::Pid]).unwrap();
    let items = [chore(path.clone())];
    let cancelling = thread::spawn(move || {
        pid_in(&path);
        token.cancel();
    });
    assert!(pool.run(items).unwrap_err().is_cancelled());
    cancelling.join().unwrap();
    let after = pool.run([Chore::Pid]).unwrap();
    pool.close().unwrap();
    before == after
}

fn a_cancelled_hook_gives_up_by_itself() {
    let is_same = cancelled(Chore::Hang, Processes::new().kill_after(None));
    assert!(is_same, "the process lives on");
}

fn a_cancelled_hook_that_goes_on_is_killed() {
    let is_same = cancelled(Chore::HangOn, Processes::new().kill_after(SHORT));
    assert!(!is_same, "it was killed");
}

fn a_cancelled_build_ends_the_processes() {
    let token = CancelToken::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let cfg = CfgNode::new().with("init", "hang").unwrap().with("note", &path).unwrap();
    let builder = OrderedRunner::builder(Chores::new()).devices(2).cancel_token(token.clone());
    let builder = builder.cfg(cfg).processes(&CHORES, Processes::new().kill_after(SHORT));
    let cancelling = thread::spawn(move || {
        pid_in(&path);
        token.cancel();
    });
    assert!(builder.build().unwrap_err().is_cancelled());
    cancelling.join().unwrap();
}

fn a_run_that_is_over_its_time_leaves_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let mut pool = builder(1).run_timeout(2 * SHORT).build().unwrap();
    assert!(pool.run([Chore::HangOn(path.clone())]).unwrap_err().is_timeout());
    await_end(pid_in(&path));
    // On a busy machine, the producer comes back late, and a new process does not start in time.
    let outputs = loop {
        match pool.run(squares(0..2)) {
            Err(error) if error.is_timeout() || matches!(error, Error::TooFewProducers { .. }) => {}
            other => break other,
        }
    };
    assert_eq!(outputs.unwrap(), squared(0..2));
    pool.close().unwrap();
}
