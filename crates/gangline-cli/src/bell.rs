//! Wakes a thread that waits in `poll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable from the time it is rung until it is silenced.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // Fails if it was rung 2^64 times, and it is readable then anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        // Fails if it was not rung.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
