//! Coordinators that die, and two of one run.

use std::path::PathBuf;
use std::process::Command;

use gangline::error::WorkerError;
use gangline::{Error, OrderedRunner};
use gangline_nats::{ClusterBuilder, ClusterError, Nats};

use crate::broker::{Broker, LEASE};
use crate::chores::{CHORES, Chore, Chores, given_up, squared, squares, text_in};
use crate::suite::tests;

tests![
    workers_drop_the_run_of_a_killed_coordinator,
    of_two_coordinators_the_later_has_the_run,
    a_later_coordinator_keeps_what_an_earlier_one_did_not_know_of,
    a_later_coordinator_gets_all_results_and_retries,
    a_coordinator_finds_nothing_of_the_one_before,
];

const URL: &str = "TEST_COORDINATOR";
const FILE: &str = "TEST_FILE";

/// In a process that is to be killed: works on an item that hangs.
pub fn coordinate_if_asked() {
    let Ok(url) = std::env::var(URL) else { return };
    let path = PathBuf::from(std::env::var_os(FILE).unwrap());
    let nats = Nats::connect(url).lease_time(LEASE).run_name("same");
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    let mut items = vec![Chore::Hang(path)];
    items.extend(squares(0..30));
    _ = pool.run(items);
    std::process::exit(0)
}

fn start_coordinator(broker: &Broker, path: &std::path::Path) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(URL, broker.url()).env(FILE, path);
    let child = command.spawn().unwrap();
    text_in(path);
    child
}

fn workers_drop_the_run_of_a_killed_coordinator() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hangs");
    let worker = broker.worker(1);
    let mut coordinator = start_coordinator(&broker, &path);
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    assert_eq!(text_in(&given_up(&path)), worker.pid().to_string());
    // It serves the next.
    let mut pool = broker.builder().build().unwrap();
    assert_eq!(pool.run(squares(0..10)).unwrap(), squared(0..10));
}

/// All have the same run name.
fn coordinator_of_one(broker: &Broker) -> OrderedRunner<Chores> {
    let nats = broker.nats().run_name("one");
    OrderedRunner::builder(Chores::new()).retries(1).cluster(&CHORES, nats).build().unwrap()
}

fn of_two_coordinators_the_later_has_the_run() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut first = coordinator_of_one(&broker);
    assert_eq!(first.run(squares(0..5)).unwrap(), squared(0..5));
    let mut second = coordinator_of_one(&broker);
    let error = first.run((0..1_000_000).map(Chore::Square)).unwrap_err();
    let Error::Worker { source, .. } = &error else { panic!("{error:#}") };
    let WorkerError::Backend { source, .. } = &**source else { panic!("{error:#}") };
    assert!(matches!(source.downcast_ref(), Some(ClusterError::Superseded { .. })), "{error:#}");
    first.close().unwrap();
    assert_eq!(second.run(squares(0..5)).unwrap(), squared(0..5), "the first has not removed it");
}

fn a_later_coordinator_keeps_what_an_earlier_one_did_not_know_of() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut first = coordinator_of_one(&broker);
    let mut second = coordinator_of_one(&broker);
    // Before it learns that another has the run.
    first.close().unwrap();
    assert_eq!(second.run(squares(0..50)).unwrap(), squared(0..50));
}

fn a_later_coordinator_gets_all_results_and_retries() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let _worker = broker.worker(2);
    let mut first = coordinator_of_one(&broker);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| first.run([Chore::Await(path("begun"), path("go"))]));
        text_in(&path("begun"));
        let mut second = coordinator_of_one(&broker);
        std::fs::write(path("go"), "").unwrap();
        run.join().unwrap().unwrap_err();
        // The first is still open.
        for turn in 0..5 {
            let mut items = vec![Chore::FailOnce(path(&turn.to_string()))];
            items.extend(std::iter::repeat_n(Chore::Append(path("worked")), 20));
            second.run(items).unwrap();
        }
        let worked = std::fs::read_to_string(path("worked")).unwrap();
        assert_eq!(worked.lines().count(), 100, "each item is worked on once");
    });
}

fn a_coordinator_finds_nothing_of_the_one_before() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hangs");
    let _worker = broker.worker(1);
    let mut coordinator = start_coordinator(&broker, &path);
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    assert!(broker.messages("gangline-items") > 0);
    let nats = broker.nats().run_name("same");
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(squares(0..10)).unwrap(), squared(0..10));
    assert_eq!(broker.messages("gangline-items"), 0);
}
