//! Puts threads to sleep until there is work, where looking for work takes no lock.

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::task::Waker;
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::{Barrier, Condvar, Mutex, lock, wait};

/// The maximum sleep if the heavy fence failed, since a wake-up may then be missed.
const UNFENCED: Duration = Duration::from_millis(10);

/// The largest number of sleepers that are told to wake at the same time and have not yet noticed.
///
/// One wake-up takes a publisher several microseconds. With hundreds of sleepers, a publisher that wakes one for
/// every item publishes items more slowly than their workers finish them, so each of them sleeps again. A model
/// has few threads, so there the limit is the least.
const MOST_UNSEEN: usize = if cfg!(shuttle) { 1 } else { 8 };
/// With more producers than this, each side executes a fence of its own.
const MANY: usize = 32;

/// Wakes threads that found nothing to do.
///
/// The publisher makes work visible, then calls [`notify`](EventCount::notify), which costs a load
/// while no thread sleeps. A sleeper is counted first and looks for work a last time afterwards. Between
/// the two steps of either side there is a full fence, so at least one of them sees the other's.
///
/// A publisher wakes no further sleeper while [`MOST_UNSEEN`] are on their way: they will see what it has published,
/// since they notice under the lock that it holds. So a thread that was woken, and found more work than it takes,
/// notifies again.
#[derive(Debug)]
pub(crate) struct EventCount {
    /// The number of sleepers not yet told to wake. Written only under the lock of `told`.
    untold: AtomicUsize,
    barrier: Barrier,
    told: Mutex<UnseenWakes>,
    woken: Condvar,
}

/// The wake-ups that sleepers have not yet noticed.
#[derive(Debug, Default)]
struct UnseenWakes {
    /// The number of sleepers of this epoch that were told to wake and have not yet noticed. They are
    /// interchangeable, so any of them may notice.
    sleepers: usize,
    /// Counts the calls of [`notify_all`](EventCount::notify_all). Such a call may be meant for one
    /// particular sleeper, so no other may notice in its place.
    epoch: u64,
    /// Wakes the task that waits instead of a thread; it counts as a sleeper. Its waker must not panic.
    task: Option<Waker>,
}

impl UnseenWakes {
    /// Takes the waker of a task that is to wake.
    fn take_task(&mut self) -> Option<Waker> {
        self.task.take()
    }
}

impl EventCount {
    pub(crate) fn new() -> Self {
        EventCount::with_barrier(Barrier::new())
    }

    /// Creates one for the producers of a run, or for what waits for them.
    ///
    /// Many producers work on long items, so one of them sleeps for every item or two. The heavy fence interrupts
    /// every core, and only one thread at a time may request it: then it is cheaper if each side has a fence.
    pub(crate) fn among(producers: usize) -> Self {
        match producers > MANY {
            true => EventCount::with_barrier(Barrier::Symmetric),
            false => EventCount::new(),
        }
    }

    /// Creates one for a task as its sleeper. A task cannot sleep for a short time, as a thread does if the heavy fence
    /// fails, so each side executes a fence of its own.
    pub(crate) fn for_task() -> Self {
        EventCount::with_barrier(Barrier::Symmetric)
    }

    fn with_barrier(barrier: Barrier) -> Self {
        EventCount {
            untold: AtomicUsize::new(0),
            barrier,
            told: Mutex::new(UnseenWakes::default()),
            woken: Condvar::new(),
        }
    }

    /// Wakes one sleeper, if there is one. It sees what this thread has published.
    #[inline]
    pub(crate) fn notify(&self) {
        self.published();
        if self.has_sleeper() {
            self.wake_one();
        }
    }

    /// The fence between publishing something and looking for sleepers.
    #[inline]
    pub(crate) fn published(&self) {
        self.barrier.light();
    }

    /// Wakes all sleepers, and prevents those about to sleep from sleeping.
    pub(crate) fn notify_all(&self) {
        let mut told = lock(&self.told);
        self.untold.store(0, Ordering::Relaxed);
        told.sleepers = 0;
        told.epoch += 1;
        let task = told.take_task();
        drop(told);
        self.woken.notify_all();
        task.into_iter().for_each(Waker::wake);
    }

    /// Whether a sleeper was not yet told to wake. A hint.
    #[inline]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.untold.load(Ordering::Relaxed) > 0
    }

    /// Sleeps until notified, unless `is_ready`. Spurious returns are possible.
    ///
    /// `is_ready` must check the work that [`notify`](EventCount::notify) announces, and the flags written
    /// before a [`notify_all`](EventCount::notify_all). It runs without the lock of this value.
    pub(crate) fn wait_unless(&self, is_ready: impl FnOnce() -> bool) {
        let epoch = self.enlist();
        let fenced = self.barrier.heavy();
        if is_ready() {
            self.resign(epoch);
        } else if fenced.is_ok() {
            self.sleep(epoch);
        } else {
            self.doze(epoch, UNFENCED);
        }
    }

    /// Sleeps for at most `most` until notified, unless `is_ready`: see [`wait_unless`](EventCount::wait_unless).
    pub(crate) fn wait_at_most(&self, most: Duration, is_ready: impl FnOnce() -> bool) {
        let epoch = self.enlist();
        let fenced = self.barrier.heavy();
        if is_ready() {
            self.resign(epoch);
        } else if fenced.is_ok() {
            self.doze(epoch, most);
        } else {
            self.doze(epoch, most.min(UNFENCED));
        }
    }

    /// Sleeps until notified, at most `most`, unless `is_ready`. Spurious returns are possible.
    ///
    /// There is no fence here. Work published at the same time may be missed by `is_ready`, while its
    /// publisher misses the sleeper. `most` bounds that delay.
    pub(crate) fn wait_briefly_unless(&self, most: Duration, is_ready: impl FnOnce() -> bool) {
        let epoch = self.enlist();
        if is_ready() {
            self.resign(epoch);
        } else {
            self.doze(epoch, most);
        }
    }

    fn enlist(&self) -> u64 {
        let told = lock(&self.told);
        self.untold.fetch_add(1, Ordering::Relaxed);
        told.epoch
    }

    /// Deregisters a thread that has not slept. It may use up a wake-up meant for another sleeper: sleepers
    /// are interchangeable, and this thread is awake and looks for work next.
    fn resign(&self, epoch: u64) {
        let mut told = lock(&self.told);
        if told.epoch != epoch {
            return;
        }
        match self.untold.load(Ordering::Relaxed) {
            0 => told.sleepers -= 1,
            untold => self.untold.store(untold - 1, Ordering::Relaxed),
        }
    }

    fn sleep(&self, epoch: u64) {
        let mut told = lock(&self.told);
        while told.epoch == epoch && told.sleepers == 0 {
            told = wait(&self.woken, told);
        }
        if told.epoch == epoch {
            told.sleepers -= 1;
        }
    }

    /// Sleeps for at most `most`, since a publisher may have looked too early.
    fn doze(&self, epoch: u64, most: Duration) {
        let told = lock(&self.told);
        if told.epoch == epoch && told.sleepers == 0 {
            drop(self.woken.wait_timeout(told, most));
        } else {
            drop(told);
        }
        // A wake-up that has arrived is used up before this thread deregisters. Otherwise the counts would no
        // longer match the sleepers beside it.
        let mut told = lock(&self.told);
        if told.epoch != epoch {
            return;
        }
        match told.sleepers {
            0 => _ = self.untold.fetch_sub(1, Ordering::Relaxed),
            _ => told.sleepers -= 1,
        }
    }

    /// Wakes one sleeper, if there is one.
    #[cold]
    pub(crate) fn wake_one(&self) {
        let mut told = lock(&self.told);
        let untold = self.untold.load(Ordering::Relaxed);
        if untold == 0 || told.sleepers >= MOST_UNSEEN {
            return;
        }
        self.untold.store(untold - 1, Ordering::Relaxed);
        if let Some(task) = told.take_task() {
            drop(told);
            return task.wake();
        }
        told.sleepers += 1;
        drop(told);
        self.woken.notify_one();
    }

    /// Keeps the waker of the one task that sleeps here, unless `is_ready`. Returns whether it was ready.
    pub(crate) fn wake_task_unless(&self, waker: Waker, is_ready: impl FnOnce() -> bool) -> bool {
        let mut told = lock(&self.told);
        let old = told.task.replace(waker);
        if old.is_none() {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
        drop(told);
        drop(old);
        let fenced = self.barrier.heavy();
        debug_assert!(fenced.is_ok(), "a symmetric fence cannot fail");
        let is_ready = is_ready();
        if is_ready {
            self.forget_task();
        }
        is_ready
    }

    /// Forgets the task that slept here, if it was not woken yet.
    pub(crate) fn forget_task(&self) {
        let mut told = lock(&self.told);
        let task = told.task.take();
        if task.is_some() {
            self.untold.fetch_sub(1, Ordering::Relaxed);
        }
        drop(told);
        drop(task);
    }
}
