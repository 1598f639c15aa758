//! Wakers of the user's, which are called and dropped where a panic would do harm.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::panic::{catch, drop_quietly};

/// A waker that lets no panic out.
struct Quiet(Option<Waker>);

/// Wraps the waker of a task, so that the hand-over may call it.
pub(crate) fn quiet(waker: &Waker) -> Waker {
    Waker::from(Arc::new(Quiet(Some(waker.clone()))))
}

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(waker) = &self.0
            && let Err(message) = catch(|| waker.wake_by_ref())
        {
            tracing::warn!(%message, "a waker panicked");
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}
