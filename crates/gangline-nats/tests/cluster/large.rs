//! Items and results that are larger than a message may be: they go through the object store.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use gangline::error::WorkerError;
use gangline::{CancelToken, CfgNode, Error, OnError, OrderedRunner};
use gangline_nats::{ClusterBuilder, ClusterError};
use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, Chores, squared, squares, text_in};
use crate::suite::tests;

tests![
    an_output_above_the_limit_fails_its_item,
    a_broker_with_small_messages_works_or_is_refused,
    an_error_that_is_too_large_for_a_message_is_shortened,
    an_item_larger_than_a_message_goes_in_and_out,
    batches_and_child_processes_get_large_items,
    a_large_item_of_a_killed_worker_goes_to_another,
    a_worker_that_is_terminated_sends_its_large_output,
    a_large_item_that_is_copied_is_read_twice,
    nothing_is_left_of_large_items_that_nothing_waits_for,
    a_coordinator_removes_the_objects_of_the_one_before,
    a_broker_that_is_restarted_keeps_large_items,
    what_the_object_store_refuses_is_too_large_before_a_hook,
    a_full_broker_holds_the_run_up_and_goes_on,
    an_item_that_a_full_broker_never_takes_ends_the_run,
    a_result_that_a_full_broker_never_takes_ends_the_run,
];

/// Three times what the broker takes in one message.
const SIZE: usize = 3 << 20;
const OBJECTS: &str = "OBJ_gangline-objects";

fn text(n: usize) -> String {
    let start = format!("{n} ");
    let rest = (start.len()..SIZE).map(|i| char::from(b'a' + (i * 31 % 26) as u8));
    start.clone() + &rest.collect::<String>()
}

/// Makes a stream before a coordinator does, so that it is bounded.
fn bounded(broker: &Broker, name: &str, subject: &str, max_bytes: i64) {
    let config = Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        max_bytes,
        discard: DiscardPolicy::New,
        allow_direct: true,
        retention: match name {
            OBJECTS => RetentionPolicy::Limits,
            _ => RetentionPolicy::WorkQueue,
        },
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(broker.url()).await.unwrap();
        async_nats::jetstream::new(client).create_stream(config).await.unwrap();
    });
}

fn refusal(error: &Error) -> String {
    let Error::Worker { source, .. } = error else { panic!("{error:#}") };
    let WorkerError::Backend { source, .. } = &**source else { panic!("{error:#}") };
    assert!(matches!(source.downcast_ref(), Some(ClusterError::Refused { .. })), "{error:#}");
    format!("{error:#}")
}

fn an_item_larger_than_a_message_goes_in_and_out() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(2)];
    let mut pool = broker.builder().build().unwrap();
    for _ in 0..2 {
        let mut items: Vec<_> = (0..8).map(|n| Chore::Text(text(n))).collect();
        items.extend(squares(0..20));
        let outputs = pool.run(items).unwrap();
        for (n, output) in outputs[..8].iter().enumerate() {
            assert!(*output == text(n), "output {n} has {} bytes", output.len());
        }
        assert_eq!(outputs[8..], squared(0..20));
        // They go with their items, and do not wait for the end of the pool.
        while broker.messages(OBJECTS) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    pool.close().unwrap();
    assert_eq!(broker.messages(OBJECTS), 0);
}

fn batches_and_child_processes_get_large_items() {
    let broker = Broker::start();
    let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", "1")]);
    let rule = gangline::Batch::up_to(2).within(Duration::from_secs(10));
    let mut pool = broker.builder().batch(rule).build().unwrap();
    let outputs = pool.run((0..4).map(|n| Chore::Text(text(n)))).unwrap();
    assert!(outputs == (0..4).map(text).collect::<Vec<_>>());
}

fn a_large_item_of_a_killed_worker_goes_to_another() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let mut items: Vec<_> = (0..6).map(|n| Chore::Text(text(n))).collect();
    items[2] = Chore::KillOnceWith(path.clone(), text(2));
    let outputs = pool.run(items).unwrap();
    assert!(path.exists());
    assert!(outputs == (0..6).map(text).collect::<Vec<_>>());
    pool.close().unwrap();
    assert_eq!(broker.messages(OBJECTS), 0);
}

/// The worker has left before the coordinator has read the output.
fn a_worker_that_is_terminated_sends_its_large_output() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            worker.signal(Signal::TERM);
            std::fs::write(path("go"), "").unwrap();
            assert!(worker.wait().success());
        });
        let outputs = pool.run([Chore::LargeAfter(path("begun"), path("go"), 8 * SIZE)]);
        assert_eq!(outputs.unwrap()[0].len(), 8 * SIZE);
    });
}

fn a_large_item_that_is_copied_is_read_twice() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow");
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().speculate();
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let items = [Chore::Square(1), Chore::HangOnceWith(path.clone(), text(1))];
    assert!(pool.run(items).unwrap()[1] == text(1));
    text_in(&path);
    pool.close().unwrap();
    assert_eq!(broker.messages(OBJECTS), 0);
}

fn nothing_is_left_of_large_items_that_nothing_waits_for() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("begun");
    let _worker = broker.worker(1);
    let token = CancelToken::new();
    let mut pool = broker.builder().cancel_token(token.clone()).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path);
            token.cancel();
        });
        let mut items = vec![Chore::Hang(path.clone())];
        items.extend((0..20).map(|n| Chore::Text(text(n))));
        assert!(pool.run(items).unwrap_err().is_cancelled());
    });
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    pool.close().unwrap();
    assert_eq!(broker.messages(OBJECTS), 0);
}

fn a_coordinator_removes_the_objects_of_the_one_before() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    bounded(&broker, OBJECTS, "$O.gangline-objects.C.>", -1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(broker.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        for run in ["same", "other"] {
            let subject = format!("$O.gangline-objects.C.{run}.in.5-1.0");
            context.publish(subject, "x".into()).await.unwrap().await.unwrap();
        }
    });
    let nats = broker.nats().run_name("same");
    let mut pool = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build().unwrap();
    assert_eq!(broker.messages(OBJECTS), 1, "another run has its own");
    pool.close().unwrap();
}

fn a_broker_that_is_restarted_keeps_large_items() {
    let mut broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().retries(5).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(200));
                broker.kill();
                broker.restart();
            }
        });
        let outputs = pool.run((0..30).map(|n| Chore::Text(text(n)))).unwrap();
        assert!(outputs == (0..30).map(text).collect::<Vec<_>>());
    });
}

fn what_the_object_store_refuses_is_too_large_before_a_hook() {
    let broker = Broker::start();
    bounded(&broker, OBJECTS, "$O.gangline-objects.C.>", 2 << 20);
    let _worker = broker.worker(1);
    let mut pool = broker.builder().on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run([Chore::Text(text(0)), Chore::Square(2)]).unwrap(), ["4"]);
    let Error::HookFailed { source, .. } = &pool.failures()[0] else { panic!() };
    let Some(ClusterError::TooLarge { bytes, most, .. }) = source.downcast_ref() else {
        panic!("{source}")
    };
    assert!(*bytes >= SIZE && *most == 512 << 10);
    assert_eq!(pool.run([Chore::Large(SIZE), Chore::Square(3)]).unwrap(), ["9"]);
    let output = format!("{:#}", pool.failures()[0]);
    assert!(output.contains("the broker's object store refuses it"), "{output}");
    // Nothing is in the way of what it can hold.
    assert_eq!(pool.run([Chore::Large(3 << 19)]).unwrap()[0].len(), 3 << 19);
    pool.close().unwrap();
    assert_eq!(broker.messages(OBJECTS), 0);
}

/// Items are done, and make room for others.
fn a_full_broker_holds_the_run_up_and_goes_on() {
    let broker = Broker::start();
    bounded(&broker, "gangline-items", "gangline.items.>", 100 << 10);
    let _worker = broker.worker(1);
    let mut pool = broker.builder().window(16).build().unwrap();
    let outputs = pool.run((0..40).map(|_| Chore::Text("x".repeat(40 << 10)))).unwrap();
    assert!(outputs == vec!["x".repeat(40 << 10); 40]);
}

fn an_item_that_a_full_broker_never_takes_ends_the_run() {
    let broker = Broker::start();
    bounded(&broker, "gangline-items", "gangline.items.>", 100 << 10);
    let _worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(6));
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    let text = refusal(&pool.run([Chore::Text("x".repeat(200 << 10))]).unwrap_err());
    assert!(text.starts_with("the broker refuses an item or a result: "), "{text}");
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5), "the pool can be used again");
}

fn a_result_that_a_full_broker_never_takes_ends_the_run() {
    let broker = Broker::start();
    bounded(&broker, "gangline-results", "gangline.results.>", 100 << 10);
    let _worker = broker.ready_worker(1);
    let nats = broker.nats().wait_for(Duration::from_secs(6));
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    refusal(&pool.run([Chore::Large(200 << 10)]).unwrap_err());
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5), "the pool can be used again");
}

fn an_output_above_the_limit_fails_its_item() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    // The encoded text has its length before it: three bytes here.
    for (limit, sizes) in [(SIZE as u64, [SIZE, SIZE - 4]), (100, [SIZE, 90]), (100, [200, 9])] {
        let nats = broker.nats().largest_output(limit);
        let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats);
        let mut pool = builder.on_error(OnError::Skip).build().unwrap();
        let outputs = pool.run(sizes.map(Chore::Large)).unwrap();
        assert_eq!(outputs.iter().map(String::len).collect::<Vec<_>>(), [sizes[1]]);
        let text = format!("{:#}", pool.failures()[0]);
        let expected = format!("bytes, and `Nats::largest_output` allows {limit}");
        assert!(text.contains(&expected), "{text}");
        pool.close().unwrap();
        assert_eq!(broker.messages(OBJECTS), 0);
    }
}

fn a_broker_with_small_messages_works_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf");
    for most in [0_usize, 512, 1024, 2047, 2048, 4096] {
        std::fs::write(&config, format!("max_payload: {most}\n")).unwrap();
        let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
        let mut worker = broker.worker(2);
        if (1..2048).contains(&most) {
            let error = broker.builder().build().map(|_| ()).unwrap_err();
            let expected = format!(
                "the broker takes messages of at most {most} bytes, and a cluster needs 2048; set \
                 `max_payload` in its configuration"
            );
            assert_eq!(format!("{error:#}"), expected);
            assert_eq!(worker.wait().code(), Some(78));
            continue;
        }
        let mut pool = broker.builder().build().unwrap();
        let text = "x".repeat(20_000);
        assert_eq!(pool.run([Chore::Text(text.clone())]).unwrap(), [text]);
        pool.close().unwrap();
        let cfg = CfgNode::new().with("long", "x".repeat(2_000)).unwrap();
        let built = broker.builder().cfg(cfg).build().map(|_| ());
        match most {
            2048 => {
                let text = format!("{:#}", built.unwrap_err());
                assert!(text.contains("2048 bytes, and the configuration needs 3"), "{text}");
            }
            _ => built.unwrap(),
        }
    }
}

fn an_error_that_is_too_large_for_a_message_is_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf");
    std::fs::write(&config, "max_payload: 4096\n").unwrap();
    let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
    let _worker = broker.worker(1);
    let mut pool = broker.builder().on_error(OnError::Skip).build().unwrap();
    let long = |start: &str| format!("{start}{}", "x".repeat(10_000));
    let items =
        [Chore::Fail(long("one")), Chore::Panic(long("two")), Chore::Fail("three".to_owned())];
    pool.run(items.into_iter().chain([Chore::Square(2)])).unwrap();
    let texts: Vec<_> = pool.failures().iter().map(|it| format!("{it:#}")).collect();
    assert_eq!(pool.account().ok, 1);
    for (text, start) in texts.iter().zip(["onexx", "twoxx", "three"]) {
        assert!(text.contains(start) && text.len() < 4_000, "{text}");
    }
    assert!(texts[0].contains("a message of the broker at most 3072"), "{}", texts[0]);
}
