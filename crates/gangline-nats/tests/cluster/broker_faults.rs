//! A broker that goes away.

use std::time::Duration;

use gangline::error::WorkerError;
use gangline::{Error, OrderedRunner};
use gangline_nats::{ClusterBuilder, ClusterError, Nats};

use crate::broker::{Broker, LEASE};
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_broker_that_is_killed_and_restarted_loses_nothing,
    a_broker_that_has_lost_what_it_stored_loses_nothing,
    a_broker_that_has_forgotten_where_its_streams_end_loses_nothing,
    a_broker_that_is_gone_for_good_ends_the_run,
    a_run_is_cancelled_while_the_broker_is_gone,
    a_mute_broker_is_asked_once_to_remove_the_items_of_a_cancelled_run,
];

fn a_broker_that_is_killed_and_restarted_loses_nothing() {
    let mut broker = Broker::start();
    let _workers = [broker.worker(2), broker.worker(2)];
    let mut pool = broker.builder().retries(5).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(300));
                broker.kill();
                std::thread::sleep(Duration::from_millis(300));
                broker.restart();
            }
        });
        let items = (0..600).map(|x| if x % 4 == 0 { Chore::Sleep(8) } else { Chore::Square(x) });
        let outputs = pool.run(items).unwrap();
        for (x, output) in (0..600_u64).zip(&outputs).filter(|(x, _)| x % 4 != 0) {
            assert_eq!(*output, (x * x).to_string());
        }
        assert_eq!(outputs.len(), 600);
    });
    assert_eq!((pool.account().ok, pool.account().failed), (600, 0));
    assert_eq!(pool.run(squares(0..50)).unwrap(), squared(0..50));
}

/// Another broker at the same address.
fn a_broker_that_has_lost_what_it_stored_loses_nothing() {
    let mut broker = Broker::start();
    let _workers = [broker.worker(1)];
    let mut pool = broker.builder().retries(5).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            broker.kill();
            broker.forget();
            broker.restart();
        });
        let items = (0..200).map(|x| if x % 2 == 0 { Chore::Sleep(8) } else { Chore::Square(x) });
        assert_eq!(pool.run(items).unwrap().len(), 200);
    });
    assert_eq!((pool.account().ok, pool.account().failed), (200, 0));
}

/// Its consumers are ahead of the streams then. A version before 2.10 may do so when it is killed.
fn a_broker_that_has_forgotten_where_its_streams_end_loses_nothing() {
    for stream in ["gangline-items", "gangline-results"] {
        let mut broker = Broker::start();
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("messages");
        let _worker = broker.worker(2);
        let mut pool = broker.builder().build().unwrap();
        assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
        broker.kill();
        broker.copy_messages(stream, &store);
        broker.restart();
        assert_eq!(pool.run(squares(0..2000)).unwrap(), squared(0..2000));
        broker.kill();
        broker.set_messages(stream, &store);
        broker.restart();
        assert_eq!(pool.run(squares(0..50)).unwrap(), squared(0..50));
    }
}

fn a_run_is_cancelled_while_the_broker_is_gone() {
    let mut broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let _workers = [broker.worker(1), broker.worker(1)];
    // So long that the run ends by the cancel alone.
    let nats = broker.nats().wait_for(Duration::from_secs(3600)).min_workers(2);
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    let token = pool.cancel_token();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            broker.kill();
            token.cancel();
        });
        let error = pool.run([Chore::Hang(path("begun"))]).unwrap_err();
        assert!(error.is_cancelled(), "{error:#}");
    });
}

/// Each request to it takes as long as the client waits for an answer.
fn a_mute_broker_is_asked_once_to_remove_the_items_of_a_cancelled_run() {
    let broker = Broker::tracing();
    let proxy = broker.proxy();
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(n.to_string());
    let _workers: Vec<_> = (0..4).map(|_| broker.worker(1)).collect();
    let nats = Nats::connect(proxy.url()).lease_time(LEASE).min_workers(4);
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    let before = broker.purges_of_runs();
    assert!(before > 0, "a coordinator begins with one");
    let token = pool.cancel_token();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..4).for_each(|n| _ = text_in(&path(n)));
            proxy.mute();
            token.cancel();
        });
        let error = pool.run((0..4).map(|n| Chore::Hang(path(n)))).unwrap_err();
        assert!(error.is_cancelled(), "{error:#}");
    });
    assert_eq!(broker.purges_of_runs() - before, 1, "once for all workers, not once for each");
    proxy.mend();
}

fn a_broker_that_is_gone_for_good_ends_the_run() {
    let mut broker = Broker::start();
    let _worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(2));
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            broker.kill();
        });
        let error = pool.run((0..1_000_000).map(Chore::Square)).unwrap_err();
        let Error::Worker { source, .. } = &error else { panic!("{error:#}") };
        let WorkerError::Backend { source, .. } = &**source else { panic!("{error:#}") };
        assert!(
            matches!(source.downcast_ref(), Some(ClusterError::BrokerGone { .. })),
            "{error:#}"
        );
    });
    pool.close().unwrap();
}
