//! Workers that die, stop, or are cut off.

use std::time::Duration;

use gangline::{Error, OnError, OrderedRunner};
use gangline_nats::{ClusterBuilder, ClusterError};
use rustix::process::Signal;

use crate::broker::{Broker, LEASE};
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_killed_worker_costs_its_item_one_attempt,
    without_retries_a_lost_worker_fails_the_run,
    an_item_that_loses_three_workers_fails,
    a_worker_killed_at_random_loses_nothing,
    a_stopped_worker_is_lost_and_comes_back,
    a_worker_that_was_stopped_begins_nothing_before_it_has_joined_again,
    a_worker_that_is_cut_off_is_lost_and_comes_back,
    a_worker_that_is_cut_off_at_the_end_of_a_run_does_not_delay_it_for_ever,
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
    // It shows itself within a lease, and joins again.
    run_until_both_work(&mut pool);
    assert!(LEASE < Duration::from_secs(5), "the test waits for its end");
}

/// The broker has sent it items while it was stopped.
fn a_worker_that_was_stopped_begins_nothing_before_it_has_joined_again() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(n.to_string());
    let (stopped, _other) = (broker.worker(4), broker.worker(1));
    let mut pool = broker.builder().cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    run_until_both_work(&mut pool);
    stopped.signal(Signal::STOP);
    pool.run((0..12).map(|n| Chore::Append(path(n)))).unwrap();
    stopped.signal(Signal::CONT);
    run_until_both_work(&mut pool);
    for n in 0..12 {
        let lines = text_in(&path(n));
        assert_eq!(lines.lines().count(), 1, "item {n} was done twice: {lines}");
    }
}

fn a_worker_that_is_cut_off_is_lost_and_comes_back() {
    let broker = Broker::start();
    let proxy = broker.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let url = proxy.url();
    let first = broker.worker_with(1, &[("GANGLINE_NATS", url.as_str())]);
    let builder = broker.builder().retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.build().unwrap();
    let mut second = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&file("begun"));
            proxy.cut();
            second = Some(broker.worker(1));
        });
        let outputs = pool.run([Chore::AwaitOnce(file("begun"), file("go"))]).unwrap();
        assert_ne!(outputs[0], first.pid().to_string());
    });
    std::fs::write(file("go"), "").unwrap();
    proxy.mend();
    run_until_both_work(&mut pool);
    assert!(second.is_some());
}

/// What the coordinator says while the connection is cut is lost.
fn a_worker_that_is_cut_off_at_the_end_of_a_run_does_not_delay_it_for_ever() {
    let broker = Broker::start();
    let proxy = broker.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let url = proxy.url();
    let _worker = broker.worker_with(1, &[("GANGLINE_NATS", url.as_str())]);
    let token = gangline::CancelToken::new();
    let mut pool = broker.builder().cancel_token(token.clone()).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&file("begun"));
            proxy.cut();
            token.cancel();
            // The orders are sent meanwhile. It is connected again before its lease ends.
            std::thread::sleep(LEASE / 5);
            proxy.mend();
        });
        assert!(pool.run([Chore::Hang(file("begun"))]).unwrap_err().is_cancelled());
    });
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
}

/// Both of two workers are needed for two items. But an item that one has begun before it has joined does not count,
/// and may be done again by the other.
fn run_until_both_work(pool: &mut OrderedRunner<Chores>) {
    loop {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let items = [Chore::Await(file("a"), file("b")), Chore::Await(file("b"), file("a"))];
        let outputs = pool.run(items).unwrap();
        if outputs[0] != outputs[1] {
            return;
        }
    }
}
