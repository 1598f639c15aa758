//! Workers that come and go.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use gangline::error::WorkerError;
use gangline::{Error, OrderedRunner};
use gangline_nats::{ClusterBuilder, ClusterError};
use rustix::process::Signal;

use crate::broker::{Broker, Worker};
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_worker_joins_in_the_middle_of_a_run,
    a_worker_that_is_terminated_finishes_what_it_has,
    a_worker_that_is_terminated_without_a_broker_ends,
    a_worker_that_is_terminated_without_a_broker_waits_for_no_hook,
    a_worker_that_is_terminated_before_it_has_connected_ends,
    a_run_without_workers_fails_in_time,
    a_run_whose_last_worker_was_killed_says_so,
    a_worker_that_waits_for_a_seat_gets_one,
    a_worker_starts_ordinary_programs,
];

fn a_worker_joins_in_the_middle_of_a_run() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let _first = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            text_in(&path("begun"));
            broker.worker(1)
        });
        // Only another worker can let the first go on.
        let outputs =
            pool.run([Chore::Await(path("begun"), path("joined")), Chore::Touch(path("joined"))]);
        assert_eq!(outputs.unwrap()[1], second.join().unwrap().pid().to_string());
    });
}

fn a_worker_that_is_terminated_finishes_what_it_has() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let mut first = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let mut second = None;
    let pid = first.pid().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            first.signal(Signal::TERM);
            second = Some(broker.worker(1));
            std::fs::write(path("go"), "").unwrap();
            assert!(first.wait().success());
        });
        let mut items = vec![Chore::Await(path("begun"), path("go"))];
        items.extend(squares(0..50));
        let outputs = pool.run(items).unwrap();
        assert_eq!(outputs[0], pid, "no attempt was lost, since there was but one");
        assert_eq!(outputs[1..], squared(0..50));
    });
}

fn a_worker_that_is_terminated_without_a_broker_ends() {
    terminate_without_a_broker("go");
}

fn a_worker_that_is_terminated_without_a_broker_waits_for_no_hook() {
    terminate_without_a_broker("never");
}

/// With an item whose hook waits for the file `awaited`. The file `go` is written.
fn terminate_without_a_broker(awaited: &str) {
    let mut broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let mut worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(2));
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            broker.kill();
            worker.signal(Signal::TERM);
            std::fs::write(path("go"), "").unwrap();
        });
        pool.run([Chore::Await(path("begun"), path(awaited))]).unwrap_err();
    });
    assert!(worker.wait().success());
}

fn a_worker_that_is_terminated_before_it_has_connected_ends() {
    // A broker that never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("GANGLINE_NATS", format!("nats://{}", silent.local_addr().unwrap()));
    let mut worker = Worker::start(command);
    let _connection = silent.accept().unwrap();
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
}

fn a_run_without_workers_fails_in_time() {
    let broker = Broker::start();
    let mut worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(4));
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
    let error = pool.run(squares(0..5)).unwrap_err();
    let Error::Worker { source, .. } = &error else { panic!("{error:#}") };
    let WorkerError::Backend { source, .. } = &**source else { panic!("{error:#}") };
    assert!(
        matches!(source.downcast_ref(), Some(ClusterError::NoWorkers { here: 0, .. })),
        "{error:#}"
    );
    // It serves again with another worker.
    let _worker = broker.ready_worker(1);
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
}

/// It had begun no item, so none fails of its loss.
fn a_run_whose_last_worker_was_killed_says_so() {
    let broker = Broker::start();
    let mut worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(4));
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    worker.signal(Signal::KILL);
    worker.wait();
    let text = format!("{:#}", pool.run(squares(0..5)).unwrap_err());
    assert!(text.starts_with("0 of at least 1 workers take part after a wait of 4 s; "), "{text}");
    assert!(text.ends_with(": it gave no sign of life for 1.5 s"), "{text}");
    // Another one is not lost, but leaves.
    let mut worker = broker.ready_worker(1);
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    worker.signal(Signal::TERM);
    worker.wait();
    let text = format!("{:#}", pool.run(squares(0..5)).unwrap_err());
    assert!(text.contains("; start them with `GANGLINE_NATS` set"), "{text}");
}

fn a_worker_that_waits_for_a_seat_gets_one() {
    let broker = Broker::start();
    let workers = [broker.worker(1), broker.worker(1)];
    let mut pool = broker.builder().cluster(&CHORES, broker.nats().max_workers(1)).build().unwrap();
    let seated = pool.run([Chore::Pid]).unwrap().remove(0);
    let first = workers.iter().find(|it| it.pid().to_string() == seated).unwrap();
    first.signal(Signal::TERM);
    let second = workers.iter().find(|it| it.pid() != first.pid()).unwrap();
    loop {
        if pool.run([Chore::Pid]).unwrap()[0] == second.pid().to_string() {
            break;
        }
    }
}

/// A program that a hook starts inherits the environment.
fn a_worker_starts_ordinary_programs() {
    let broker = Broker::start();
    let worker = broker.worker(1);
    let _pool = broker.builder().build().unwrap();
    let environment = std::fs::read(format!("/proc/{}/environ", worker.pid())).unwrap();
    let text = String::from_utf8_lossy(&environment);
    assert!(!text.contains("GANGLINE_NATS="), "it would make each of them a worker: {text}");
    assert!(text.contains(&format!("GANGLINE_NATS_WORKER={} ", worker.pid())));
}
