//! Values that are counted while they live.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::laws::Laws;

/// The number of values of one kind that live, and that lived at most.
#[derive(Default, Debug)]
pub(crate) struct Count {
    now: AtomicI64,
    most: AtomicI64,
}

/// Counts as one from its creation to its drop.
#[derive(Debug)]
pub(crate) struct Live(Arc<Count>);

impl Count {
    pub(crate) fn live(self: &Arc<Self>) -> Live {
        let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
        self.most.fetch_max(now, Ordering::AcqRel);
        Live(self.clone())
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Acquire)
    }

    pub(crate) fn most(&self) -> i64 {
        self.most.load(Ordering::Acquire)
    }
}

impl Clone for Live {
    fn clone(&self) -> Self {
        self.0.live()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the number of threads of this process; 0 where it is not known.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Waits until `holds`: an abandoned hook ends a moment after the pool.
pub(crate) fn soon(holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    while !holds() {
        if begin.elapsed() > Duration::from_secs(5) {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}

/// Checks that a case has left nothing behind.
pub(crate) fn check_nothing_left(laws: &Laws, counts: &[(&'static str, &Count)], before: usize) {
    for &(what, count) in counts {
        laws.check("no value leaks", soon(|| count.now() == 0), || {
            format!("{} {what} live on", count.now())
        });
    }
    laws.check("no thread is left", soon(|| threads() <= before), || {
        format!("{} threads, {before} before: {}", threads(), stages())
    });
}

/// Names the threads of this process and what each waits for.
pub(crate) fn stages() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |task: &std::fs::DirEntry, file| {
        std::fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned()
    };
    let lines = tasks.map(|task| format!("{} ({})", read(&task, "comm"), read(&task, "wchan")));
    lines.collect::<Vec<_>>().join(", ")
}

/// The processes that this one has started.
#[cfg(target_os = "linux")]
pub(crate) fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers =
        lists.map(|list| list.split_whitespace().filter_map(|it| it.parse().ok()).collect());
    numbers.collect::<Vec<Vec<i32>>>().concat()
}

/// Kills the processes that this one has started.
#[cfg(target_os = "linux")]
pub(crate) fn kill_children() {
    for child in children().into_iter().filter_map(rustix::process::Pid::from_raw) {
        // It may have ended.
        _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
}
