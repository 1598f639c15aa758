//! Confirmations of the broker that are lost: what is published again is stored once.

use std::time::Duration;

use gangline::OrderedRunner;
use gangline_nats::{ClusterBuilder, Nats};

use crate::broker::{Broker, ChoresBuilder, LEASE};
use crate::chores::{CHORES, Chore, Chores, text_in};
use crate::suite::tests;

tests![
    an_item_whose_confirmation_is_lost_is_stored_once,
    a_result_whose_confirmation_is_lost_is_stored_once,
];

/// Longer than the connection is mute. What was delivered meanwhile comes again after it.
fn builder(url: String) -> ChoresBuilder {
    let nats = Nats::connect(url).lease_time(LEASE * 2);
    let nats = nats.wait_for(Duration::from_secs(30));
    OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats)
}

fn an_item_whose_confirmation_is_lost_is_stored_once() {
    let broker = Broker::tracing();
    let proxy = broker.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let worker = broker.worker(1);
    let mut pool = builder(proxy.url()).build().unwrap();
    proxy.mute();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&file("begun"));
            broker.await_publications("gangline.items", 2);
            proxy.cut();
            proxy.mend();
            broker.await_publications("gangline.items", 4);
            std::fs::write(file("go"), "").unwrap();
        });
        let items = [Chore::Await(file("begun"), file("go")), Chore::Square(3)];
        assert_eq!(pool.run(items).unwrap(), [worker.pid().to_string(), "9".to_owned()]);
    });
    assert_eq!(broker.stored("gangline-items"), 2);
}

fn a_result_whose_confirmation_is_lost_is_stored_once() {
    let broker = Broker::tracing();
    let proxy = broker.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let url = proxy.url();
    let worker = broker.worker_with(1, &[("GANGLINE_NATS", url.as_str())]);
    let mut pool = builder(broker.url()).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&file("begun"));
            proxy.mute();
            std::fs::write(file("go"), "").unwrap();
            broker.await_publications("gangline.results", 1);
            proxy.cut();
            proxy.mend();
            broker.await_publications("gangline.results", 2);
        });
        let items = [Chore::Await(file("begun"), file("go")), Chore::Square(3)];
        assert_eq!(pool.run(items).unwrap(), [worker.pid().to_string(), "9".to_owned()]);
    });
    assert_eq!(broker.stored("gangline-results"), 2);
}
