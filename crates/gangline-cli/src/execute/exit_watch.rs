//! A descriptor that reports the end of a child.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::error::naming;

/// A descriptor that is readable once a child has ended.
///
/// It must be closed before the child is reaped, because then another child may get the same number.
#[derive(Debug)]
pub(crate) struct ExitWatch(Way);

#[derive(Debug)]
enum Way {
    Pidfd(OwnedFd),
    /// A thread waits for the child, and closes its end of the pipe. Old containers refuse `pidfd_open`.
    Thread(PipeReader, JoinHandle<()>),
}

impl ExitWatch {
    pub(crate) fn new(child: Pid) -> io::Result<ExitWatch> {
        match pidfd_open(child, PidfdFlags::empty()) {
            Ok(fd) => Ok(ExitWatch(Way::Pidfd(fd))),
            Err(_) => ExitWatch::by_thread(child),
        }
    }

    fn by_thread(child: Pid) -> io::Result<ExitWatch> {
        // If `waitid` is refused too, the thread would report a running child as ended.
        wait(child, WaitIdOptions::NOHANG).map_err(naming("waitid"))?;
        let (reader, writer) = io::pipe()?;
        let thread = thread::Builder::new().name("gangline-exit".into()).spawn(move || {
            // The wait fails only if the child is gone.
            let _ = wait(child, WaitIdOptions::empty());
            drop(writer);
        })?;
        Ok(ExitWatch(Way::Thread(reader, thread)))
    }

    /// Waits for the end of the child, which has been killed.
    pub(crate) fn close(self) {
        if let Way::Thread(_, thread) = self.0 {
            thread.join().expect("the thread does not panic");
        }
    }
}

impl AsFd for ExitWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Way::Pidfd(fd) => fd.as_fd(),
            Way::Thread(reader, _) => reader.as_fd(),
        }
    }
}

/// Waits for the end of a child, and leaves it to be reaped.
fn wait(child: Pid, options: WaitIdOptions) -> Result<(), Errno> {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(child), options) {
            Err(Errno::INTR) => {}
            ended => return ended.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::event::PollFlags;

    use super::*;
    use crate::execute::readiness::ready;

    #[track_caller]
    fn is_seen(watch: fn(Pid) -> io::Result<ExitWatch>, script: &str) {
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let watch = watch(Pid::from_child(&child)).unwrap();
        let is_over = |longest| ready([Some((watch.as_fd(), PollFlags::IN))], longest).unwrap()[0];
        assert!(!is_over(Some(Duration::ZERO)), "{script}");
        drop(child.stdin.take());
        while !is_over(None) {}
        watch.close();
        assert!(!child.wait().unwrap().success(), "it has not been reaped");
    }

    #[test]
    fn the_end_of_a_child_is_seen_in_both_ways() {
        for script in ["read x; exit 3", "read x; kill -9 $$", "cat | cat; false"] {
            is_seen(ExitWatch::new, script);
            is_seen(ExitWatch::by_thread, script);
        }
    }
}
