//! Helpers that force an order of events, and turn a hang into a failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Generous, since it only tells a hang from a slow machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Runs `f` on a thread of its own, and fails if it takes longer than [`LIMIT`].
#[track_caller]
pub fn no_hang<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let thread = thread::spawn(move || {
        // The test has failed already if the receiver is gone.
        let _ = done.send(f());
    });
    match result.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("it ended without sending"),
        },
    }
}

/// Closed until a thread opens it, then open for ever.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Waits until the gate is open; fails if that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn pass(&self) {
        let open = self.open.lock().unwrap();
        let (open, _) = self.opened.wait_timeout_while(open, LIMIT, |open| !*open).unwrap();
        assert!(*open, "the gate stays closed");
    }
}

/// A number that can be waited for.
#[derive(Debug, Default)]
pub struct Counter {
    value: Mutex<u64>,
    changed: Condvar,
}

impl Counter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&self, n: u64) -> u64 {
        let mut value = self.value.lock().unwrap();
        *value += n;
        self.changed.notify_all();
        *value
    }

    pub fn get(&self) -> u64 {
        *self.value.lock().unwrap()
    }

    /// Waits until the number is at least `n`; fails if that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn reach(&self, n: u64) {
        let value = self.value.lock().unwrap();
        let (value, _) = self.changed.wait_timeout_while(value, LIMIT, |value| *value < n).unwrap();
        assert!(*value >= n, "only {value} of {n}");
    }
}
