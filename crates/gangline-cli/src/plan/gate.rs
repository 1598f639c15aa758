//! The gate that decides which jobs may start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::bell::Bell;

/// Lets jobs start while it is open, and reports when all started jobs have ended.
///
/// A job is read only after the one before it was started. So at most one is waiting when the gate closes,
/// and it is the last: no ordered result waits for it.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// Rung when the gate closes, for a reader that waits for input.
    closing: Bell,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that were read and not started: one at most.
    waiting: u64,
    started: u64,
    ended: u64,
    passage: Passage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Passage {
    /// No job may start yet, since the run may still be refused.
    #[default]
    Shut,
    Open,
    /// No further job may start.
    Closed,
    /// No further job may start, and running jobs are not waited for.
    Abandoned,
}

impl Passage {
    fn may_start(self) -> bool {
        matches!(self, Passage::Shut | Passage::Open)
    }
}

/// The turn of one job that was read. Dropping it before the job starts, as for a job that is already done,
/// makes room for the next.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Arc<Gate>,
    is_started: AtomicBool,
}

impl Turn {
    /// Asks to start the job, also for a second attempt on another slot. It is refused only when every
    /// started job has ended, since a refused job ends the run.
    pub(crate) fn start(&self) -> Admission {
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

/// Whether a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Started,
    /// It never will.
    Refused,
}

/// Whether started jobs have yet to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Some,
    /// No job runs, and none will start: the run is to be cancelled, and the gate abandoned.
    None,
}

impl Gate {
    pub(crate) fn new() -> io::Result<Gate> {
        Ok(Gate { state: Mutex::default(), changed: Condvar::new(), closing: Bell::new()? })
    }

    /// Waits until another job is wanted; returns `None` if none ever will be.
    pub(crate) fn next_turn(self: &Arc<Self>) -> Option<Arc<Turn>> {
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

    /// Waits until all started jobs have ended and their outputs are written. Returns whether the gate is
    /// open then.
    pub(crate) fn drain(&self) -> bool {
        let is_busy = |state: &mut State| state.passage.may_start() && state.started > state.ended;
        let state = self.changed.wait_while(self.state(), is_busy);
        state.expect("nothing panics with the lock held").passage.may_start()
    }

    /// Opens the gate, unless it is closed for good.
    pub(crate) fn open(&self) {
        let mut state = self.state();
        if state.passage == Passage::Shut {
            state.passage = Passage::Open;
        }
        self.changed.notify_all();
    }

    /// A started job has ended, and its output was written.
    pub(crate) fn end(&self) -> Rest {
        let mut state = self.state();
        state.ended += 1;
        self.changed.notify_all();
        Gate::rest(&state)
    }

    /// Lets no further job start.
    pub(crate) fn close(&self) -> Rest {
        let mut state = self.state();
        if state.passage.may_start() {
            state.passage = Passage::Closed;
        }
        self.closing.ring();
        self.changed.notify_all();
        Gate::rest(&state)
    }

    /// Lets no further job start, and waits for none: the run has failed.
    pub(crate) fn abandon(&self) {
        self.state().passage = Passage::Abandoned;
        self.closing.ring();
        self.changed.notify_all();
    }

    /// Waits up to `time`, or until the gate closes. Returns whether it is still open.
    pub(crate) fn pause(&self, time: Duration) -> bool {
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

/// A descriptor that is readable once the gate is closed.
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
        assert!(!gate.drain(), "the first caller was told that nothing remains");
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
