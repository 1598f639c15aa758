//! Where the answer of one call arrives.

use std::task::{Poll, Waker};

use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::{Mutex, lock};
use crate::error::Error;

/// Where the answer of one call arrives.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    state: Mutex<SlotState<T>>,
}

#[derive(Debug)]
struct SlotState<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Slot { state: Mutex::new(SlotState { answer: None, waker: None }) }
    }

    /// Whether the answer is there and was not taken.
    pub(super) fn is_answered(&self) -> bool {
        lock(&self.state).answer.is_some()
    }

    /// Takes the answer, or keeps `waker` to be woken by it.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        // A waker is the user's: it is cloned and dropped without the lock.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let Some(answer) = state.answer.take() else {
            let old = state.waker.replace(waker);
            drop(state);
            drop(old);
            return Poll::Pending;
        };
        drop(state);
        Poll::Ready(answer)
    }

    /// Gives the answer, and wakes the caller. Call it without a lock.
    pub(super) fn answer(&self, answer: Result<T, Error>) {
        let mut state = lock(&self.state);
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(wake);
    }
}

/// An answer that was not taken is the user's value, and so is a waker.
impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let SlotState { answer, waker } = &mut *lock(&self.state);
        drop_quietly((answer.take(), waker.take()));
    }
}

/// Wakes a caller. Its waker is user code.
pub(super) fn wake(waker: Waker) {
    if let Err(message) = catch(|| waker.wake()) {
        tracing::warn!(%message, "a waker panicked");
    }
}
