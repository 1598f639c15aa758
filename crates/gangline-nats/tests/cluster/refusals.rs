//! What is refused, and how that is said.

use std::time::Duration;

use gangline::gpu::GpuLock;
use gangline::process::Processes;
use gangline::{CfgNode, Error, OrderedRunner};
use gangline_nats::{ClusterBuilder, Nats};

use crate::broker::{Broker, ChoresBuilder, free_port};
use crate::chores::{CHORES, Chores};
use crate::suite::tests;

tests![
    no_worker_within_the_time_is_an_error,
    a_worker_of_another_version_is_named,
    a_worker_that_cannot_make_its_runner_is_named,
    a_broker_that_is_not_there_is_an_error,
    a_broker_without_jetstream_is_an_error,
    wrong_credentials_are_an_error,
    settings_that_a_cluster_lacks_are_refused,
    options_out_of_bounds_are_refused,
];

fn text_of(builder: ChoresBuilder) -> String {
    let error: Error = builder.build().expect_err("it is refused");
    format!("{error:#}")
}

fn in_cluster(nats: Nats) -> ChoresBuilder {
    OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats.wait_for(Duration::from_secs(3)))
}

fn no_worker_within_the_time_is_an_error() {
    let broker = Broker::start();
    let text = text_of(in_cluster(broker.nats()));
    assert!(text.contains("0 of at least 1 workers take part after a wait of 3 s"), "{text}");
    assert!(text.contains("GANGLINE_NATS"), "{text}");
}

fn a_worker_of_another_version_is_named() {
    let broker = Broker::start();
    let worker = || broker.ready_worker_with(1, &[("TEST_LATER_VERSION", "1")]);
    let _workers = [worker(), worker(), worker()];
    let text = text_of(in_cluster(broker.nats()));
    let named = text.matches(r#"its version is "2", the coordinator's is "1""#);
    assert_eq!(named.count(), 1, "{text}");
}

fn a_worker_that_cannot_make_its_runner_is_named() {
    let broker = Broker::start();
    let _worker = broker.ready_worker(1);
    let cfg = CfgNode::new().with("broken", true).unwrap();
    let text = text_of(in_cluster(broker.nats()).cfg(cfg));
    assert!(text.contains("the recipe is broken"), "{text}");
}

fn a_broker_that_is_not_there_is_an_error() {
    let port = free_port();
    let url = format!("nats://127.0.0.1:{}", port.number);
    let text = text_of(in_cluster(Nats::connect(&url)));
    assert!(text.starts_with(&format!("no connection to the broker at {url}")), "{text}");
}

fn a_broker_without_jetstream_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, "accounts { A { users = [{user: a, password: b}] } }\n").unwrap();
    let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
    let url = broker.url().replace("nats://", "nats://a:b@");
    let text = text_of(in_cluster(Nats::connect(url)));
    assert!(text.starts_with("the broker refuses the stream of items"), "{text}");
}

fn wrong_credentials_are_an_error() {
    let broker = Broker::with_options(&["--user", "a", "--pass", "right"]);
    let url = broker.url().replace("nats://", "nats://a:wrong@");
    let text = text_of(in_cluster(Nats::connect(url)));
    let right = broker.url().replace("nats://", "nats://a:right@");
    assert!(text_of(in_cluster(Nats::connect(right))).contains("0 of at least 1"));
    assert!(text.contains("no connection") && text.contains("authorization"), "{text}");
}

fn settings_that_a_cluster_lacks_are_refused() {
    let builder = || in_cluster(Nats::connect("nats://127.0.0.1:1"));
    let refused = [
        (builder().devices(2), "devices"),
        (builder().cpu_threads(1), "cpu_threads"),
        (builder().lock_gpus(GpuLock::or_fail()), "lock_gpus"),
        (builder().recycle_after(5), "recycle_after"),
        (builder().replace_lost(1), "replace_lost"),
        (builder().min_producers(1), "min_producers"),
    ];
    let text = text_of(builder().processes(&CHORES, Processes::new()));
    assert_eq!(text, "cluster is not available with `processes`; leave one of the two out");
    for (builder, setting) in refused {
        let text = text_of(builder);
        assert!(
            text.starts_with(&format!("{setting} is not available with `cluster`; ")),
            "{text}"
        );
    }
}

fn options_out_of_bounds_are_refused() {
    let nats = || Nats::connect("nats://127.0.0.1:1");
    let texts = [
        (nats().max_workers(0), "max_workers must be 1 to 4096, got 0"),
        (nats().max_workers(3).min_workers(4), "min_workers must be 1 to 3 (`max_workers`), got 4"),
        (nats().lease_time(Duration::from_millis(1)), "lease_time must be 0.5 s or more, got 1ms"),
        (
            nats().namespace("a.b"),
            "\"a.b\" cannot be a name; write letters, digits, `-` and `_`, such as \"gangline\"",
        ),
        (
            Nats::connect("nats://broker.example:4222"),
            "nats://broker.example:4222 is on another machine, and lacks encryption or credentials; \
             use `tls://` with a password or `credentials`, or allow it by `insecure()`, in a worker by \
             GANGLINE_NATS_INSECURE=1",
        ),
    ];
    for (nats, text) in texts {
        assert_eq!(text_of(in_cluster(nats)), text);
    }
}
