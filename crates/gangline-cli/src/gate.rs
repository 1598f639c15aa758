//! What may still be started.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::bell::Bell;

/// Lets jobs be started from when it is opened until it is closed, and then sees when those that were have ended.
///
/// A job is read only when the one before it was started. So at most one is waiting when the gate closes, and
/// it is the last: no result in order has to wait for it.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// Rung when it closes, for a reader that waits for input.
    closing: Bell,
}

#[derive(Debug, Default)]
struct State {
    /// How many were read and not started: one at most.
    waiting: u64,
    started: u64,
    ended: u64,
    passage: Passage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Passage {
    /// No job is started yet, since the run may still be refused.
    #[default]
    Shut,
    Open,
    /// No job is started any more.
    Closed,
    /// And none that was is waited for.
    Abandoned,
}

impl Passage {
    fn may_start(self) -> bool {
        matches!(self, Passage::Shut | Passage::Open)
    }
}

/// The turn of one job that was read. Dropped before the job was started, as for one that was done in an earlier
/// run, it makes room for the next.
#[derive(Debug)]
pub(super) struct Turn {
    gate: Arc<Gate>,
    is_started: AtomicBool,
}

impl Turn {
    /// Asks to start the job; again, where another worker has failed at it. Refused only when everything that
    /// was started has ended, since a job that is given up ends the run.
    pub(super) fn start(&self) -> Admission {
        if self.is_started.load(Ordering::SeqCst) {
            return Admission::Started;
        }
        let mut state = self.gate.state();
        while matches!(state.passage, Passage::Shut | Passage::Closed) {
            state = self.gate.changed.wait(state).expect("nothing panics with the lock held");
        }
        if state.passage == Passage::Abandoned {
            return Admission::Refused;
        }
        self.is_started.store(true, Ordering::SeqCst);
        state.waiting -= 1;
        state.started += 1;
        self.gate.changed.notify_all();
        Admission::Started
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_started.load(Ordering::SeqCst) {
            self.gate.state().waiting -= 1;
            self.gate.changed.notify_all();
        }
    }
}

/// Whether a job may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Started,
    /// It never will be.
    Refused,
}

/// Whether jobs that were started have yet to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Some,
    /// None has, and none will be started: the run is to be cancelled, and the gate abandoned.
    None,
}

impl Gate {
    pub(super) fn new() -> io::Result<Gate> {
        Ok(Gate { state: Mutex::default(), changed: Condvar::new(), closing: Bell::new()? })
    }

    /// Waits until another job is wanted; `None` if none ever will be.
    pub(super) fn next_turn(self: &Arc<Self>) -> Option<Arc<Turn>> {
        let mut state = self.state();
        while state.passage.may_start() && state.waiting > 0 {
            state = self.changed.wait(state).expect("nothing panics with the lock held");
        }
        if !state.passage.may_start() {
            return None;
        }
        state.waiting += 1;
        Some(Arc::new(Turn { gate: Arc::clone(self), is_started: AtomicBool::new(false) }))
    }

    /// Waits until all that were started have ended, and their outputs are written: whether it is open then.
    pub(super) fn drain(&self) -> bool {
        let is_busy = |state: &mut State| state.passage.may_start() && state.started > state.ended;
        let state = self.changed.wait_while(self.state(), is_busy);
        state.expect("nothing panics with the lock held").passage.may_start()
    }

    /// Jobs may be started from now on, unless none may any more.
    pub(super) fn open(&self) {
        let mut state = self.state();
        if state.passage == Passage::Shut {
            state.passage = Passage::Open;
        }
        self.changed.notify_all();
    }

    /// One that was started has ended, and its output was written.
    pub(super) fn end(&self) -> Rest {
        let mut state = self.state();
        state.ended += 1;
        self.changed.notify_all();
        Gate::rest(&state)
    }

    /// Starts nothing any more.
    pub(super) fn close(&self) -> Rest {
        let mut state = self.state();
        if state.passage.may_start() {
            state.passage = Passage::Closed;
        }
        self.closing.ring();
        self.changed.notify_all();
        Gate::rest(&state)
    }

    /// Starts nothing any more, and waits for nothing: the run has failed.
    pub(super) fn abandon(&self) {
        self.state().passage = Passage::Abandoned;
        self.closing.ring();
        self.changed.notify_all();
    }

    /// Waits so long, or until it is closed: whether it is still open.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let is_open = |state: &mut State| state.passage == Passage::Open;
        let waited = self.changed.wait_timeout_while(self.state(), time, is_open);
        let (state, _) = waited.expect("nothing panics with the lock held");
        state.passage == Passage::Open
    }

    fn rest(state: &State) -> Rest {
        match state.passage.may_start() || state.started > state.ended {
            true => Rest::Some,
            false => Rest::None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock held")
    }
}

/// Readable once the gate is closed.
impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.closing.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn gate() -> Arc<Gate> {
        let gate = Arc::new(Gate::new().unwrap());
        gate.open();
        gate
    }

    #[test]
    fn nothing_is_started_before_it_is_opened() {
        let gate = Arc::new(Gate::new().unwrap());
        let first = gate.next_turn().unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| first.start());
            gate.open();
            assert_eq!(first.join().unwrap(), Admission::Started);
        });
    }

    #[test]
    fn what_was_never_opened_can_be_closed() {
        let gate = Arc::new(Gate::new().unwrap());
        let first = gate.next_turn().unwrap();
        assert_eq!(gate.close(), Rest::None);
        gate.open();
        gate.abandon();
        assert_eq!(first.start(), Admission::Refused);
    }

    #[test]
    fn it_is_drained_when_what_was_started_has_ended() {
        let gate = gate();
        gate.next_turn().unwrap().start();
        let _next = gate.next_turn().unwrap();
        thread::scope(|scope| {
            let drained = scope.spawn(|| gate.drain());
            gate.end();
            assert!(drained.join().unwrap());
        });
        gate.close();
        assert!(!gate.drain(), "whoever is told has nothing more to say");
    }

    #[test]
    fn one_job_is_read_ahead() {
        let gate = gate();
        let first = gate.next_turn().unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| gate.next_turn());
            assert_eq!(first.start(), Admission::Started);
            assert!(second.join().unwrap().is_some());
        });
    }

    #[test]
    fn what_waits_is_refused_when_the_others_have_ended() {
        let gate = gate();
        gate.next_turn().unwrap().start();
        let second = gate.next_turn().unwrap();
        assert_eq!(gate.close(), Rest::Some, "one is running");
        thread::scope(|scope| {
            let second = scope.spawn(|| second.start());
            assert_eq!(gate.end(), Rest::None);
            gate.abandon();
            assert_eq!(second.join().unwrap(), Admission::Refused);
        });
        assert!(gate.next_turn().is_none());
    }

    #[test]
    fn a_job_that_is_left_out_makes_room_for_the_next() {
        let gate = gate();
        drop(gate.next_turn().unwrap());
        assert!(gate.next_turn().is_some());
    }

    #[test]
    fn a_job_is_started_once() {
        let gate = gate();
        let first = gate.next_turn().unwrap();
        first.start();
        assert_eq!(first.start(), Admission::Started, "by another worker");
        assert_eq!(gate.end(), Rest::Some, "more may come");
        assert_eq!(gate.close(), Rest::None);
    }

    #[test]
    fn a_run_that_failed_is_not_waited_for() {
        let gate = gate();
        gate.next_turn().unwrap().start();
        let second = gate.next_turn().unwrap();
        gate.abandon();
        assert_eq!(second.start(), Admission::Refused);
        assert!(gate.next_turn().is_none());
    }
}
