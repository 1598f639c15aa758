//! Workers that die, stop, or are cut off.

use std::time::Duration;

use gangline::error::ClusterError;
use gangline::{Error, OnError};
use rustix::process::Signal;

use crate::broker::{Broker, LEASE};
use crate::chores::{CHORES, Chore, squared, squares, tests, text_in};

tests![
    a_killed_worker_costs_its_item_one_attempt,
    without_retries_a_lost_worker_fails_the_run,
    an_item_that_loses_three_workers_fails,
    a_worker_killed_at_random_loses_nothing,
    a_stopped_worker_is_lost_and_comes_back,
];

fn is_lost(error: &Error) -> bool {
    let Error::HookFailed { source, .. } = error else { return false };
    matches!(source.downcast_ref(), Some(ClusterError::WorkerLost { .. }))
}

fn a_killed_worker_costs_its_item_one_attempt() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let mut items = squares(0..40);
    items[5] = Chore::KillOnce(path.clone());
    let outputs = pool.run(items).unwrap();
    assert_ne!(outputs[5], text_in(&path));
    assert_eq!((pool.account().ok, pool.account().failed), (40, 0));
    assert_eq!(outputs[6..], squared(6..40));
}

fn without_retries_a_lost_worker_fails_the_run() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(1)];
    let mut pool = broker.builder().build().unwrap();
    let mut items = squares(0..10);
    items[3] = Chore::Kill;
    let error = pool.run(items).unwrap_err();
    assert!(is_lost(&error) && error.item() == Some(3), "{error:#}");
}

fn an_item_that_loses_three_workers_fails() {
    let broker = Broker::start();
    let _workers: Vec<_> = (0..4).map(|_| broker.worker(1)).collect();
    let builder = broker.builder().retries(100).backoff(Duration::ZERO, Duration::ZERO);
    let builder = builder.on_error(OnError::Skip);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(4)).build().unwrap();
    assert_eq!(pool.run([Chore::Kill, Chore::Square(3)]).unwrap(), ["9"]);
    let failure = &pool.failures()[0];
    assert!(is_lost(failure), "{failure:#}");
    assert_eq!(failure.attempt(), Some(3));
}

fn a_worker_killed_at_random_loses_nothing() {
    let broker = Broker::start();
    let mut workers = vec![broker.worker(2), broker.worker(2)];
    let builder = broker.builder().retries(10).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.build().unwrap();
    let items = (0..1500).map(|x| if x % 5 == 0 { Chore::Sleep(10) } else { Chore::Square(x) });
    let (ended, ends) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (workers, broker) = (&mut workers, &broker);
        scope.spawn(move || {
            for n in 0..4 {
                if ends.recv_timeout(Duration::from_millis(300 + 70 * n)).is_ok() {
                    return;
                }
                workers.push(broker.worker(2));
                drop(workers.remove(0));
            }
        });
        let outputs = pool.run(items).unwrap();
        _ = ended.send(());
        assert_eq!(outputs.len(), 1500);
        for (x, output) in (0..1500_u64).zip(outputs).filter(|(x, _)| x % 5 != 0) {
            assert_eq!(output, (x * x).to_string());
        }
    });
    assert_eq!((pool.account().ok, pool.account().failed), (1500, 0));
}

fn a_stopped_worker_is_lost_and_comes_back() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stopped");
    let workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let outputs = pool.run([Chore::StopOnce(path.clone()), Chore::Square(3)]).unwrap();
    let stopped = text_in(&path);
    assert_ne!(outputs[0], stopped);
    let stopped = workers.iter().find(|it| it.pid().to_string() == stopped).unwrap();
    stopped.signal(Signal::CONT);
    // It shows itself within a lease, and joins again. Both are needed, but an item that it has begun before it has
    // joined does not count, and may be done again by the other.
    loop {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let items = [Chore::Await(file("a"), file("b")), Chore::Await(file("b"), file("a"))];
        let outputs = pool.run(items).unwrap();
        if outputs[0] != outputs[1] {
            break;
        }
    }
    assert!(LEASE < Duration::from_secs(5), "the test waits for its end");
}
