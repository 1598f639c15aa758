//! What lets one thread be the feeder of a pipeline's first stage and the collector of its last.

use std::fmt;
use std::sync::OnceLock;

/// The signals between two hand-overs that one thread feeds and collects from. Empty in other runs.
#[derive(Default)]
pub(super) struct Across {
    /// In the first stage: wakes the thread, which sleeps as the collector of the last.
    pub(super) wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// In the last stage: whether the thread can go on as the feeder of the first.
    pub(super) is_ready: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Across {
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.get().is_some_and(|is_ready| is_ready())
    }
}

impl fmt::Debug for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Across").finish_non_exhaustive()
    }
}
