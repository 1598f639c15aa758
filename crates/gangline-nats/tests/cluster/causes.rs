//! Which cause an error names if the broker is at fault.

use std::path::PathBuf;
use std::time::Duration;

use gangline::OrderedRunner;
use gangline::event::Event;
use gangline_nats::{ClusterBuilder, Nats};
use rustix::process::Signal;

use crate::broker::{Broker, ChoresBuilder, LEASE, Worker};
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    a_broker_that_is_stopped_while_workers_are_awaited_is_named,
    a_broker_that_is_stopped_during_a_run_costs_no_worker,
    a_bucket_that_is_deleted_is_made_again,
    a_stream_that_is_deleted_is_made_again,
    consumers_that_are_deleted_are_made_again,
    a_stream_that_is_deleted_before_a_worker_joins_is_made_again,
    a_password_that_is_changed_is_named,
    a_right_that_is_taken_away_is_named,
    limits_of_an_account_are_named,
];

fn in_cluster(nats: Nats) -> ChoresBuilder {
    OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats)
}

fn short(nats: Nats) -> Nats {
    // Long enough for a busy machine to start the broker again.
    nats.lease_time(LEASE).wait_for(Duration::from_secs(8))
}

fn error_of(builder: ChoresBuilder) -> String {
    format!("{:#}", builder.build().map(|_| ()).unwrap_err())
}

fn a_broker_that_is_stopped_while_workers_are_awaited_is_named() {
    let broker = Broker::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            broker.await_messages("KV_gangline-keys", 1);
            broker.signal(Signal::STOP);
        });
        let text = error_of(in_cluster(short(broker.nats())));
        // It may have been stopped before it had answered the request for the key.
        let silent = format!("the broker at {} is connected, and does not answer", broker.url());
        let no_answer = "the broker gave no answer when it was asked for";
        assert!(text == silent || text.starts_with(no_answer), "{text}");
    });
}

fn a_broker_that_is_stopped_during_a_run_costs_no_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            broker.signal(Signal::STOP);
            std::thread::sleep(LEASE * 2);
            broker.signal(Signal::CONT);
            std::fs::write(path("go"), "").unwrap();
        });
        // There is but one attempt.
        pool.run([Chore::Await(path("begun"), path("go"))]).unwrap();
    });
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
}

/// Makes requests as another client of the broker.
fn request(broker: &Broker, subject: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(broker.url()).await.unwrap();
        let answer = client.request(subject.to_owned(), "".into()).await.unwrap();
        let text = String::from_utf8_lossy(&answer.payload).into_owned();
        assert!(text.contains("\"success\":true"), "{text}");
    });
}

/// Has an item in a hook and others on their way while something happens at the broker. All have their outputs.
fn while_items_are_out(happens: impl Fn(&Broker) + Sync) {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let _worker = broker.worker(1);
    let mut pool = broker.builder().retries(3).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            happens(&broker);
            std::fs::write(path("go"), "").unwrap();
        });
        let first = [Chore::Await(path("begun"), path("go"))];
        let outputs = pool.run(first.into_iter().chain(squares(0..50))).unwrap();
        assert_eq!(outputs[1..], squared(0..50));
    });
}

fn a_stream_that_is_deleted_is_made_again() {
    for stream in ["gangline-items", "gangline-results"] {
        while_items_are_out(|broker| {
            request(broker, &format!("$JS.API.STREAM.DELETE.{stream}"));
        });
    }
}

fn consumers_that_are_deleted_are_made_again() {
    for stream in ["gangline-items", "gangline-results"] {
        while_items_are_out(|broker| {
            for consumer in broker.consumers(stream) {
                request(broker, &format!("$JS.API.CONSUMER.DELETE.{stream}.{consumer}"));
            }
        });
    }
}

fn a_bucket_that_is_deleted_is_made_again() {
    for bucket in ["KV_gangline-keys", "KV_gangline-workers"] {
        let broker = Broker::start();
        let worker = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                broker.await_messages("KV_gangline-keys", 1);
                request(&broker, &format!("$JS.API.STREAM.DELETE.{bucket}"));
                broker.worker(1)
            });
            let mut pool = broker.builder().build().unwrap();
            assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
            let worker = worker.join().unwrap();
            request(&broker, &format!("$JS.API.STREAM.DELETE.{bucket}"));
            assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
            worker
        });
        drop(worker);
    }
}

fn a_stream_that_is_deleted_before_a_worker_joins_is_made_again() {
    let broker = Broker::start();
    let worker = broker.ready_worker(1);
    // Else it could join before.
    worker.signal(Signal::STOP);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            broker.await_messages("KV_gangline-keys", 1);
            request(&broker, "$JS.API.STREAM.DELETE.gangline-items");
            worker.signal(Signal::CONT);
        });
        let mut pool = broker.builder().build().unwrap();
        assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    });
}

/// A broker with a configuration of its own.
struct Configured {
    broker: Broker,
    config: PathBuf,
    _folder: tempfile::TempDir,
}

impl Configured {
    fn start(users: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("nats.conf");
        std::fs::write(&config, config_of(users)).unwrap();
        let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
        Configured { broker, config, _folder: folder }
    }

    /// Starts it again for other users. A broker that reads them by SIGHUP may lose its JetStream, before 2.10.
    fn restart(&mut self, users: &str) {
        self.broker.kill();
        std::fs::write(&self.config, config_of(users)).unwrap();
        self.broker.restart();
    }

    fn url(&self, user: &str) -> String {
        self.broker.url().replace("nats://", &format!("nats://{user}@"))
    }

    fn worker(&self, user: &str) -> Worker {
        self.broker.ready_worker_with(1, &[("GANGLINE_NATS", &self.url(user))])
    }
}

fn config_of(users: &str) -> String {
    format!("authorization {{ users: [{users}] }}\n")
}

fn a_password_that_is_changed_is_named() {
    let users =
        |c: &str, w: &str| format!("{{user: c, password: {c}}}, {{user: w, password: {w}}}");
    // The password of the coordinator is changed, that of the worker, or both.
    for (c, w) in [("new", "old"), ("old", "new"), ("new", "new")] {
        let mut configured = Configured::start(&users("old", "old"));
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let mut worker = configured.worker("w:old");
        let nats = Nats::connect(configured.url("c:old"));
        let url = configured.broker.url();
        let (begun, begins) = crossbeam_channel::unbounded();
        let builder = in_cluster(short(nats)).observer(move |_: Duration, event: &Event| {
            if let Event::ItemStarted { .. } = event {
                _ = begun.send(());
            }
        });
        let mut pool = builder.build().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                text_in(&path("begun"));
                // Until the coordinator knows that, the item is one that waits for a worker.
                begins.recv().unwrap();
                configured.restart(&users(c, w));
            });
            let text = format!("{:#}", pool.run([Chore::Hang(path("begun"))]).unwrap_err());
            if c == "new" {
                let expected =
                    format!("no connection to the broker at {url}: authorization violation");
                assert_eq!(text, expected);
            } else {
                assert!(text.contains("is gone: its lease has ended"), "{text}");
            }
        });
        if w == "new" {
            assert_eq!(worker.wait().code(), Some(78));
        }
    }
}

fn a_right_that_is_taken_away_is_named() {
    let users = |c: &str, w: &str| {
        let allow = |denied: &str| match denied {
            "" => String::new(),
            _ => format!(", permissions: {{publish: {{deny: [\"{denied}\"]}}}}"),
        };
        let user = |name: &str, denied| format!("{{user: {name}, password: p{}}}", allow(denied));
        format!("{}, {}", user("c", c), user("w", w))
    };
    let rights = [
        ("gangline.items.>", ""),
        ("$JS.API.CONSUMER.MSG.NEXT.gangline-results.>", ""),
        ("", "gangline.results.>"),
        ("", "$JS.API.CONSUMER.MSG.NEXT.>"),
    ];
    for (c, w) in rights {
        let mut configured = Configured::start(&users("", ""));
        let mut worker = configured.worker("w:p");
        let mut pool = in_cluster(short(Nats::connect(configured.url("c:p")))).build().unwrap();
        let mut is_reloaded = false;
        let items = (0..1_000_000).map(|n| {
            if !std::mem::replace(&mut is_reloaded, n > 100) && n > 100 {
                configured.restart(&users(c, w));
            }
            Chore::Sleep(1)
        });
        let text = format!("{:#}", pool.run(items).unwrap_err());
        if w.is_empty() {
            assert!(text.starts_with("the broker denies this user a right: "), "{c} {w} {text}");
        } else {
            assert_eq!(worker.wait().code(), Some(78), "{text}");
        }
    }
}

fn limits_of_an_account_are_named() {
    let limits = [
        (
            "max_file: 300K",
            "the stream of results, which reserves 256 MiB: ",
            "insufficient storage",
        ),
        ("max_streams: 2", "the stream of runs: ", "maximum number of streams"),
        ("max_streams: 4", "a bucket, one of six streams: ", "maximum number of streams"),
    ];
    for (limit, request, said) in limits {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("nats.conf");
        let account = format!("jetstream: {{{limit}}}, users: [{{user: c, password: p}}]");
        std::fs::write(&config, format!("accounts {{ A {{ {account} }} }}\n")).unwrap();
        let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
        let url = broker.url().replace("nats://", "nats://c:p@");
        let text = error_of(in_cluster(short(Nats::connect(url))));
        assert!(text.starts_with(&format!("the broker refuses {request}")), "{limit}: {text}");
        assert!(text.contains(said), "{limit}: {text}");
    }
    // The limit is one consumer, but each worker needs one beside the consumer that all share.
    let users =
        "accounts { A { jetstream: {max_consumers: 1}, users: [{user: c, password: p}] } }\n";
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf");
    std::fs::write(&config, users).unwrap();
    let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
    let url = broker.url().replace("nats://", "nats://c:p@");
    let _worker = broker.ready_worker_with(1, &[("GANGLINE_NATS", &url)]);
    let text = error_of(in_cluster(short(Nats::connect(url))));
    assert!(text.contains("the broker refuses its consumer: "), "{text}");
    assert!(text.contains("maximum consumers limit"), "{text}");
}
