//! The standard streams.

use std::io::{self, LineWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use crate::error::CliError;
use crate::exit;

/// Standard output or standard error, for writers that wait for its reader.
///
/// The standard library fails with `WouldBlock` if a parent has made the stream non-blocking, as Node does.
#[derive(Debug)]
pub(crate) struct Stdio(BorrowedFd<'static>);

/// Standard output.
pub(crate) fn stdout() -> LineWriter<Stdio> {
    LineWriter::new(Stdio(rustix::stdio::stdout()))
}

/// Standard error.
pub(crate) fn stderr() -> LineWriter<Stdio> {
    LineWriter::new(Stdio(rustix::stdio::stderr()))
}

/// Whether a write of a job to either stream waits for its reader.
pub(crate) fn are_blocking() -> bool {
    let streams = [rustix::stdio::stdout(), rustix::stdio::stderr()];
    let is_nonblocking = |fd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    !streams.into_iter().any(is_nonblocking)
}

impl Write for Stdio {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                Ok(written) => return Ok(written),
                Err(Errno::AGAIN) => wait_for_reader(self.0)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wait_for_reader(fd: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether standard input was closed at the start. Both variables are set before `main`.
static STDIN_IS_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks before the standard library opens `/dev/null` in the place of a closed descriptor, after which
/// nothing tells the two apart.
#[ctor::ctor]
fn look_at_streams() {
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdin()).is_ok();
    STDIN_IS_CLOSED.store(!is_open, Ordering::Relaxed);
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_ok();
    STDOUT_IS_CLOSED.store(!is_open, Ordering::Relaxed);
}

/// Whether a file of inputs is standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Fails if standard input was closed when the program was started. It would look like an input without lines.
pub(crate) fn check_stdin() -> Result<(), CliError> {
    match STDIN_IS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(CliError::new(
            exit::INPUT,
            "standard input is closed, and inputs are read from it: for no inputs, write < /dev/null",
        )),
    }
}

/// Fails if standard output was closed when the program was started: all that is printed would be lost.
pub(crate) fn check_stdout() -> Result<(), CliError> {
    match STDOUT_IS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(CliError::new(
            exit::OUTPUT,
            "standard output is closed, and what is printed would be lost: to drop it, write > /dev/null",
        )),
    }
}
