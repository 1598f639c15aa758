//! A queue from which its owner takes, and other threads steal.

use crossbeam_deque::{Steal, Worker};

/// The owner's end.
#[derive(Debug)]
pub(crate) struct Inbox<T>(Worker<T>);

/// The end of other threads.
#[derive(Debug)]
pub(crate) struct Stealer<T>(crossbeam_deque::Stealer<T>);

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox(Worker::new_fifo())
    }

    pub(crate) fn stealer(&self) -> Stealer<T> {
        Stealer(self.0.stealer())
    }

    #[inline]
    pub(crate) fn push(&self, value: T) {
        self.0.push(value);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Stealer<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the oldest value.
    pub(crate) fn steal(&self) -> Option<T> {
        decided(|| self.0.steal())
    }

    /// Steals the older half, at most `limit`: returns the oldest value and moves the others into `loot`.
    pub(crate) fn steal_half(&self, loot: &Inbox<T>, limit: usize) -> Option<T> {
        decided(|| self.0.steal_batch_with_limit_and_pop(&loot.0, limit))
    }
}

/// Retries after a lost race. The winner of each race has taken a value, so some thread always makes
/// progress.
fn decided<T>(mut attempt: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match attempt() {
            Steal::Success(value) => return Some(value),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
