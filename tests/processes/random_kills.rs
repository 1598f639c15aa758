//! Processes that are killed at random moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gangline::{Batch, Error, OnError, OrderedRunner};
use rustix::process::{Pid, Signal, kill_process};

use crate::chores::{Chore, Chores, ChoresBuilder, builder, tests};

tests![killed_workers_change_no_result, killed_workers_change_no_result_of_batches];

/// The children of this process that are workers: with test threads beside this one, others' too.
fn workers() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let pids: Vec<i32> = lists
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// Kills a worker every 10 to 26 ms, `most` in all. A start takes less.
fn kill_some(most: u32, seed: u64, is_over: Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    std::thread::spawn(move || {
        let (mut state, mut kills) = (seed, 0);
        while kills < most && !is_over.load(Ordering::Relaxed) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_micros(10_000 + (state >> 52) * 4));
            let workers = workers();
            if let Some(worker) = workers.get((state >> 33) as usize % workers.len().max(1)) {
                kills += u32::from(kill_process(*worker, Signal::KILL).is_ok());
            }
        }
        kills
    })
}

fn runs_like_threads(set: fn(ChoresBuilder) -> ChoresBuilder) {
    let items = (0..400).map(|x| if x % 8 == 0 { Chore::Sleep(10) } else { Chore::Square(x) });
    let items: Vec<Chore> = items.collect();
    let plain = |outputs: Vec<String>| -> Vec<String> {
        outputs
            .into_iter()
            .map(|it| if it.ends_with("over") { "over".into() } else { it })
            .collect()
    };
    let mut threads = OrderedRunner::builder(Chores::new()).devices(2).build().unwrap();
    let expected = plain(threads.run(items.clone()).unwrap());
    for seed in 0..4 {
        let pool = set(builder(3)).retries(20).backoff(Duration::ZERO, Duration::ZERO);
        let mut pool = pool.on_error(OnError::Skip).build().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let killing = kill_some(30, seed, is_over.clone());
        let outputs = pool.run(items.clone());
        is_over.store(true, Ordering::Relaxed);
        let kills = killing.join().unwrap();
        // An item that was hit three times is not tried again.
        let mut expected = expected.clone();
        for failure in pool.failures().iter().rev() {
            assert!(matches!(failure, Error::HookCrashed { .. }), "{failure:?}");
            assert!(failure.attempt() >= Some(3), "{failure:?}");
            expected.remove(failure.item().unwrap() as usize);
        }
        assert_eq!(plain(outputs.unwrap()), expected, "seed {seed}, {kills} kills");
        let account = pool.account();
        assert_eq!((account.ok, account.ok + account.failed), (expected.len() as u64, 400));
        // One may have been killed just now, and its state with it.
        drop(pool);
    }
}

fn killed_workers_change_no_result() {
    runs_like_threads(|builder| builder);
}

fn killed_workers_change_no_result_of_batches() {
    runs_like_threads(|builder| builder.batch(Batch::up_to(5)));
}
