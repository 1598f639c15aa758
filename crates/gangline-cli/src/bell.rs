//! Wakes a thread that waits in `poll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::naming;

/// A descriptor that is readable from the time it is rung until it is silenced.
///
/// The bell is a pipe, since some containers refuse `eventfd`.
#[derive(Debug)]
pub(crate) struct PipeBell {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl PipeBell {
    pub(crate) fn new() -> io::Result<PipeBell> {
        let (reader, writer) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(naming("pipe2"))?;
        Ok(PipeBell { reader, writer })
    }

    pub(crate) fn ring(&self) {
        // Fails if the pipe is full; a full pipe is readable.
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    pub(crate) fn silence(&self) {
        // Fails once it is empty.
        while rustix::io::read(&self.reader, &mut [0_u8; 64]).is_ok_and(|read| read == 64) {}
    }
}

impl AsFd for PipeBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
