//! Encryption, passwords and permissions, with the configuration that docs/cluster.md shows.

use std::path::PathBuf;
use std::time::Duration;

use gangline::OrderedRunner;
use gangline_nats::{ClusterBuilder, Nats};
use rustix::process::Signal;

use crate::broker::{Broker, ChoresBuilder, LEASE, Worker};
use crate::chores::{CHORES, Chore, Chores, squared, squares};
use crate::suite::tests;

tests![
    a_worker_needs_no_more_than_its_permissions,
    a_worker_may_not_act_as_a_coordinator,
    a_right_that_is_missing_is_named,
    a_wrong_password_is_an_error,
    a_certificate_that_is_not_trusted_is_an_error,
    a_file_without_certificates_is_named,
    a_list_of_workers_without_the_right_names_it,
    the_page_shows_the_configuration,
];

const CONFIG: &str = include_str!("../../../../docs/deploy/nats-server.conf");

/// A broker with the configuration of the page.
pub struct Secured {
    pub broker: Broker,
    folder: tempfile::TempDir,
}

impl Secured {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("server.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("server.key"), made.signing_key.serialize_pem()).unwrap();
        let config = CONFIG.replace("/etc/nats", folder.path().to_str().unwrap());
        // The broker of a test is told where to store by an option, which must not be set twice.
        let config = config.replace(
            "  store_dir: \"/var/lib/nats\"
",
            "",
        );
        std::fs::write(file("nats-server.conf"), config).unwrap();
        let config = file("nats-server.conf");
        let variables = [("COORDINATOR_PASSWORD", "orders"), ("WORKER_PASSWORD", "obeys")];
        let broker = Broker::with_variables(&["-c", config.to_str().unwrap()], &variables);
        Secured { broker, folder }
    }

    fn url(&self, user: &str) -> String {
        self.broker.url().replace("nats://", &format!("tls://{user}@"))
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    fn builder_for(&self, user: &str) -> ChoresBuilder {
        let nats = Nats::connect(self.url(user)).root_certificates(self.certificate());
        let nats = nats.lease_time(LEASE).wait_for(Duration::from_secs(30));
        OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats)
    }

    pub fn builder(&self) -> ChoresBuilder {
        self.builder_for("coordinator:orders")
    }

    pub fn worker(&self, user: &str) -> Worker {
        let (url, certificate) = (self.url(user), self.certificate());
        let certificate = certificate.to_str().unwrap();
        let variables =
            [("GANGLINE_NATS", &*url), ("GANGLINE_NATS_ROOT_CERTIFICATES", certificate)];
        self.broker.worker_with(1, &variables)
    }
}

/// The broker's log names each subject that it has refused.
fn a_worker_needs_no_more_than_its_permissions() {
    let secured = Secured::start();
    let folder = tempfile::tempdir().unwrap();
    // They come before the first coordinator, so they make what they read.
    let mut workers = [secured.worker("worker:obeys"), secured.worker("worker:obeys")];
    while !has_buckets(&secured.broker) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut pool = secured.builder().retries(3).build().unwrap();
    let mut items = squares(0..100);
    items.push(Chore::FailOnce(folder.path().join("failed")));
    items.push(Chore::Text("x".repeat(3 << 20)));
    let outputs = pool.run(items).unwrap();
    assert_eq!(outputs[..100], squared(0..100));
    assert_eq!(outputs[101].len(), 3 << 20);
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert!(worker.wait().success());
    }
    pool.close().unwrap();
    let log = secured.broker.log();
    assert!(!log.contains("Violation"), "{log}");
}

fn has_buckets(broker: &Broker) -> bool {
    let status = broker.status("/jsz?acc=GANGLINE&streams=true");
    let streams = status["account_details"][0]["stream_detail"].as_array();
    streams.is_some_and(|streams| streams.len() == 2)
}

fn a_worker_may_not_act_as_a_coordinator() {
    let secured = Secured::start();
    let published = [
        "gangline.items.a.any",
        "gangline.orders.a",
        "gangline.runs.a",
        "$KV.gangline-keys.a",
        "$JS.API.STREAM.CREATE.gangline-items",
        "$JS.API.STREAM.PURGE.gangline-items",
        "$JS.API.STREAM.DELETE.KV_gangline-keys",
        "$JS.API.STREAM.MSG.GET.gangline-results",
        "$O.gangline-objects.C.a.in.1-1.0",
        "$JS.API.DIRECT.GET.OBJ_gangline-objects.$O.gangline-objects.C.a.out.1-1.0",
        "$JS.API.STREAM.PURGE.OBJ_gangline-objects",
        "$JS.API.CONSUMER.CREATE.gangline-results.a.gangline.results.a",
        "_INBOX.gangline.coordinator.a",
    ];
    let read = ["gangline.results.*", "gangline.notices.*", "_INBOX.>", ">"];
    let options =
        async_nats::ConnectOptions::with_user_and_password("worker".into(), "obeys".into());
    let options = options.add_root_certificates(secured.certificate());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = options.connect(secured.url("worker:obeys")).await.unwrap();
        for subject in published {
            client.publish(subject, "".into()).await.unwrap();
        }
        for subject in read {
            // The broker ends the subscription.
            _ = client.subscribe(subject).await.unwrap();
        }
        client.flush().await.unwrap();
        // It answers in order, but the flush was only written.
        client.publish("gangline.orders.last", "".into()).await.unwrap();
        while !secured.broker.log().contains("gangline.orders.last") {
            client.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let log = secured.broker.log();
    for (kind, subjects) in [("Publish", &published[..]), ("Subscription", &read)] {
        for subject in subjects {
            // Versions name the user at other places of the line.
            let (kind, subject) =
                (format!("{kind} Violation - "), format!("Subject \"{subject}\""));
            let is_refused = |line: &str| {
                line.contains(&kind) && line.contains(&subject) && line.contains("worker")
            };
            assert!(log.lines().any(is_refused), "{kind}{subject} is missing in\n{log}");
        }
    }
}

/// The broker answers no request that a user may not make.
fn a_right_that_is_missing_is_named() {
    let secured = Secured::start();
    let error = secured.builder_for("worker:obeys").build().map(|_| ()).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.starts_with("the broker denies this user a right: "), "{text}");
    // The first of several: the broker denies the requests too.
    assert!(text.contains("Subscription to \"_INBOX.gangline.coordinator."), "{text}");
}

fn a_wrong_password_is_an_error() {
    let secured = Secured::start();
    for user in ["coordinator:guessed", "worker:orders"] {
        let error = secured.builder_for(user).build().map(|_| ()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("no connection to the broker at tls://127.0.0.1"), "{text}");
        assert!(text.contains("authorization") && !text.contains(user), "{text}");
        assert_eq!(secured.worker(user).wait().code(), Some(78));
    }
}

fn a_certificate_that_is_not_trusted_is_an_error() {
    let (secured, other) = (Secured::start(), Secured::start());
    let nats = Nats::connect(secured.url("coordinator:orders"));
    let nats = nats.root_certificates(other.certificate());
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let text = format!("{:#}", builder.build().map(|_| ()).unwrap_err());
    assert!(text.starts_with("no connection to the broker at tls://127.0.0.1"), "{text}");
    assert!(text.contains("certificate"), "{text}");
}

fn a_file_without_certificates_is_named() {
    let secured = Secured::start();
    let folder = tempfile::tempdir().unwrap();
    let (missing, other) = (folder.path().join("missing.pem"), folder.path().join("other.pem"));
    std::fs::write(&other, "not a certificate").unwrap();
    for (file, reason) in [(&missing, "No such file"), (&other, "no certificate in PEM")] {
        let file = file.to_str().unwrap();
        let nats = Nats::connect(secured.url("coordinator:orders")).root_certificates(file);
        let text = format!("{:#}", gangline_nats::workers(&nats).unwrap_err());
        assert!(text.contains(&format!("{file}: {reason}")), "{text}");
        let url = secured.url("worker:obeys");
        let variables = [("GANGLINE_NATS", &*url), ("GANGLINE_NATS_ROOT_CERTIFICATES", file)];
        assert_eq!(secured.broker.worker_with(1, &variables).wait().code(), Some(78));
    }
}

/// The broker answers no request that a user may not make.
fn a_list_of_workers_without_the_right_names_it() {
    let secured = Secured::start();
    let nats = Nats::connect(secured.url("worker:obeys")).root_certificates(secured.certificate());
    let text = format!("{:#}", gangline_nats::workers(&nats).unwrap_err());
    assert!(text.starts_with("the broker denies this user a right: "), "{text}");
}

fn the_page_shows_the_configuration() {
    let page = include_str!("../../../../docs/cluster.md");
    assert!(page.contains(&format!("```text\n{CONFIG}```\n")));
}
