//! The gate that decides which jobs may start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::bell::PipeBell;
use crate::locking::lock;
use crate::plan::heads::Heads;

/// Lets jobs start while it is open, and reports when all started jobs have ended.
///
/// No more jobs are read than one list holds before the first of them was started, and a job starts together with
/// all that were read before it. So what is waiting when the gate closes is the last: no ordered result waits for it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The number of jobs that may wait: those of one list.
    most_waiting: usize,
    state: Mutex<GateState>,
    changed: Condvar,
    /// Notified when a job has ended while `drain` waits, and when the gate closes. Waking the reader of jobs at
    /// each end would cost every job a switch of threads.
    ended: Condvar,
    /// Rung when the gate closes, for a reader that waits for input.
    closing: PipeBell,
    /// Set if each job prints its lines when those of the jobs before it are printed.
    heads: OnceLock<Heads>,
}

#[derive(Debug, Default)]
struct GateState {
    /// Jobs that were read and not started, in the order of their turns.
    waiting: Vec<u64>,
    /// The number of turns that were given.
    turns: u64,
    started: u64,
    ended: u64,
    /// The last turn that was dropped before its job started, and the thread that dropped it.
    left_out: Option<(u64, ThreadId)>,
    /// Whether the last job was read.
    is_exhausted: bool,
    /// Whether a job that was read was dropped since no further one may start.
    has_refused: bool,
    /// Whether `drain` waits for the ends of jobs.
    is_draining: bool,
    /// Changes when a job that is held back should look again.
    nudges: u64,
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
    /// Its place in the order of all turns.
    pub(crate) place: u64,
    /// The number of the job, once it was read.
    number: OnceLock<u64>,
    /// Which of the jobs with the same content it is, from 0.
    pub(crate) occurrence: OnceLock<u64>,
}

impl Turn {
    /// Asks to start the last job of a list with that first one, and with it all that were read before it: they are in
    /// the hands of other slots, or next. Once it has started, asking again changes nothing. It is refused only when
    /// every started job has ended, since a refused job ends the run. If the first has started, so do the others: it
    /// could not end before them. So they do at a closed gate if a started job needs their slot to end.
    pub(crate) fn start_list(&self, first: &Turn, needs_slot: &dyn Fn() -> bool) -> Admission {
        let mut state = lock(&self.gate.state);
        loop {
            match state.passage {
                _ if !self.is_waiting(&state) => return Admission::Started,
                Passage::Abandoned => return Admission::Refused,
                Passage::Closed if !first.is_waiting(&state) => break,
                Passage::Closed if needs_slot() => break,
                Passage::Open => break,
                Passage::Shut | Passage::Closed => {}
            }
            state = self.gate.changed.wait(state).expect("nothing panics with the lock held");
        }
        let before = state.waiting.partition_point(|place| *place <= self.place);
        state.waiting.drain(..before);
        state.started += before as u64;
        // The reader of jobs would wait for the lock as soon as it is woken.
        drop(state);
        self.gate.changed.notify_all();
        Admission::Started
    }

    /// The job was read.
    pub(crate) fn belongs_to(&self, number: u64) {
        if self.number.set(number).is_ok()
            && let Some(heads) = self.gate.heads.get()
        {
            heads.add(number);
        }
    }

    fn is_waiting(&self, state: &GateState) -> bool {
        state.waiting.binary_search(&self.place).is_ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.gate.state);
        if let Ok(at) = state.waiting.binary_search(&self.place) {
            state.waiting.remove(at);
            // The turn in which the reader finds no job has no number.
            state.has_refused |= !state.passage.may_start() && self.number.get().is_some();
            state.left_out = Some((self.place, thread::current().id()));
            drop(state);
            self.gate.changed.notify_all();
            if let (Some(heads), Some(number)) = (self.gate.heads.get(), self.number.get()) {
                heads.remove(*number);
            }
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
    /// A gate before which that number of jobs may wait.
    pub(crate) fn new(most_waiting: usize) -> io::Result<Gate> {
        let (state, changed, ended, heads) = Default::default();
        Ok(Gate { most_waiting, state, changed, ended, closing: PipeBell::new()?, heads })
    }

    /// Keeps the order of the jobs that print while they run. To be called before jobs are read.
    pub(crate) fn keep_heads(&self) -> &Heads {
        self.heads.get_or_init(Heads::default)
    }

    /// The jobs that may print while they run, in order; `None` if none does.
    pub(crate) fn heads(&self) -> Option<&Heads> {
        self.heads.get()
    }

    /// Waits until another job is wanted; returns `None` if none ever will be.
    pub(crate) fn next_turn(self: &Arc<Self>) -> Option<Arc<Turn>> {
        let mut state = lock(&self.state);
        while state.passage.may_start() && state.waiting.len() >= self.most_waiting {
            state = self.changed.wait(state).expect("nothing panics with the lock held");
        }
        if !state.passage.may_start() {
            return None;
        }
        let place = state.turns;
        state.turns += 1;
        state.waiting.push(place);
        let (number, occurrence) = Default::default();
        Some(Arc::new(Turn { gate: Arc::clone(self), place, number, occurrence }))
    }

    /// Whether the job of this turn was dropped because an earlier run had done it.
    ///
    /// The library drops such a job on the thread that reads jobs, which calls this method, while the gate is open. A
    /// run that is ending drops jobs too, but behind a closed gate or on other threads.
    pub(crate) fn has_left_out(&self, place: u64) -> bool {
        let state = lock(&self.state);
        state.passage.may_start() && state.left_out == Some((place, thread::current().id()))
    }

    /// There is no further job.
    pub(crate) fn exhaust(&self) {
        lock(&self.state).is_exhausted = true;
    }

    /// Whether all jobs were read, and all of those were started.
    pub(crate) fn has_started_all(&self) -> bool {
        let state = lock(&self.state);
        state.is_exhausted && !state.has_refused && state.waiting.is_empty()
    }

    /// Waits while no job may start yet. Returns whether jobs may start now.
    pub(crate) fn opened(&self) -> bool {
        let is_shut = |state: &mut GateState| state.passage == Passage::Shut;
        let state = self.changed.wait_while(lock(&self.state), is_shut);
        state.expect("nothing panics with the lock held").passage == Passage::Open
    }

    /// Whether jobs may start, now or later.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.state).passage.may_start()
    }

    pub(crate) fn nudges(&self) -> u64 {
        lock(&self.state).nudges
    }

    /// Makes a job that is held back look again.
    pub(crate) fn nudge(&self) {
        lock(&self.state).nudges += 1;
        self.changed.notify_all();
    }

    /// Waits up to `time`, or until there are more nudges than `seen`, or the gate closes. Returns whether it
    /// is still open.
    pub(crate) fn rest_until_nudged(&self, seen: u64, time: Duration) -> bool {
        let is_quiet =
            |state: &mut GateState| state.passage == Passage::Open && state.nudges == seen;
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, is_quiet);
        let (state, _) = waited.expect("nothing panics with the lock held");
        state.passage == Passage::Open
    }

    /// Waits until all jobs that were read have ended and their outputs are written, but for the caller's own
    /// turn. Returns whether the gate is open then.
    pub(crate) fn drain(&self) -> bool {
        let is_left = |state: &GateState| state.started > state.ended || state.waiting.len() > 1;
        let is_busy = |state: &mut GateState| state.passage.may_start() && is_left(state);
        let mut state = lock(&self.state);
        state.is_draining = true;
        let state = self.ended.wait_while(state, is_busy);
        state.expect("nothing panics with the lock held").passage.may_start()
    }

    /// Opens the gate, unless it is closed for good.
    pub(crate) fn open(&self) {
        let mut state = lock(&self.state);
        if state.passage == Passage::Shut {
            state.passage = Passage::Open;
        }
        self.changed.notify_all();
    }

    /// A started job has ended, and its output was written.
    pub(crate) fn end(&self) -> Rest {
        let mut state = lock(&self.state);
        state.ended += 1;
        if state.is_draining {
            self.ended.notify_all();
        }
        Gate::rest(&state)
    }

    /// Lets no further job start.
    pub(crate) fn close(&self) -> Rest {
        let mut state = lock(&self.state);
        if state.passage.may_start() {
            state.passage = Passage::Closed;
        }
        self.closing.ring();
        self.changed.notify_all();
        self.ended.notify_all();
        Gate::rest(&state)
    }

    /// Lets no further job start, and waits for none: the run has failed.
    pub(crate) fn abandon(&self) {
        lock(&self.state).passage = Passage::Abandoned;
        self.closing.ring();
        self.changed.notify_all();
        self.ended.notify_all();
    }

    /// Waits up to `time`, or until the gate closes. Returns whether it is still open.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let is_open = |state: &mut GateState| state.passage == Passage::Open;
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, is_open);
        let (state, _) = waited.expect("nothing panics with the lock held");
        state.passage == Passage::Open
    }

    fn rest(state: &GateState) -> Rest {
        match state.passage.may_start() || state.started > state.ended {
            true => Rest::Some,
            false => Rest::None,
        }
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

    impl Turn {
        fn start(&self) -> Admission {
            self.start_list(self, &|| false)
        }
    }

    fn gate() -> Arc<Gate> {
        gate_of_lists(1)
    }

    fn gate_of_lists(most: usize) -> Arc<Gate> {
        let gate = Arc::new(Gate::new(most).unwrap());
        gate.open();
        gate
    }

    #[test]
    fn a_list_is_read_ahead_and_starts_together() {
        let gate = gate_of_lists(3);
        let turns: Vec<_> = (0..3).map(|_| gate.next_turn().unwrap()).collect();
        drop(turns[1].clone());
        assert_eq!(turns[1].start(), Admission::Started);
        assert_eq!(gate.close(), Rest::Some);
        assert_eq!(turns[0].start(), Admission::Started, "with the one after it");
        assert_eq!([gate.end(), gate.end()], [Rest::Some, Rest::None]);
        gate.abandon();
        assert_eq!(turns[2].start(), Admission::Refused);
    }

    #[test]
    fn nothing_is_started_before_it_is_opened() {
        let gate = Arc::new(Gate::new(1).unwrap());
        let first = gate.next_turn().unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| first.start());
            gate.open();
            assert_eq!(first.join().unwrap(), Admission::Started);
        });
    }

    #[test]
    fn what_was_never_opened_can_be_closed() {
        let gate = Arc::new(Gate::new(1).unwrap());
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
    fn a_job_starts_if_another_needs_its_slot() {
        let gate = gate();
        gate.next_turn().unwrap().start();
        let second = gate.next_turn().unwrap();
        gate.close();
        assert_eq!(second.start_list(&second, &|| true), Admission::Started);
        assert_eq!([gate.end(), gate.end()], [Rest::Some, Rest::None]);
    }

    #[test]
    fn a_job_that_is_left_out_makes_room_for_the_next() {
        let gate = gate();
        drop(gate.next_turn().unwrap());
        assert!(gate.next_turn().is_some());
    }

    #[test]
    fn only_what_the_reader_drops_at_an_open_gate_is_left_out() {
        let gate = gate();
        let turn = gate.next_turn().unwrap();
        let place = turn.place;
        thread::scope(|scope| {
            scope.spawn(|| drop(turn));
        });
        assert!(!gate.has_left_out(place), "by another thread");
        let turn = gate.next_turn().unwrap();
        let place = turn.place;
        assert!(!gate.has_left_out(place));
        drop(turn);
        assert!(gate.has_left_out(place));
        gate.close();
        assert!(!gate.has_left_out(place), "the run is ending");
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
