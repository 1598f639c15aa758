//! The deque for models. As in the real one, a steal has two steps, and between them the items are in neither
//! deque.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::Mutex;

use super::lock;

#[derive(Debug)]
pub(crate) struct Inbox<T>(Arc<Mutex<VecDeque<T>>>);

#[derive(Debug)]
pub(crate) struct Stealer<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox(Arc::new(Mutex::new(VecDeque::new())))
    }

    pub(crate) fn stealer(&self) -> Stealer<T> {
        Stealer(self.0.clone())
    }

    pub(crate) fn push(&self, value: T) {
        lock(&self.0).push_back(value);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        lock(&self.0).pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

impl<T> Stealer<T> {
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(crate) fn steal(&self) -> Option<T> {
        lock(&self.0).pop_front()
    }

    pub(crate) fn steal_half(&self, loot: &Inbox<T>, limit: usize) -> Option<T> {
        let mut stolen: VecDeque<T> = {
            let mut values = lock(&self.0);
            let half = values.len().div_ceil(2).min(limit);
            values.drain(..half).collect()
        };
        let oldest = stolen.pop_front()?;
        lock(&loot.0).append(&mut stolen);
        Some(oldest)
    }
}
