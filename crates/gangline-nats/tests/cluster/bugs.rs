//! Threads and tasks that die of a bug: a subscriber of `tracing` panics in them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, Once};
use std::time::Duration;

use gangline::OrderedRunner;
use gangline_nats::ClusterBuilder;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_coordinator_that_dies_of_a_bug_ends_its_run,
    a_coordinator_that_dies_of_a_bug_ends_the_build,
    a_client_that_dies_of_a_bug_ends_the_run,
    a_worker_whose_client_dies_of_a_bug_ends,
];

/// A file in the environment of a worker: its client dies once that is there.
const FAULT: &str = "TEST_FAULT";
const CLIENT: &str = "async_nats::connection";

/// Panics at the next event of the target for which it is armed.
struct Faulty;

static TARGET: Mutex<Option<&str>> = Mutex::new(None);

impl<S: tracing::Subscriber> Layer<S> for Faulty {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let fault = TARGET.lock().unwrap().take_if(|it| target.starts_with(*it));
        assert!(fault.is_none(), "a fault on purpose");
        let is_due = |path| PathBuf::from(path).exists();
        let is_faulty = target == CLIENT && std::env::var_os(FAULT).is_some_and(is_due);
        assert!(!is_faulty, "a fault on purpose");
    }
}

/// In a worker whose client is to die.
pub fn subscribe_if_asked() {
    if std::env::var_os(FAULT).is_some() {
        subscribe();
    }
}

fn subscribe() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Faulty);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

fn arm(target: &'static str) {
    subscribe();
    *TARGET.lock().unwrap() = Some(target);
}

/// Returns what the panic of a pool says that is closed after a task with this target has died.
fn run_with_a_fault_in(target: &'static str) -> String {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hangs");
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| pool.run([Chore::Hang(path.clone())]));
        text_in(&path);
        arm(target);
        // The coordinator says that it takes part.
        let _second = broker.worker(1);
        run.join().unwrap_err();
    });
    let closed = catch_unwind(AssertUnwindSafe(|| pool.close())).unwrap_err();
    closed.downcast_ref::<&str>().unwrap().to_string()
}

fn a_coordinator_that_dies_of_a_bug_ends_its_run() {
    assert_eq!(run_with_a_fault_in("gangline_nats"), "a fault on purpose");
}

fn a_coordinator_that_dies_of_a_bug_ends_the_build() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let nats = broker.nats().min_workers(2).wait_for(Duration::from_secs(3600));
    arm("gangline_nats");
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let built = catch_unwind(AssertUnwindSafe(|| builder.build().map(|_| ())));
    assert_eq!(built.unwrap_err().downcast_ref(), Some(&"a fault on purpose"));
}

fn a_client_that_dies_of_a_bug_ends_the_run() {
    let said = run_with_a_fault_in(CLIENT);
    assert!(said.starts_with("the client of the broker died of a bug"), "{said}");
}

fn a_worker_whose_client_dies_of_a_bug_ends() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let fault = folder.path().join("fault");
    let mut worker = broker.worker_with(1, &[(FAULT, fault.to_str().unwrap())]);
    let mut pool = broker.builder().build().unwrap();
    assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    std::fs::write(fault, "").unwrap();
    assert_eq!(worker.wait().code(), Some(1));
}
