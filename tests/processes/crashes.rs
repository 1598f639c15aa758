//! Processes that die, for real.

use std::collections::HashSet;
use std::time::Duration;

use gangline::closures::FnMap;
use gangline::process::{Processes, Recipe};
use gangline::{CfgNode, Error, OnError, OrderedRunner};
use rustix::process::{Signal, kill_process};

use crate::chores::{CHORES, Chore, Chores, builder, pid_in, squared, squares};
use crate::suite::tests;

tests![
    each_way_to_die_fails_its_own_item_only,
    a_crash_costs_one_attempt,
    a_poisoned_item_ends_three_processes_and_no_more,
    what_was_printed_last_is_in_the_error,
    a_panic_that_aborts_is_a_crash_with_its_message,
    an_input_that_cannot_be_cloned_is_tried_again,
    a_process_that_dies_between_runs_costs_no_attempt,
    processes_that_die_after_a_burst_cost_no_attempt,
    a_process_without_memory_fails_its_item,
    a_process_that_another_holds_open_is_seen_to_end,
    a_run_that_fails_at_a_crash_names_it,
    three_starts_that_fail_are_tried_again,
    four_starts_that_fail_in_a_row_lose_the_producer,
    a_producer_init_that_fails_in_a_run_has_a_new_process,
    a_crash_in_init_fails_the_build,
    the_last_producer_that_does_not_start_again_ends_the_run,
];

fn crash_of(error: &Error) -> (Option<i32>, Option<i32>) {
    let Error::HookCrashed { source, .. } = error else { panic!("{error:?}") };
    (source.signal, source.status)
}

fn each_way_to_die_fails_its_own_item_only() {
    let mut pool = builder(2).on_error(OnError::Skip).build().unwrap();
    let mut items = squares(0..60);
    let bad = [Chore::Abort, Chore::Exit(3), Chore::Exit(0), Chore::Segv, Chore::Kill];
    for (n, chore) in bad.into_iter().enumerate() {
        items[10 * (n + 1)] = chore;
    }
    let outputs = pool.run(items).unwrap();
    let mut expected = squared(0..60);
    [50, 40, 30, 20, 10].into_iter().for_each(|n| drop(expected.remove(n)));
    assert_eq!(outputs, expected);
    let failures = pool.failures();
    let ends: Vec<_> = failures.iter().map(crash_of).collect();
    let (signal, status) = (|n| (Some(n), None), |n| (None, Some(n)));
    assert_eq!(ends, [signal(6), status(3), status(0), signal(11), signal(9)]);
    let items: Vec<_> = failures.iter().filter_map(Error::item).collect();
    assert_eq!(items, [10, 20, 30, 40, 50]);
    assert_eq!(
        failures[3].to_string(),
        format!(
            "producer_work crashed for item 40 on cpu (producer {}, attempt 1)",
            failures[3].producer().unwrap()
        )
    );
    assert_eq!((pool.account().ok, pool.account().failed), (55, 5));
    pool.close().unwrap();
}

fn a_crash_costs_one_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let mut pool = builder(1).retries(1).backoff(Duration::ZERO, Duration::ZERO).build().unwrap();
    let mut items = squares(0..10);
    items[4] = Chore::AbortOnce(directory.path().join("once"));
    let outputs = pool.run(items).unwrap();
    outputs[4].parse::<u32>().expect("the id of the process that went on");
    assert_eq!(pool.account().ok, 10);
}

fn a_poisoned_item_ends_three_processes_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let cfg = CfgNode::new().with("init", &starts).unwrap();
    let pool = builder(1).retries(100).backoff(Duration::ZERO, Duration::ZERO).cfg(cfg);
    let mut pool = pool.on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run([Chore::Abort, Chore::Square(3)]).unwrap(), ["9"]);
    assert_eq!(pool.failures()[0].attempt(), Some(3));
    assert_eq!(std::fs::read_to_string(starts).unwrap().len(), 4, "one more for the other item");
}

fn what_was_printed_last_is_in_the_error() {
    let mut pool = builder(1).build().unwrap();
    let error = pool.run([Chore::LastWords("free(): invalid pointer".into())]).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("killed by signal 6 (SIGABRT)"), "{text}");
    assert!(text.ends_with("it printed at last: free(): invalid pointer"), "{text}");
}

fn a_panic_that_aborts_is_a_crash_with_its_message() {
    let mut pool = builder(2).on_error(OnError::Skip).build().unwrap();
    let mut items = squares(0..20);
    items.insert(7, Chore::PanicAborts("the last words".into()));
    assert_eq!(pool.run(items).unwrap(), squared(0..20));
    let failure = &pool.failures()[0];
    assert_eq!((failure.item(), crash_of(failure)), (Some(7), (Some(6), None)));
    assert!(format!("{failure:#}").contains("the last words"), "{failure:#}");
    pool.close().unwrap();
}

/// An input that is not `Clone`.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Unique(Chore);

fn init(_: &gangline::ProducerContext<'_>) -> gangline::Result<()> {
    Ok(())
}

fn obey(_: &gangline::ProducerContext<'_>, (): &mut (), input: Unique) -> gangline::Result<u64> {
    let Unique(chore) = input;
    match chore {
        Chore::Square(x) => Ok(x * x),
        Chore::AbortOnce(path) if path.exists() => Ok(1),
        Chore::AbortOnce(path) => {
            std::fs::write(path, "")?;
            std::process::abort()
        }
        other => Err(format!("{other:?}").into()),
    }
}

fn make(_: &CfgNode) -> gangline::Result<FnMap<(), Unique, u64>> {
    Ok(gangline::map(init as _, obey as _))
}

pub static UNIQUE: Recipe<FnMap<(), Unique, u64>> = Recipe::new("unique", make);

fn an_input_that_cannot_be_cloned_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(2);
    let builder = builder.backoff(Duration::ZERO, Duration::ZERO).on_error(OnError::Skip);
    let mut pool = builder.processes(&UNIQUE, Processes::new().retries(2)).build().unwrap();
    let mut items: Vec<_> = (0..100).map(|x| Unique(Chore::Square(x))).collect();
    items[30] = Unique(Chore::AbortOnce(directory.path().join("once")));
    items[60] = Unique(Chore::Abort);
    let mut expected: Vec<u64> = (0..100).map(|x| x * x).collect();
    (expected[30], _) = (1, expected.remove(60));
    assert_eq!(pool.run(items).unwrap(), expected);
    assert_eq!(pool.failures()[0].attempt(), Some(3), "an error is tried again too");
}

fn a_process_that_dies_between_runs_costs_no_attempt() {
    let mut pool = builder(1).build().unwrap();
    for _ in 0..3 {
        let pid = pool.run([Chore::Pid]).unwrap()[0].parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        await_zombie(pid);
        assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    }
    let pid = pool.run([Chore::Pid]).unwrap()[0].parse().unwrap();
    kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    await_zombie(rustix::process::Pid::from_raw(pid).unwrap());
    pool.close().expect("its state was gone, so there was nothing to end");
}

/// At the end of a run, idle producers ask for what others have ahead. The answers may come after the run. They used to look
/// like signs of life.
fn processes_that_die_after_a_burst_cost_no_attempt() {
    let mut pool = builder(3).window(64).build().unwrap();
    for _ in 0..20 {
        let mut items = squares(0..300);
        items.extend((0..30).map(|_| Chore::Pid));
        let outputs = pool.run(items).unwrap();
        let pids = outputs[300..].iter().map(|pid| pid.parse().unwrap()).collect::<HashSet<i32>>();
        for pid in pids.into_iter().map(|pid| rustix::process::Pid::from_raw(pid).unwrap()) {
            kill_process(pid, Signal::KILL).unwrap();
            await_zombie(pid);
        }
        assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    }
}

fn await_zombie(pid: rustix::process::Pid) {
    crate::chores::await_end(pid);
}

fn a_process_without_memory_fails_its_item() {
    let exe = std::env::current_exe().unwrap();
    // 2 GiB of addresses.
    let limited = format!("ulimit -v 2097152; exec {}", exe.display());
    let processes = Processes::new().program("/bin/sh").args(["-c".to_owned(), limited]);
    // It would push the message out of what is kept.
    let processes = processes.env("RUST_BACKTRACE", "0");
    let pool = OrderedRunner::builder(Chores::new()).devices(1).processes(&CHORES, processes);
    let mut pool = pool.on_error(OnError::Skip).build().unwrap();
    let outputs = pool.run([Chore::Allocate(1), Chore::Allocate(4096), Chore::Square(2)]).unwrap();
    assert_eq!(outputs, ["1048576", "4"]);
    let text = format!("{:#}", pool.failures()[0]);
    assert_eq!(crash_of(&pool.failures()[0]), (Some(6), None), "{text}");
    assert!(text.contains("memory allocation of 4294967296 bytes failed"), "{text}");
}

fn a_process_that_another_holds_open_is_seen_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let mut pool = builder(1).on_error(OnError::Skip).build().unwrap();
    let items = [Chore::Fork(path.clone()), Chore::Abort, Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap().last().unwrap(), "9");
    pool.close().unwrap();
    kill_process(pid_in(&path), Signal::KILL).expect("it has left the group, so it lives on");
}

fn a_run_that_fails_at_a_crash_names_it() {
    let mut pool = builder(2).build().unwrap();
    let mut items = squares(0..50);
    items[7] = Chore::Exit(9);
    let error = pool.run(items).unwrap_err();
    assert_eq!((error.item(), crash_of(&error)), (Some(7), (None, Some(9))));
    assert_eq!(error.hook(), Some(gangline::Hook::ProducerWork));
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5), "the pool can be used again");
}

/// The starts with these numbers, from 0, end in an abort.
fn with_bad_starts(bad: &[usize]) -> (tempfile::TempDir, CfgNode) {
    let directory = tempfile::tempdir().unwrap();
    let cfg = CfgNode::new().with("init", directory.path().join("starts")).unwrap();
    (directory, cfg.with("bad_starts", bad).unwrap())
}

fn three_starts_that_fail_are_tried_again() {
    let (_directory, cfg) = with_bad_starts(&[1, 2, 3]);
    let mut pool = builder(1).cfg(cfg).on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run([Chore::Abort, Chore::Square(2)]).unwrap(), ["4"]);
    pool.close().unwrap();
}

/// After the crash, the four starts that the producer has end. The fifth is that of the second `producer_init`.
fn a_producer_init_that_fails_in_a_run_has_a_new_process() {
    let directory = tempfile::tempdir().unwrap();
    let cfg = CfgNode::new().with("init", directory.path().join("starts")).unwrap();
    let cfg = cfg.with("bad_starts", vec![1, 2, 3, 4]).unwrap();
    let builder = builder(1).cfg(cfg).retries(1).replace_lost(1);
    let mut pool = builder.build().unwrap();
    let once = Chore::AbortOnce(directory.path().join("once"));
    let mut items = squares(0..9);
    items.insert(0, once);
    assert_eq!(pool.run(items).unwrap()[1..], squared(0..9));
    assert_eq!(pool.report().producers[0].replacements, 1);
    assert_eq!(pool.run(squares(0..9)).unwrap(), squared(0..9));
    pool.close().unwrap();
}

fn four_starts_that_fail_in_a_row_lose_the_producer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("starts");
    // Two producers share the file. Their first starts are 0 and 1.
    let cfg = CfgNode::new().with("init", &path).unwrap().with("bad_starts", [2, 3, 4, 5]).unwrap();
    let pool = builder(2).cfg(cfg).on_error(OnError::Skip).min_producers(1);
    let mut pool = pool.build().unwrap();
    let mut items = squares(0..40);
    items[0] = Chore::Abort;
    let outputs = pool.run(items).unwrap();
    let starts = std::fs::read_to_string(path).unwrap().len();
    assert!(outputs.len() == 39 && starts <= 6, "{starts} starts");
}

fn a_crash_in_init_fails_the_build() {
    let cfg = CfgNode::new().with("init", "abort").unwrap();
    let error = builder(2).cfg(cfg).build().unwrap_err();
    assert_eq!(
        (error.hook(), crash_of(&error)),
        (Some(gangline::Hook::ProducerInit), (Some(6), None))
    );
}

fn the_last_producer_that_does_not_start_again_ends_the_run() {
    let (_directory, cfg) = with_bad_starts(&[1, 2, 3, 4]);
    let mut pool = builder(1).cfg(cfg).on_error(OnError::Skip).build().unwrap();
    let error = pool.run([Chore::Abort, Chore::Square(2)]).unwrap_err();
    assert_eq!(error.hook(), Some(gangline::Hook::ProducerInit), "{error:?}");
}
