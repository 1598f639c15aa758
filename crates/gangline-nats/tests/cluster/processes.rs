//! Workers that have their hooks run in child processes.

use gangline::Error;

use crate::broker::{Broker, Worker};
use crate::chores::{Chore, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_hook_that_crashes_costs_one_attempt_and_not_the_worker,
    a_crash_without_retries_names_the_signal,
    an_item_that_crashes_three_children_fails,
    a_hook_in_a_child_sees_the_items_of_the_coordinator,
    an_error_from_a_child_of_a_worker_keeps_its_type,
    a_hook_that_exceeds_its_time_is_killed_in_the_worker,
    a_child_of_a_worker_is_an_ordinary_one,
];

fn start(broker: &Broker, producers: usize) -> Worker {
    broker.worker_with(producers, &[("GANGLINE_PROCESSES", "1")])
}

/// The process id of the parent.
fn parent(pid: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().to_owned()
}

fn a_hook_that_crashes_costs_one_attempt_and_not_the_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let worker = start(&broker, 1);
    let mut pool = broker.builder().retries(1).build().unwrap();
    let crashed = folder.path().join("crashed");
    let mut items = vec![Chore::KillOnce(crashed.clone())];
    items.extend(squares(0..20));
    let outputs = pool.run(items).unwrap();
    assert_eq!(outputs[1..], squared(0..20));
    let (first, second) = (text_in(&crashed), &outputs[0]);
    assert_ne!(first, *second, "another child has done it");
    assert_eq!(parent(second), worker.pid().to_string());
}

fn a_crash_without_retries_names_the_signal() {
    let broker = Broker::start();
    let _worker = start(&broker, 1);
    let mut pool = broker.builder().build().unwrap();
    let error = pool.run([Chore::Square(1), Chore::Kill]).unwrap_err();
    let Error::HookCrashed { source, site, .. } = &error else { panic!("{error:#}") };
    assert_eq!(source.signal, Some(9));
    assert_eq!(site.items, [1]);
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5), "the worker lives on");
}

fn an_item_that_crashes_three_children_fails() {
    let broker = Broker::start();
    let _worker = start(&broker, 1);
    let mut pool = broker.builder().retries(50).build().unwrap();
    let error = pool.run([Chore::Kill]).unwrap_err();
    assert!(matches!(error, Error::HookCrashed { .. }), "{error:#}");
    assert_eq!(error.attempt(), Some(3));
}

fn a_hook_in_a_child_sees_the_items_of_the_coordinator() {
    let broker = Broker::start();
    let _worker = start(&broker, 1);
    let mut pool = broker.builder().build().unwrap();
    for _ in 0..2 {
        let sites = pool.run(vec![Chore::Site; 3]).unwrap();
        assert_eq!(sites, ["Some(0) [0] 1 0 cpu", "Some(1) [1] 1 0 cpu", "Some(2) [2] 1 0 cpu"]);
    }
}

fn an_error_from_a_child_of_a_worker_keeps_its_type() {
    let broker = Broker::start();
    let _worker = start(&broker, 1);
    let mut pool = broker.builder().build().unwrap();
    let error = pool.run([Chore::Rare(7)]).unwrap_err();
    let rare = std::error::Error::source(&error).unwrap();
    assert_eq!(rare.downcast_ref::<crate::chores::RareError>().unwrap().code, 7);
}

fn a_hook_that_exceeds_its_time_is_killed_in_the_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let _worker = start(&broker, 1);
    let limit = std::time::Duration::from_millis(700);
    let mut pool = broker.builder().item_timeout(limit).build().unwrap();
    let never = folder.path().join("never");
    let note = folder.path().join("note");
    let error = pool.run([Chore::Await(note.clone(), never)]).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:#}");
    assert_ne!(pool.run([Chore::Pid]).unwrap()[0], text_in(&note), "that child is gone");
}

fn a_child_of_a_worker_is_an_ordinary_one() {
    let broker = Broker::start();
    let worker = start(&broker, 1);
    let mut pool = broker.builder().build().unwrap();
    let child = pool.run([Chore::Pid]).unwrap().remove(0);
    assert_eq!(parent(&child), worker.pid().to_string());
    let environment = std::fs::read(format!("/proc/{child}/environ")).unwrap();
    let text = String::from_utf8_lossy(&environment);
    for name in ["GANGLINE_NATS=", "GANGLINE_NATS_WORKER=", "GANGLINE_PROCESSES="] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
}
