//! What the coordinator decides about items that fail.

use std::time::Duration;

use gangline::{CancelToken, Error, OnError};
use gangline_nats::ClusterBuilder;
use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, RareError, given_up, squared, squares, text_in};
use crate::suite::tests;

tests![
    an_error_names_its_item_and_host,
    an_error_keeps_its_type,
    a_panic_fails_its_item_only,
    an_item_that_failed_is_tried_on_another_worker,
    an_ill_worker_is_quarantined,
    a_slow_item_is_copied_to_an_idle_worker,
    a_pool_that_is_closed_waits_for_the_loser_of_a_race,
    the_next_run_does_not_wait_for_the_loser_of_a_race,
    a_hook_that_takes_too_long_fails_its_item,
    a_hook_that_hangs_for_ever_fails_its_item_in_time,
    a_hook_that_hangs_for_ever_in_a_second_attempt_holds_up_no_other_retry,
    a_hook_that_hangs_for_ever_does_not_hold_up_a_cancelled_run,
    a_hook_that_takes_too_long_in_the_last_producer_of_a_worker_is_no_lost_worker,
    a_cancelled_run_has_no_hook_left,
];

/// Longer than a busy machine keeps the answer to a short hook.
const LIMIT: Duration = Duration::from_millis(500);

fn an_error_names_its_item_and_host() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let mut items = squares(0..20);
    items[7] = Chore::Fail("no luck".to_owned());
    let error = pool.run(items).unwrap_err();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let text = format!("{error:#}");
    let expected = format!(
        "producer_work failed for item 7 on cpu of {} (producer {}, attempt 1): no luck",
        host.trim(),
        error.producer().unwrap()
    );
    assert_eq!(text, expected);
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5), "the pool can be used again");
}

fn an_error_keeps_its_type() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let Error::HookFailed { source, .. } = pool.run([Chore::Rare(7)]).unwrap_err() else {
        panic!()
    };
    assert_eq!(source.downcast_ref::<RareError>(), Some(&RareError { code: 7 }));
}

fn a_panic_fails_its_item_only() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().on_error(OnError::Skip).build().unwrap();
    let items = [Chore::Square(2), Chore::Panic("oh".to_owned()), Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap(), ["4", "9"]);
    assert!(pool.failures()[0].is_panic());
    assert_eq!((pool.account().ok, pool.account().failed), (2, 1));
}

fn an_item_that_failed_is_tried_on_another_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    for n in 0..4 {
        let path = folder.path().join(n.to_string());
        let second = &pool.run([Chore::FailOnce(path.clone())]).unwrap()[0];
        assert_ne!(*second, text_in(&path), "it was tried where it had failed");
    }
}

fn an_ill_worker_is_quarantined() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker_with(1, &[("TEST_ILL", "1")])];
    let builder = broker.builder().retries(3).backoff(Duration::ZERO, Duration::ZERO);
    let builder = builder.quarantine_after(2);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    for _ in 0..2 {
        assert_eq!(pool.run(squares(0..100)).unwrap(), squared(0..100));
    }
}

fn a_slow_item_is_copied_to_an_idle_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow");
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().speculate();
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let outputs = pool.run([Chore::Square(1), Chore::HangOnce(path.clone())]).unwrap();
    assert_ne!(outputs[1], text_in(&path), "another worker has done it");
    assert_eq!(text_in(&given_up(&path)), text_in(&path), "the slow one has given up");
}

fn a_pool_that_is_closed_waits_for_the_loser_of_a_race() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let _workers = [broker.worker(1), broker.worker(1)];
    let builder = broker.builder().speculate();
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let items = [Chore::Square(1), Chore::AwaitOnce(file("slow"), file("go"))];
    let outputs = pool.run(items).unwrap();
    assert_ne!(outputs[1], text_in(&file("slow")), "the run has not waited for it");
    std::thread::scope(|scope| {
        scope.spawn(|| pool.close().unwrap());
        // The lanes without workers end at once.
        while has_thread("gangline-p63") {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::write(file("go"), "").unwrap();
    });
}

fn the_next_run_does_not_wait_for_the_loser_of_a_race() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let _workers = [broker.worker(2), broker.worker(2)];
    let builder = broker.builder().speculate().retries(1);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    let slow = Chore::AwaitOnce(file("slow"), file("go"));
    pool.run([Chore::Square(1), slow]).unwrap();
    // The worker of the loser is idle besides, and takes items of later runs too.
    for turn in 0..5 {
        let mut items = squares(0..40);
        items.push(Chore::FailOnce(file(&turn.to_string())));
        assert_eq!(pool.run(items).unwrap()[..40], squared(0..40));
    }
    std::fs::write(file("go"), "").unwrap();
    assert_eq!(pool.run(squares(0..40)).unwrap(), squared(0..40));
}

fn a_hook_that_takes_too_long_fails_its_item() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let _worker = broker.worker(2);
    let builder = broker.builder().on_error(OnError::Skip).item_timeout(LIMIT);
    let mut pool = builder.build().unwrap();
    let items = [Chore::Hang(folder.path().join("late")), Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap(), ["9"]);
    let Error::TimedOut { limit, .. } = &pool.failures()[0] else {
        panic!("{:?}", pool.failures())
    };
    assert_eq!(*limit, LIMIT);
}

/// It does not look whether it was given up.
fn a_hook_that_hangs_for_ever_fails_its_item_in_time() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut worker = broker.worker(2);
    let builder = broker.builder().on_error(OnError::Skip).item_timeout(LIMIT);
    let mut pool = builder.build().unwrap();
    let items = [Chore::Await(path("begun"), path("never")), Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap(), ["9"]);
    assert!(pool.failures()[0].is_timeout(), "{:?}", pool.failures());
    assert_eq!(pool.run(squares(0..20)).unwrap(), squared(0..20));
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
    pool.close().unwrap();
}

/// The second attempt is for one worker alone, as are those of other items.
fn a_hook_that_hangs_for_ever_in_a_second_attempt_holds_up_no_other_retry() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let _workers = [broker.worker(2), broker.worker(2)];
    let builder = broker.builder().on_error(OnError::Skip).item_timeout(LIMIT);
    let builder = builder.retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    pool.run([Chore::Await(path("begun"), path("never"))]).unwrap();
    assert!(pool.failures()[0].is_timeout(), "{:?}", pool.failures());
    // Each worker fails some of them.
    let items = (0..40).map(|n| Chore::FailOnce(path(&n.to_string())));
    assert_eq!(pool.run(items).unwrap().len(), 40, "{:?}", pool.failures());
}

fn a_hook_that_hangs_for_ever_does_not_hold_up_a_cancelled_run() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let _worker = broker.worker(2);
    let mut pool = broker.builder().item_timeout(Duration::from_secs(2)).build().unwrap();
    let token = pool.cancel_token();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&path("begun"));
            token.cancel();
        });
        let error = pool.run([Chore::Await(path("begun"), path("never"))]).unwrap_err();
        assert!(error.is_cancelled(), "{error:#}");
    });
    pool.close().unwrap();
}

fn a_hook_that_takes_too_long_in_the_last_producer_of_a_worker_is_no_lost_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut workers: Vec<_> = (0..4).map(|_| broker.worker(1)).collect();
    let builder = broker.builder().on_error(OnError::Skip).item_timeout(LIMIT);
    let builder = builder.retries(10).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&CHORES, broker.nats().min_workers(4)).build().unwrap();
    let mut items = vec![Chore::Await(path("begun"), path("never"))];
    items.extend(squares(0..50));
    assert_eq!(pool.run(items).unwrap(), squared(0..50));
    let error = &pool.failures()[0];
    assert!(matches!(error, Error::TimedOut { .. }), "{error:#}");
    assert_eq!(error.attempt(), Some(3), "an item ends three workers at most");
    let survivor: u32 = pool.run([Chore::Pid]).unwrap()[0].parse().unwrap();
    let ended = workers.iter_mut().filter(|worker| worker.pid() != survivor);
    assert_eq!(ended.map(|worker| worker.wait().code()).collect::<Vec<_>>(), [Some(1); 3]);
}

fn a_cancelled_run_has_no_hook_left() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = ["a", "b"].iter().map(|name| folder.path().join(name)).collect();
    let _worker = broker.worker(2);
    let token = CancelToken::new();
    let mut pool = broker.builder().cancel_token(token.clone()).build().unwrap();
    let mut items: Vec<_> = paths.iter().cloned().map(Chore::Hang).collect();
    items.extend(squares(0..100));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            paths.iter().for_each(|path| _ = text_in(path));
            token.cancel();
        });
        assert!(pool.run(items).unwrap_err().is_cancelled());
    });
    for path in &paths {
        assert!(given_up(path).exists(), "its hook runs on");
    }
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
}

/// Whether this process has a thread of this name.
fn has_thread(name: &str) -> bool {
    let mut tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.any(|task| {
        let comm = std::fs::read_to_string(task.unwrap().path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    })
}
