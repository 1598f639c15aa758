//! Sleep until there is work, where looking for work takes no lock.

use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::{Barrier, Condvar, Mutex, lock, wait};

/// How long a sleeper sleeps at a time where the operating system cannot promise that it is woken.
const UNFENCED: Duration = Duration::from_millis(10);

/// Wakes threads that found nothing to do.
///
/// The publisher makes work visible, then calls [`notify`](EventCount::notify), which costs a load
/// while no thread sleeps. A sleeper is counted first and looks for work a last time afterwards. Between
/// the two steps of either side there is a full fence, so at least one of them sees the other's.
#[derive(Debug)]
pub(crate) struct EventCount {
    /// Sleepers that have not been told to wake. Written under the lock of `told` only.
    untold: AtomicUsize,
    barrier: Barrier,
    told: Mutex<Told>,
    woken: Condvar,
}

/// What sleepers were told.
#[derive(Debug, Default)]
struct Told {
    /// How many of those of this epoch were told to wake and have not yet noticed. They are alike, so
    /// that it does not matter which of them does.
    sleepers: usize,
    /// Counts the times when all were. What that was for may be for a certain one of them, so none can
    /// notice in the place of another.
    epoch: u64,
}

impl EventCount {
    pub(crate) fn new() -> Self {
        EventCount::with_barrier(Barrier::new())
    }

    fn with_barrier(barrier: Barrier) -> Self {
        EventCount {
            untold: AtomicUsize::new(0),
            barrier,
            told: Mutex::new(Told::default()),
            woken: Condvar::new(),
        }
    }

    /// Wakes one sleeper, if there is one, to what this thread has published.
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

    /// Wakes all sleepers, and keeps those from sleeping that are about to.
    pub(crate) fn notify_all(&self) {
        let mut told = lock(&self.told);
        self.untold.store(0, Ordering::Relaxed);
        told.sleepers = 0;
        told.epoch += 1;
        drop(told);
        self.woken.notify_all();
    }

    /// Whether a thread sleeps that has not been told to wake. A hint.
    #[inline]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.untold.load(Ordering::Relaxed) > 0
    }

    /// Sleeps until it is notified, unless `is_ready`. It may also return for no reason.
    ///
    /// `is_ready` looks at what [`notify`](EventCount::notify) is called for, and at whatever was
    /// written before a [`notify_all`](EventCount::notify_all). No lock of this value is held then.
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

    /// As [`wait_unless`](EventCount::wait_unless), but sleeps no longer than `most`.
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

    /// Sleeps until it is notified, but no longer than `most`, unless `is_ready`. It may also return for
    /// no reason. There is no fence, so what is published at the same time may be missed by `is_ready`
    /// and its publisher miss the sleeper: `most` bounds what that costs.
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

    /// Sleepers are alike, so one that goes without having slept may take the place of one that was
    /// told to wake: it is awake, and looks for work next.
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

    /// As `sleep`, where a publisher may have looked too early: then this thread looks again soon.
    fn doze(&self, epoch: u64, most: Duration) {
        let told = lock(&self.told);
        if told.epoch == epoch && told.sleepers == 0 {
            drop(self.woken.wait_timeout(told, most));
        } else {
            drop(told);
        }
        // One that was told first, or a sleeper beside this one would wait for a wake-up that came here.
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
        if untold == 0 {
            return;
        }
        self.untold.store(untold - 1, Ordering::Relaxed);
        told.sleepers += 1;
        drop(told);
        self.woken.notify_one();
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// Two threads send each other every number, each asleep until the other's comes.
    fn ping_pong(barrier: Barrier, rounds: u64) {
        let pair = || Arc::new((EventCount::with_barrier(barrier), AtomicU64::new(0)));
        let (ping, pong) = (pair(), pair());
        let expect = |side: &(EventCount, AtomicU64), value| {
            while side.1.load(Ordering::Acquire) != value {
                side.0.wait_unless(|| side.1.load(Ordering::Acquire) == value);
            }
        };
        let send = |side: &(EventCount, AtomicU64), value| {
            side.1.store(value, Ordering::Release);
            side.0.notify();
        };
        let (their_ping, their_pong) = (ping.clone(), pong.clone());
        let other = thread::spawn(move || {
            for round in 1..=rounds {
                expect(&their_ping, round);
                send(&their_pong, round);
            }
        });
        for round in 1..=rounds {
            send(&ping, round);
            expect(&pong, round);
        }
        other.join().unwrap();
    }

    #[test]
    fn no_wake_up_is_lost() {
        ping_pong(Barrier::new(), 20_000);
        ping_pong(Barrier::Symmetric, 20_000);
    }

    #[test]
    fn a_refused_fence_costs_time_and_no_wake_up() {
        ping_pong(Barrier::Broken, 50);
    }

    #[test]
    fn all_are_woken_at_once() {
        let sleep = Arc::new((EventCount::new(), AtomicUsize::new(0)));
        let sleepers: Vec<_> = (0..4)
            .map(|_| {
                let sleep = sleep.clone();
                thread::spawn(move || {
                    let is_over = || sleep.1.load(Ordering::Acquire) > 0;
                    while !is_over() {
                        sleep.0.wait_unless(is_over);
                    }
                })
            })
            .collect();
        sleep.1.store(1, Ordering::Release);
        sleep.0.notify_all();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    }
}
