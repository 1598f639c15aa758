//! The worker's end of the connection, for two threads that write.

use std::os::unix::net::UnixStream;
use std::sync::TryLockError;

use super::connection::{refuse, send};
use crate::concurrency::{Mutex, lock};

/// Writes the frames of the thread of the hooks, and those of the reader, each as a whole.
#[derive(Debug)]
pub(super) struct Outlet {
    socket: Mutex<UnixStream>,
    /// Frames of the reader, which waits for no other thread: it has to notice the end of the coordinator.
    aside: Mutex<Vec<u8>>,
}

impl Outlet {
    pub(super) fn new(socket: UnixStream) -> Self {
        Outlet { socket: Mutex::new(socket), aside: Mutex::default() }
    }

    /// Sends a frame, and returns once it is written.
    pub(super) fn send(&self, frame: &[u8]) {
        send(&lock(&self.socket), frame);
        self.write_aside();
    }

    /// Sends a frame at once, or has the thread send it that writes now.
    pub(super) fn send_aside(&self, frame: &[u8]) {
        lock(&self.aside).extend_from_slice(frame);
        self.write_aside();
    }

    /// Says why this worker cannot serve, and ends it.
    pub(super) fn refuse(&self, reason: String) -> ! {
        refuse(&lock(&self.socket), reason)
    }

    fn write_aside(&self) {
        // Looked at again after the lock was left: meanwhile the other thread may have found it taken.
        while !lock(&self.aside).is_empty() {
            match self.socket.try_lock() {
                Ok(socket) => {
                    let frames = std::mem::take(&mut *lock(&self.aside));
                    send(&socket, &frames);
                }
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => {
                    unreachable!("nothing that panics runs under a lock of ours")
                }
            }
        }
    }
}
