//! Plain lines, for output that is not a terminal.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// Writes periodic lines, and messages at once.
pub(super) struct ProgressLog {
    writer: Box<dyn Write + Send>,
    schedule: Schedule,
    warning: Warning,
}

/// The time at which the next line is due.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    next: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Warning {
    Due,
    Given,
}

/// Standard error. A write waits for the reader, also if a parent has made the stream non-blocking.
#[derive(Debug)]
pub(super) struct Stderr;

/// The interval between lines grows with the duration of the run, within these bounds.
const SHORTEST_SILENCE: Duration = Duration::from_secs(5);
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

impl ProgressLog {
    pub(super) fn new(writer: Box<dyn Write + Send>) -> Self {
        ProgressLog { writer, schedule: Schedule::new(), warning: Warning::Due }
    }

    /// Resets the schedule for the next run.
    pub(super) fn begin(&mut self) {
        self.schedule = Schedule::new();
    }

    /// Writes this line if one is due.
    pub(super) fn show(&mut self, at: Duration, line: impl FnOnce() -> String) {
        if self.schedule.is_due(at) {
            self.tell(&line());
        }
    }

    pub(super) fn tell(&mut self, line: &str) {
        // One call for the whole line, so that other processes do not write into it.
        let line = format!("{line}\n");
        let written = self.writer.write_all(line.as_bytes()).and_then(|()| self.writer.flush());
        if let Err(error) = written {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &io::Error) {
        if self.warning == Warning::Due {
            tracing::warn!(%error, "progress cannot be written; the run goes on");
            self.warning = Warning::Given;
        }
    }
}

impl Schedule {
    fn new() -> Self {
        Schedule { next: SHORTEST_SILENCE }
    }

    fn is_due(&mut self, at: Duration) -> bool {
        let is_due = at >= self.next;
        if is_due {
            self.next = at.saturating_add((at / 10).clamp(SHORTEST_SILENCE, LONGEST_SILENCE));
        }
        is_due
    }
}

impl fmt::Debug for ProgressLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        waiting(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls `write` again whenever standard error has room, while it fails for want of room.
fn waiting<T>(mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_less_often_the_longer_it_lasts() {
        let mut schedule = Schedule::new();
        let due: Vec<u64> =
            (0..2_000).filter(|s| schedule.is_due(Duration::from_secs(*s))).collect();
        assert_eq!(due[..5], [5, 10, 15, 20, 25]);
        assert_eq!(due[due.len() - 2..], [1_912, 1_972]);
        assert!(due.len() < 60, "{due:?}");
    }

    /// Only Linux says when there is room.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_finds_no_room_is_written_again() {
        let mut refusals = [io::ErrorKind::WouldBlock; 7].into_iter();
        let written = waiting(|| refusals.next().map_or(Ok("written"), |kind| Err(kind.into())));
        assert_eq!(written.unwrap(), "written");
    }

    #[test]
    fn a_pause_is_not_followed_by_extra_lines() {
        let mut schedule = Schedule::new();
        assert!(schedule.is_due(Duration::from_secs(33)));
        assert!(!schedule.is_due(Duration::from_secs(37)));
        assert!(schedule.is_due(Duration::from_secs(38)));
    }
}
