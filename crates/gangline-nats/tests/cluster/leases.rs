//! What belongs to a worker, for how long, and where it goes then.

use std::time::Duration;

use gangline::{Batch, OrderedRunner};
use gangline_nats::ClusterBuilder;
use rustix::process::Signal;

use crate::broker::{Broker, LEASE};
use crate::chores::{CHORES, Chore, Chores, text_in};
use crate::suite::tests;

tests![
    items_that_wait_for_longer_than_a_lease_stay_where_they_are,
    a_broker_that_is_gone_for_longer_than_a_lease_costs_no_attempt,
    an_item_for_a_worker_that_is_lost_goes_to_another,
    an_item_on_its_way_to_a_worker_that_leaves_goes_to_another,
    what_is_left_at_the_broker_has_an_age_limit,
];

/// The worker says that it has them, although no hook has begun them.
fn items_that_wait_for_longer_than_a_lease_stay_where_they_are() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(n.to_string());
    let _workers = [broker.worker(1), broker.worker(1)];
    let rule = Batch::up_to(4).within(LEASE * 5 / 2);
    let builder = broker.builder().batch(rule);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    pool.run((0..2).map(|n| Chore::Append(path(n)))).unwrap();
    for n in 0..2 {
        assert_eq!(text_in(&path(n)).lines().count(), 1, "item {n} was done twice");
    }
    let workers = pool.report().producers.into_iter().filter_map(|producer| producer.worker);
    assert_eq!(workers.map(|worker| worker.returned).sum::<u64>(), 0, "the broker sent them again");
}

/// Neither side takes the other's silence for its end while the broker is gone, nor right after its return.
fn a_broker_that_is_gone_for_longer_than_a_lease_costs_no_attempt() {
    let mut broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&file("begun"));
            broker.kill();
            std::thread::sleep(LEASE * 2);
            broker.restart();
            std::thread::sleep(LEASE / 2);
            std::fs::write(file("go"), "").unwrap();
        });
        let outputs = pool.run([Chore::Await(file("begun"), file("go"))]).unwrap();
        assert_eq!(outputs[0], worker.pid().to_string());
    });
}

/// It was to be tried there, and was not begun.
fn an_item_for_a_worker_that_is_lost_goes_to_another() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let workers = [broker.worker(1), broker.worker(1)];
    let nats = broker.nats().min_workers(2);
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).retries(1);
    let mut pool = builder.backoff(Duration::ZERO, Duration::ZERO).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let busy = text_in(&file("busy"));
            text_in(&file("failed"));
            // The item that has failed waits for this one.
            while broker.messages("gangline-items") < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let busy = workers.iter().find(|it| it.pid().to_string() == busy).unwrap();
            busy.signal(Signal::KILL);
        });
        let items = [
            Chore::AwaitOnce(file("busy"), file("never")),
            Chore::FailAfter(file("busy"), file("failed")),
        ];
        assert_eq!(pool.run(items).unwrap().len(), 2);
    });
}

/// Its lease does not have to end for that.
fn an_item_on_its_way_to_a_worker_that_leaves_goes_to_another() {
    let broker = Broker::tracing();
    let proxy = broker.proxy();
    let url = proxy.url();
    let mut first = broker.worker_with(1, &[("GANGLINE_NATS", url.as_str())]);
    let nats = broker.nats().lease_time(Duration::from_secs(3600));
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    // It has a seat, and asks for items.
    pool.run([Chore::Pid]).unwrap();
    proxy.hold();
    std::thread::scope(|scope| {
        let (broker, proxy) = (&broker, &proxy);
        let second = scope.spawn(move || {
            while broker.unacknowledged("gangline-items") == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let notices = broker.publications("gangline.notices");
            first.signal(Signal::TERM);
            // It says that it leaves.
            broker.await_publications("gangline.notices", notices + 1);
            let second = broker.worker(1);
            proxy.mend();
            assert!(first.wait().success());
            second
        });
        let outputs = pool.run([Chore::Pid]).unwrap();
        assert_eq!(outputs, [second.join().unwrap().pid().to_string()]);
    });
}

/// Of a coordinator that was killed.
fn what_is_left_at_the_broker_has_an_age_limit() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let status = broker.status("/jsz?consumers=true&config=true");
    let streams = status["account_details"][0]["stream_detail"].as_array().unwrap();
    assert_eq!(streams.len(), 6, "{status}");
    let day = Duration::from_secs(24 * 60 * 60).as_nanos() as u64;
    for stream in streams {
        let name = &stream["name"];
        let age = stream["config"]["max_age"].as_u64().unwrap();
        assert!((1..=day).contains(&age), "{name}: {age}");
        let consumers = stream["consumer_detail"].as_array().map_or(&[][..], Vec::as_slice);
        for consumer in consumers.iter().filter(|it| it["name"] != "waiting") {
            let config = &consumer["config"];
            if config["ack_policy"] == "explicit" {
                let threshold = config["inactive_threshold"].as_u64().unwrap();
                assert!((1..=day).contains(&threshold), "{name}: {consumer}");
                assert_eq!(config["max_ack_pending"], -1, "it would hold up the head");
                assert_eq!(config["max_deliver"], -1, "an item would disappear");
            }
        }
    }
    pool.close().unwrap();
}
