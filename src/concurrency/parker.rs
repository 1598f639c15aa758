//! Parks one thread until it is woken.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::bell::Bell;
use super::yields::Yields;
use super::{Condvar, Mutex, lock, now, wait};

/// Parks one thread until it is woken. A wake-up that comes first is kept.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Mutex<ParkState>,
    woken: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParkState {
    #[default]
    Running,
    Parked,
    Woken,
}

impl Parker {
    /// Wakes the thread. Only one that is parked costs a call of the kernel.
    pub(crate) fn wake(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), ParkState::Woken);
        if before == ParkState::Parked {
            self.woken.notify_one();
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        *lock(&self.state) == ParkState::Woken
    }

    /// Clears the wake-up, and returns whether there was one. Only the thread itself calls it.
    pub(crate) fn take_wake_up(&self) -> bool {
        std::mem::take(&mut *lock(&self.state)) == ParkState::Woken
    }

    /// Parks until the thread is woken, at most for `most`. It may then return early.
    pub(crate) fn park(&self, most: Option<Duration>) {
        let mut state = lock(&self.state);
        while *state != ParkState::Woken && most != Some(Duration::ZERO) {
            *state = ParkState::Parked;
            let Some(most) = most else {
                state = wait(&self.woken, state);
                continue;
            };
            let waited = self.woken.wait_timeout(state, most);
            state = waited.expect("nothing panics under a lock of ours").0;
            break;
        }
        *state = ParkState::Running;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        Parker::wake(&self);
    }
}

/// It takes the lock of the parker, under which nothing waits.
impl Bell for Parker {
    fn ring(&self) {
        self.wake();
    }
}

/// Blocks the calling thread until `poll` is ready, for waits of any length.
pub(crate) fn block_on<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    block_on_with(|_| false, poll)
}

/// Blocks the calling thread until `poll` is ready, for waits that often end within microseconds.
pub(crate) fn block_on_soon<T>(
    yields: &Yields,
    poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    block_on_with(|parker| yields.until(|| parker.take_wake_up()), poll)
}

/// Blocks the calling thread until `poll` is ready, at most until `end`. `None` if it is not ready by then.
pub(crate) fn block_until<T>(
    end: Instant,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = poll(&mut cx) {
            return Some(value);
        }
        let left = end.saturating_duration_since(now());
        if left.is_zero() {
            return None;
        }
        parker.park(Some(left));
    }
}

/// Before it parks, the thread asks whether it `is_woken`, which then clears the wake-up.
fn block_on_with<T>(
    is_woken: impl Fn(&Parker) -> bool,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = poll(&mut cx) {
            return value;
        }
        if !is_woken(&parker) {
            parker.park(None);
        }
    }
}
