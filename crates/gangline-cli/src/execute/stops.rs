//! Finds and reports jobs that have stopped, for example because they read from the terminal.

use std::fmt;
use std::iter;

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use rustix::process::Pid;

use crate::execute::groups::{Occupant, Transition};

/// A child that has stopped or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) pid: Pid,
    /// The signal that stopped it; `None` if it goes on.
    pub(crate) stopped_by: Option<Signal>,
}

impl Change {
    pub(crate) fn transition(self) -> Transition {
        match self.stopped_by {
            Some(_) => Transition::Stopped,
            None => Transition::Continued,
        }
    }
}

/// Returns the children that have stopped or gone on since the last call, and reaps none of them.
pub(crate) fn changes() -> impl Iterator<Item = Change> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WCONTINUED | WaitPidFlag::WNOHANG;
    iter::from_fn(move || {
        // The call fails only without children.
        let (pid, stopped_by) = match waitid(Id::All, flags) {
            Ok(WaitStatus::Stopped(pid, signal)) => (pid, Some(signal)),
            Ok(WaitStatus::Continued(pid)) => (pid, None),
            _ => return None,
        };
        Some(Change { pid: Pid::from_raw(pid.as_raw())?, stopped_by })
    })
}

/// The message about a job or a worker that has stopped: why, and what to do.
pub(crate) struct Stop {
    pub(crate) occupant: Occupant,
    pub(crate) pid: Pid,
    pub(crate) signal: Signal,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stop { occupant, pid, signal } = self;
        write!(f, "{occupant} has stopped ({signal})")?;
        match signal {
            Signal::SIGTTIN => f.write_str(
                ", since it reads from the terminal, which only the foreground may: give it a file or an argument \
                 instead; Ctrl-C ends it",
            ),
            Signal::SIGTTOU => f.write_str(
                ", since it changes the terminal or writes to it, which only the foreground may: redirect it to a \
                 file; Ctrl-C ends it",
            ),
            _ => write!(
                f,
                ": `kill -CONT -{}` continues it; Ctrl-C, or SIGINT to gangline, ends it",
                pid.as_raw_pid()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_why_and_what_to_do() {
        let pid = Pid::from_raw(71).unwrap();
        let said = |occupant, signal| Stop { occupant, pid, signal }.to_string();
        let reads = said(Occupant::Job(3), Signal::SIGTTIN);
        assert!(reads.starts_with("job 3 has stopped (SIGTTIN), since it reads from"), "{reads}");
        let worker = said(Occupant::Worker(0), Signal::SIGSTOP);
        assert!(worker.starts_with("the worker of slot 0 has stopped (SIGSTOP): `kill -CONT -71`"));
    }
}
