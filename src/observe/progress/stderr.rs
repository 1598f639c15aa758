//! Standard error, for a display that waits for its reader.

use std::io::{self, Write};

/// Standard error. A write waits for the reader, also if a parent has made the stream non-blocking.
#[derive(Debug)]
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        waiting(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls `write` again whenever standard error has room, while it fails for want of room.
pub(super) fn waiting<T>(mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(error)?,
            written => return written,
        }
    }
}

#[cfg(target_os = "linux")]
fn wait_for_room(_: io::Error) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    let stderr = io::stderr();
    match poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_room(refused: io::Error) -> io::Result<()> {
    Err(refused)
}
