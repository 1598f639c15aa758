//! Counts what is open, and lets a task wait until nothing is.

use tokio::sync::watch;

/// The number of guards.
#[derive(Debug, Clone)]
pub(crate) struct OpenCount(watch::Sender<usize>);

/// One of those that are counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenGuard(watch::Sender<usize>);

impl OpenCount {
    pub(crate) fn new() -> OpenCount {
        OpenCount(watch::Sender::new(0))
    }

    pub(crate) fn begin(&self) -> OpenGuard {
        self.0.send_modify(|count| *count += 1);
        OpenGuard(self.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until there is none.
    pub(crate) async fn none(&self) {
        // The sender is `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
