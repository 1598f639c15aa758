//! Jobs that are read only when they are wanted.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::gate::Gate;
use super::inputs::{InputError, Jobs};
use super::job::Job;

/// The jobs of a lane, until its gate is closed.
pub(super) struct Gated {
    jobs: Jobs,
    gate: Arc<Gate>,
}

impl Gated {
    pub(super) fn new(jobs: Jobs, gate: Arc<Gate>) -> Gated {
        Gated { jobs, gate }
    }
}

impl Iterator for Gated {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let turn = self.gate.next_turn()?;
        match self.jobs.next()? {
            Ok(job) => Some(Ok(Job { turn: Some(turn), ..job })),
            // It ends the run, and what jobs print that come in any order is dropped then. Of a run that is being
            // ended it is no error: the input was cut off in the middle.
            Err(error) => self.gate.drain().then_some(Err(error)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.jobs.size_hint()
    }
}

/// A file that ends when a gate is closed, so that nobody waits for what a pipe or a person may say.
pub(super) struct UntilClosed {
    file: File,
    gate: Arc<Gate>,
}

impl UntilClosed {
    /// `None`, or `-`, is standard input.
    pub(super) fn open(path: Option<&Path>, gate: &Arc<Gate>) -> io::Result<UntilClosed> {
        let file = match path.filter(|path| *path != Path::new("-")) {
            Some(path) => File::open(path)?,
            None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        };
        Ok(UntilClosed { file, gate: Arc::clone(gate) })
    }
}

impl UntilClosed {
    pub(super) fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }
}

impl Read for UntilClosed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds =
                [PollFd::new(&*self.gate, PollFlags::IN), PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => return Ok(0),
                Ok(_) => return self.file.read(buffer),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
