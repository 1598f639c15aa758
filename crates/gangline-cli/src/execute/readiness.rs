//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until a descriptor is ready, at most `longest`, and returns which are. Absent ones are never ready;
/// after a signal, none is.
pub(crate) fn ready<const N: usize>(
    watched: [Option<(BorrowedFd<'_>, PollFlags)>; N],
    longest: Option<Duration>,
) -> io::Result<[bool; N]> {
    let present = watched.iter().flatten();
    let mut fds: Vec<PollFd<'_>> =
        present.map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    match poll(&mut fds, longest.map(timespec).as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok([false; N]),
        Err(error) => return Err(error.into()),
    }
    // In the order of `watched`, but absent entries have no place in `fds`.
    let mut fds = fds.iter();
    Ok(watched.map(|fd| fd.and_then(|_| fds.next()).is_some_and(|fd| !fd.revents().is_empty())))
}

/// A timeout for `ppoll`, in nanoseconds; zero means to check without waiting.
pub(crate) fn timespec(time: Duration) -> Timespec {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_timeout_does_not_wait() {
        let none = timespec(Duration::ZERO);
        assert_eq!((none.tv_sec, none.tv_nsec), (0, 0), "each message to a warm worker asks so");
        let some = timespec(Duration::from_micros(2_000_001));
        assert_eq!((some.tv_sec, some.tv_nsec), (2, 1_000));
    }
}
