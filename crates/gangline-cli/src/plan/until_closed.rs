//! A file that ends when a gate closes.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::plan::gate::Gate;

/// A file that ends when a gate closes, so that no thread waits for a pipe or a terminal.
pub(crate) struct UntilClosed {
    file: File,
    gate: Arc<Gate>,
}

impl UntilClosed {
    /// `-` is standard input.
    pub(crate) fn open(path: &Path, gate: &Arc<Gate>) -> io::Result<UntilClosed> {
        let file = match path == Path::new("-") {
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => File::open(path)?,
        };
        Ok(UntilClosed { file, gate: Arc::clone(gate) })
    }
}

impl Read for UntilClosed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds =
                [PollFd::new(&*self.gate, PollFlags::IN), PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => return Ok(0),
                Ok(_) => match self.file.read(buffer) {
                    // Another reader of a non-blocking stream was faster.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                },
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
