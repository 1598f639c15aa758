//! Runs in which nothing goes wrong.

use std::time::Duration;

use gangline::{CfgNode, OnError};
use gangline_nats::ClusterBuilder;

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, seeds, squared, squares, text_in};
use crate::log::Log;
use crate::suite::tests;

tests![
    results_come_in_the_order_of_the_input,
    a_hook_sees_the_items_of_the_coordinator,
    the_configuration_reaches_the_worker,
    the_seeds_of_items_are_those_of_threads,
    an_idle_worker_takes_what_a_busy_one_cannot,
    states_stay_loaded_between_pools_with_one_configuration,
    pools_that_want_one_configuration_at_once_have_it_loaded_once,
    a_pool_gets_what_was_being_loaded_for_one_that_has_given_up,
    a_service_answers_its_callers_beside_a_stream,
    nothing_is_left_at_the_broker,
    items_of_a_run_are_purged_before_the_next_can_have_any,
    workers_that_wait_for_a_seat_leave_nothing_at_the_broker,
    two_pools_share_one_worker,
    a_run_logs_to_the_subscriber_of_its_caller,
    a_pool_with_another_configuration_waits_for_its_turn,
];

fn results_come_in_the_order_of_the_input() {
    let broker = Broker::start();
    let _workers = [broker.worker(2), broker.worker(1)];
    let mut pool = broker.builder().build().unwrap();
    for _ in 0..2 {
        assert_eq!(pool.run(squares(0..300)).unwrap(), squared(0..300));
        assert_eq!((pool.account().ok, pool.account().failed), (300, 0));
    }
    assert_eq!(pool.run(squares(0..0)).unwrap(), squared(0..0));
    pool.close().unwrap();
}

fn a_hook_sees_the_items_of_the_coordinator() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    for _ in 0..2 {
        let sites = pool.run(vec![Chore::Site; 3]).unwrap();
        assert_eq!(sites, ["Some(0) [0] 1 0 cpu", "Some(1) [1] 1 0 cpu", "Some(2) [2] 1 0 cpu"]);
    }
}

fn the_configuration_reaches_the_worker() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let cfg = CfgNode::new().with("exponent", 3).unwrap();
    let mut pool = broker.builder().cfg(cfg).build().unwrap();
    assert_eq!(pool.run(squares(2..4)).unwrap(), ["8", "27"]);
}

fn the_seeds_of_items_are_those_of_threads() {
    let broker = Broker::start();
    let _workers = [broker.worker(2), broker.worker(1)];
    let mut pool = broker.builder().seed(7).build().unwrap();
    assert_eq!(pool.run(vec![Chore::Seed; 40]).unwrap(), seeds(40));
}

fn an_idle_worker_takes_what_a_busy_one_cannot() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let workers = [broker.worker(1), broker.worker(1)];
    let nats = broker.nats().min_workers(2);
    let mut pool = broker.builder().cluster(&crate::chores::CHORES, nats).build().unwrap();
    // The first can go on only after the second was done elsewhere, and all others too.
    let mut items = vec![Chore::Await(path("busy"), path("done"))];
    items.extend(squares(0..20));
    items.push(Chore::Touch(path("done")));
    let outputs = pool.run(items).unwrap();
    let busy = text_in(&path("busy"));
    assert_eq!(outputs[0], busy);
    let others: Vec<_> = workers.iter().map(|it| it.pid().to_string()).collect();
    assert!(others.contains(&busy) && outputs[21] != busy && others.contains(&outputs[21]));
}

fn states_stay_loaded_between_pools_with_one_configuration() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let _worker = broker.worker(1);
    let cfg = CfgNode::new().with("starts", &starts).unwrap();
    for _ in 0..3 {
        let mut pool = broker.builder().cfg(cfg.clone()).build().unwrap();
        assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    }
    assert_eq!(text_in(&starts), "x");
    let other = cfg.with("exponent", 3).unwrap();
    let mut pool = broker.builder().cfg(other).build().unwrap();
    assert_eq!(pool.run(squares(2..3)).unwrap(), ["8"]);
    assert_eq!(text_in(&starts), "xx");
}

/// A GPU may not have room for the states twice.
fn pools_that_want_one_configuration_at_once_have_it_loaded_once() {
    let broker = Broker::tracing();
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let cfg = CfgNode::new().with("starts", &starts).unwrap();
    let run = || {
        let mut pool = broker.builder().cfg(cfg.clone()).build().unwrap();
        assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    };
    std::thread::scope(|scope| {
        let runs = [scope.spawn(run), scope.spawn(run), scope.spawn(run)];
        broker.await_publications("$KV.gangline-keys.", 3);
        let _worker = broker.worker(1);
        runs.into_iter().for_each(|run| run.join().unwrap());
    });
    assert_eq!(text_in(&starts), "x");
}

fn a_pool_gets_what_was_being_loaded_for_one_that_has_given_up() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let cfg = CfgNode::new().with("starts", file("starts")).unwrap();
    let cfg = cfg.with("gate", file("gate")).unwrap();
    let _worker = broker.worker(1);
    let builder = |nats| broker.builder().cfg(cfg.clone()).cluster(&CHORES, nats);
    while !file("starts").exists() {
        let impatient = broker.nats().wait_for(Duration::from_millis(500));
        builder(impatient).build().map(|_| ()).unwrap_err();
    }
    std::fs::write(file("gate"), "").unwrap();
    let mut pool = builder(broker.nats()).build().unwrap();
    assert_eq!(pool.run(squares(0..3)).unwrap(), squared(0..3));
    assert_eq!(text_in(&file("starts")), "x");
}

fn a_service_answers_its_callers_beside_a_stream() {
    let broker = Broker::start();
    let _worker = broker.worker(2);
    let service = broker.builder().build().unwrap().into_service();
    assert_eq!(service.call(Chore::Square(9)).unwrap(), "81");
    let error = service.call(Chore::Fail("no".to_owned())).unwrap_err();
    assert!(format!("{error:#}").ends_with(": no"), "{error:#}");
    assert_eq!(service.call(Chore::Square(3)).unwrap(), "9");
    let stream = service.stream(squares(0..40));
    let taken = std::thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(service.call(Chore::Square(7)).unwrap(), "49");
    assert_eq!(taken.join().unwrap(), squared(0..40));
    assert!(service.drain(Duration::from_secs(30)));
    service.close().unwrap();
}

fn nothing_is_left_at_the_broker() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    assert_eq!(broker.messages("gangline-runs"), 1, "a tool can see that workers are wanted");
    assert_eq!(pool.run(squares(0..50)).unwrap(), squared(0..50));
    pool.close().unwrap();
    for (name, messages, consumers) in broker.streams() {
        match name.as_str() {
            "gangline-items" | "gangline-results" => {
                assert_eq!((messages, consumers), (0, 0), "{name}");
            }
            "gangline-runs" => assert_eq!((messages, consumers), (0, 1)),
            "KV_gangline-workers" => assert_eq!(messages, 1),
            // What a purged key leaves.
            _ => assert!(messages <= 1, "{name}: {messages}"),
        }
    }
}

/// The broker may do a purge later than what it is sent afterwards, unless its answer is waited for.
fn items_of_a_run_are_purged_before_the_next_can_have_any() {
    let broker = Broker::tracing();
    let _workers = [broker.worker(1), broker.worker(1)];
    let nats = broker.nats().min_workers(2);
    let mut pool = broker.builder().cluster(&CHORES, nats).build().unwrap();
    for _ in 0..3 {
        assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    }
    let log = broker.log();
    let (mut answer, mut is_purged, mut orders) = ("", true, 0);
    for line in log.lines() {
        if line.contains("<<- [HPUB gangline.items.") {
            is_purged = false;
        } else if let Some((_, rest)) = line.split_once("[PUB $JS.API.STREAM.PURGE.gangline-items ")
        {
            answer = rest.split(' ').next().unwrap();
        } else if !answer.is_empty() && line.contains("->> [") && line.contains(answer) {
            (answer, is_purged) = ("", true);
        } else if line.contains("<<- [PUB gangline.orders.") {
            // No item of these runs is cancelled. A worker that joins gets an order before the first item.
            assert!(is_purged, "a worker is told to drain:\n{log}");
            orders += 1;
        }
    }
    assert!(orders >= 6, "two workers are told to drain in three runs:\n{log}");
}

fn workers_that_wait_for_a_seat_leave_nothing_at_the_broker() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(1), broker.worker(1)];
    let consumers = || broker.streams().into_iter().find(|it| it.0 == "gangline-items").unwrap().2;
    let nats = broker.nats().max_workers(1);
    let mut pool = broker.builder().cluster(&CHORES, nats).build().unwrap();
    while consumers() < 4 {
        assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    }
    pool.close().unwrap();
    assert_eq!(consumers(), 0);
    let results = broker.streams().into_iter().find(|it| it.0 == "gangline-results").unwrap();
    assert_eq!(results.2, 0);
}

fn two_pools_share_one_worker() {
    let broker = Broker::start();
    let _worker = broker.worker(2);
    let mut pools = [broker.builder().build().unwrap(), broker.builder().build().unwrap()];
    std::thread::scope(|scope| {
        for pool in &mut pools {
            scope.spawn(|| assert_eq!(pool.run(squares(0..100)).unwrap(), squared(0..100)));
        }
    });
}

fn a_pool_with_another_configuration_waits_for_its_turn() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let _worker = broker.worker(1);
    let path = |name| folder.path().join(name);
    let cfg = CfgNode::new().with("exponent", 3).unwrap();
    let mut first = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut pool = broker.builder().cfg(cfg).build().unwrap();
            (path("done").exists(), pool.run(squares(2..4)).unwrap())
        });
        for _ in 0..3 {
            assert_eq!(first.run(squares(0..20)).unwrap(), squared(0..20));
        }
        std::fs::write(path("done"), "").unwrap();
        first.close().unwrap();
        assert_eq!(second.join().unwrap(), (true, vec!["8".to_owned(), "27".to_owned()]));
    });
}

fn a_run_logs_to_the_subscriber_of_its_caller() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let [build, first, second] = [(); 3].map(|()| Log::new());
    let mut pool = build.scope(|| broker.builder().on_error(OnError::Skip).build()).unwrap();
    for run in [&first, &second] {
        let items = [Chore::Square(2), Chore::Fail("no".into())];
        let in_span = || tracing::info_span!("caller").in_scope(|| pool.run(items));
        assert_eq!(run.scope(in_span).unwrap(), ["4"]);
        assert_eq!(run.count("caller>run: an item failed"), 1, "{:#?}", run.others(&[]));
    }
    // Joins the coordinator's thread.
    pool.close().unwrap();
    assert_eq!(build.count(": a worker takes part"), 1);
    assert_eq!(build.count(": an item failed"), 0);
}
