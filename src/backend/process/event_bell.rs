//! A bell that a wait in the kernel hears: an `eventfd`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

use crate::concurrency::bell::Bell;

/// A bell with a descriptor that is readable while it has rung.
#[derive(Debug)]
pub(super) struct EventBell(OwnedFd);

impl EventBell {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventBell(rustix::event::eventfd(0, flags)?))
    }

    /// Silences it. What was changed before the last ring can be seen now.
    pub(super) fn silence(&self) {
        // Fails if it has not rung.
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell for EventBell {
    fn ring(&self) {
        // Fails only if it has rung 2^64 - 2 times since it was last silenced.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
