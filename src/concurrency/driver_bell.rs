//! The bell that wakes the thread or task that drives a run.

use std::task::Waker;

use super::{Mutex, lock};

/// Wakes the thread or task that drives a run, or all runs of a pipeline. Its waker must not panic.
///
/// A driver keeps its waker before it looks for anything: what happens later wakes it. A ring takes the waker, so
/// the driver keeps it again before its next look.
#[derive(Debug, Default)]
pub(crate) struct DriverBell(Mutex<Option<Waker>>);

impl DriverBell {
    pub(crate) fn keep(&self, waker: &Waker) {
        let old = lock(&self.0).replace(waker.clone());
        drop(old);
    }

    pub(crate) fn ring(&self) {
        let waker = lock(&self.0).take();
        waker.into_iter().for_each(Waker::wake);
    }
}
