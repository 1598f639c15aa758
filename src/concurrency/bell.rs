//! Bells: how other threads wake one that waits in the kernel.

use std::fmt;
use std::sync::Arc;

use crate::concurrency::{Mutex, lock};

/// Wakes one thread, however it waits. It does not block and takes no lock.
pub trait Bell: fmt::Debug + Send + Sync {
    /// Wakes the thread.
    fn ring(&self);
}

/// The bells of the threads that want to hear of a change.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<Vec<Arc<dyn Bell>>>);

impl Bells {
    /// Adds a bell, once. Changes after this call ring it.
    pub(crate) fn add(&self, bell: &Arc<dyn Bell>) {
        let mut bells = lock(&self.0);
        if !bells.iter().any(|it| Arc::ptr_eq(it, bell)) {
            bells.push(bell.clone());
        }
    }

    pub(crate) fn ring(&self) {
        lock(&self.0).iter().for_each(|bell| bell.ring());
    }
}
