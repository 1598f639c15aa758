//! Random runs, whose processes are killed at random moments.
//!
//! `GANGLINE_KILLS=full` has twenty runs, and `GANGLINE_KILLS_SEED` draws others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gangline::order::RuntimeOrder;
use gangline::process::Processes;
use gangline::{AnyOrderRunner, Batch, Builder, Error, OnError, Order};
use rustix::process::{Pid, Signal, kill_process};

use crate::chores::{CHORES, Chore, Chores};
use crate::draw::{Draw, mixed, times};
use crate::suite::tests;

tests![killed_workers_change_no_result];

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

/// The number of kills in each run.
const KILLS: u32 = 30;

/// A run that was drawn.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    seed: u64,
    producers: usize,
    window: Option<usize>,
    ahead: usize,
    order: Order,
    batch: Option<usize>,
    speculates: bool,
    recycle_after: Option<u64>,
    /// One item in this number takes some milliseconds.
    slow: u64,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::of(seed);
        let mut one = |of: &[usize]| of[draw.below(of.len())];
        Drawn {
            seed,
            producers: one(&[2, 3, 4]),
            window: Some(one(&[0, 8, 64, 500])).filter(|&window| window > 0),
            ahead: one(&[1, 2, 64]),
            order: if one(&[0, 1]) == 0 { Order::Input } else { Order::Completion },
            batch: Some(one(&[0, 0, 1, 5])).filter(|&batch| batch > 0),
            speculates: one(&[0, 0, 1]) == 1,
            recycle_after: Some(one(&[0, 0, 1, 50]) as u64).filter(|&items| items > 0),
            slow: one(&[2, 8, 64]) as u64,
        }
    }

    fn item(self, n: u64) -> Chore {
        let drawn = mixed(self.seed ^ n << 8);
        match drawn.is_multiple_of(self.slow) {
            true => Chore::Sleep(1 + drawn % 12),
            false => Chore::Text(format!("{n} {drawn:x}")),
        }
    }

    fn builder(self) -> Builder<Chores, RuntimeOrder> {
        let mut builder = AnyOrderRunner::builder(Chores::new()).order(self.order);
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        if let Some(batch) = self.batch {
            builder = builder.batch(Batch::up_to(batch));
        }
        builder.devices(self.producers)
    }

    fn in_processes(self) -> Builder<Chores, RuntimeOrder> {
        let builder = self.builder().processes(&CHORES, Processes::new().ahead(self.ahead));
        let builder = if self.speculates { builder.speculate() } else { builder };
        let builder = match self.recycle_after {
            Some(items) => builder.recycle_after(items),
            None => builder,
        };
        builder.retries(20).backoff(Duration::ZERO, Duration::ZERO).on_error(OnError::Skip)
    }
}

/// Kills a worker every 8 to 24 ms, from the first item on. A start takes less.
fn kill_some(seed: u64, is_over: Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    std::thread::spawn(move || {
        let (mut draw, mut kills) = (Draw::of(!seed), 0);
        while kills < KILLS && !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(draw.pause(8, 24));
            let workers = workers();
            if let Some(worker) = workers.get(draw.below(workers.len().max(1))) {
                kills += u32::from(kill_process(*worker, Signal::KILL).is_ok());
            }
        }
        is_over.store(true, Ordering::Relaxed);
        kills
    })
}

/// Outputs without the ids of the processes that they are from; sorted if their order is that of completion.
fn plain(order: Order, outputs: Vec<String>) -> Vec<String> {
    let without_id = |it: String| if it.parse::<u32>().is_ok() { String::new() } else { it };
    let mut outputs: Vec<String> = outputs.into_iter().map(without_id).collect();
    if order == Order::Completion {
        outputs.sort();
    }
    outputs
}

#[expect(clippy::print_stdout, reason = "the test says what was drawn")]
fn runs_like_threads(drawn: Drawn) {
    let mut pool = drawn.in_processes().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let killing = kill_some(drawn.seed, is_over.clone());
    let mut count = 0;
    // As many as there are until the last kill, and some more.
    let items = std::iter::from_fn(|| {
        let has_more = !is_over.load(Ordering::Relaxed);
        has_more.then(|| {
            count += 1;
            drawn.item(count - 1)
        })
    });
    let outputs = match pool.run(items) {
        Ok(outputs) => outputs,
        // On a busy machine a start takes longer. A producer that cannot be started four times ends the run.
        Err(error) => {
            is_over.store(true, Ordering::Relaxed);
            killing.join().unwrap();
            let text = format!("{error:#}");
            assert!(text.contains("(SIGKILL)"), "{drawn:?}: {text}");
            drop(pool);
            assert_eq!(workers(), [], "{drawn:?}: no process is left");
            return println!("{drawn:?}: all starts of a producer were hit");
        }
    };
    assert_eq!(killing.join().unwrap(), KILLS);
    // An item that was hit three times is not tried again.
    for failure in pool.failures() {
        assert!(matches!(failure, Error::HookCrashed { .. }), "{drawn:?}: {failure:?}");
        assert!(failure.attempt() >= Some(3), "{drawn:?}: {failure:?}");
    }
    let failed: Vec<u64> = pool.failures().iter().filter_map(Error::item).collect();
    assert!(failed.len() <= KILLS as usize / 3, "{drawn:?}: {failed:?}");
    let mut threads = drawn.builder().build().unwrap();
    let items = (0..count).filter(|n| !failed.contains(n)).map(|n| drawn.item(n));
    let expected = threads.run(items).unwrap();
    let (outputs, expected) = (plain(drawn.order, outputs), plain(drawn.order, expected));
    assert!(outputs == expected, "{drawn:?}, {count} items: {}", First(&outputs, &expected));
    let account = pool.account();
    assert_eq!((account.ok, account.failed), (count - failed.len() as u64, failed.len() as u64));
    assert_eq!(account.cancelled, 0, "{drawn:?}");
    // One may have been killed just now, and its state with it.
    drop(pool);
    assert_eq!(workers(), [], "{drawn:?}: no process is left");
    println!("{drawn:?}: {count} items, {} failed after three kills", failed.len());
}

/// The first difference of two lists.
struct First<'a>(&'a [String], &'a [String]);

impl fmt::Display for First<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let First(is, wanted) = self;
        let at = is.iter().zip(*wanted).position(|(is, wanted)| is != wanted);
        let at = at.unwrap_or(is.len().min(wanted.len()));
        write!(f, "at {at} of {}: {:?}, not {:?}", is.len(), is.get(at), wanted.get(at))
    }
}

fn killed_workers_change_no_result() {
    (0..times(3, 20)).for_each(|seed| runs_like_threads(Drawn::new(seed)));
}
