//! How a thread that is attached to Python waits for the library.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use gangline::crossbeam_channel::{TryRecvError, bounded};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// How long a wait goes on before it looks for signals that went to another thread. Mostly a signal interrupts it.
const LOOK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A bell for one waiting thread. The library rings it through a waker.
pub(crate) struct EventWait {
    bell: Arc<EventBell>,
    waker: Waker,
}

struct EventBell(OwnedFd);

impl EventWait {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(EventBell(fd));
        Ok(EventWait { waker: Waker::from(bell.clone()), bell })
    }

    /// The waker that ends a wait.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The descriptor of the bell: it can be read from once it has rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    /// Waits until the bell rings, or for a signal, and silences it. For a detached thread, to which signals do not matter.
    pub(crate) fn block(&self) {
        self.bell.wait(None);
    }

    /// Silences the bell, if it has rung.
    pub(crate) fn silence(&self) {
        self.bell.silence();
    }

    /// Polls until there is something. Meanwhile the thread is detached from Python, and signals are handled.
    ///
    /// # Errors
    ///
    /// What a handler of a signal raises, such as `KeyboardInterrupt`.
    pub(crate) fn until<T: Send>(
        &self,
        py: Python<'_>,
        mut polled: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
    ) -> PyResult<T> {
        loop {
            let found = py.detach(|| {
                let mut cx = Context::from_waker(&self.waker);
                if let Poll::Ready(found) = polled(&mut cx) {
                    return Some(found);
                }
                self.bell.wait(Some(&LOOK_AFTER));
                None
            });
            match found {
                Some(found) => return Ok(found),
                None => py.check_signals()?,
            }
        }
    }
}

impl EventBell {
    /// Waits for the bell, a signal or at most so long, and silences the bell.
    fn wait(&self, most: Option<&Timespec>) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        // Interrupted: as if it had rung.
        if poll(&mut fds, most).is_ok() {
            self.silence();
        }
    }

    fn silence(&self) {
        // Fails if it has not rung.
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for EventBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Fails only if it has rung 2^64 - 2 times since it was last silenced.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Calls a function that blocks on a thread of its own. Signals are handled meanwhile: if their handler raises, the
/// thread is left to itself. A panic of the function goes on.
pub(crate) fn in_background<T: Send + 'static>(
    py: Python<'_>,
    f: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let wait = EventWait::new()?;
    let (put, result) = bounded(1);
    let waker = wait.waker().clone();
    let name = "gangline-python".to_owned();
    let thread = thread::Builder::new().name(name).spawn(move || {
        // The receiver is gone if a signal has ended the wait.
        _ = put.send(f());
        waker.wake();
    })?;
    // A panic drops the sender, and is found at the next look.
    let result = wait.until(py, |_| match result.try_recv() {
        Ok(result) => Poll::Ready(Some(result)),
        Err(TryRecvError::Disconnected) => Poll::Ready(None),
        Err(TryRecvError::Empty) => Poll::Pending,
    })?;
    py.detach(|| thread.join()).unwrap_or_else(|payload| resume_unwind(payload));
    Ok(result.expect("the thread has sent it, or has panicked"))
}
