//! The ring for models: other threads can run between any two uses.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::Mutex;

use super::lock;

#[derive(Debug)]
pub(crate) struct Writer<T> {
    values: Arc<Mutex<VecDeque<T>>>,
    capacity: usize,
}

#[derive(Debug)]
pub(crate) struct Reader<T>(Arc<Mutex<VecDeque<T>>>);

pub(crate) fn ring<T>(capacity: usize) -> (Writer<T>, Reader<T>) {
    // The smallest size, so that every model includes the change to a larger ring.
    let capacity = capacity.min(2);
    let values = Arc::new(Mutex::new(VecDeque::new()));
    (Writer { values: values.clone(), capacity }, Reader(values))
}

impl<T> Writer<T> {
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        let mut values = lock(&self.values);
        if values.len() == self.capacity {
            return Err(value);
        }
        values.push_back(value);
        Ok(())
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<T> Reader<T> {
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        lock(&self.0).pop_front()
    }

    pub(crate) fn take(&mut self, n: usize) -> impl Iterator<Item = T> {
        lock(&self.0).drain(..n).collect::<Vec<_>>().into_iter()
    }
}
