//! The processes that run, and signals to them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::bell::Bell;

/// The process groups of the jobs that run, at most one for each worker.
///
/// A group is taken out before its leader is waited for: until then the number is nobody else's, and a signal
/// cannot meet a stranger.
#[derive(Debug)]
pub(super) struct Groups {
    state: Mutex<State>,
    /// One has left.
    left: Condvar,
    /// For each worker, rung when what is asked of its job may have changed.
    bells: Vec<Bell>,
}

#[derive(Debug)]
struct State {
    seats: Vec<Seat>,
    wish: Wish,
    stopped_at: Option<Instant>,
    /// How long all of them were stopped.
    stopped: Duration,
}

/// What a worker has running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Free,
    /// A process is being started: nobody has its number yet.
    Starting,
    Taken(Pid),
}

/// What is to become of the jobs that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    GoOn,
    /// They are asked to end, and after a while made to.
    End,
    /// They were killed, and so is every one that comes.
    Kill,
}

/// A place for a process that is being started, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    groups: Arc<Groups>,
    worker: usize,
}

/// A group that is among those that run, until this is dropped.
#[derive(Debug)]
pub(super) struct Member {
    _place: Place,
    pid: Pid,
}

impl Groups {
    pub(super) fn new(workers: usize) -> io::Result<Arc<Groups>> {
        let bells: io::Result<Vec<Bell>> = (0..workers).map(|_| Bell::new()).collect();
        let seats = vec![Seat::Free; workers];
        let state = State { seats, wish: Wish::GoOn, stopped_at: None, stopped: Duration::ZERO };
        Ok(Arc::new(Groups { state: Mutex::new(state), left: Condvar::new(), bells: bells? }))
    }

    /// To be called before a process is started, so that whoever waits for all waits for that one too.
    pub(super) fn place(self: &Arc<Self>, worker: usize) -> Place {
        self.state().seats[worker] = Seat::Starting;
        Place { groups: Arc::clone(self), worker }
    }

    pub(super) fn bell(&self, worker: usize) -> &Bell {
        &self.bells[worker]
    }

    pub(super) fn wish(&self) -> Wish {
        self.state().wish
    }

    /// Has every job end: each worker asks its own, and sees to it.
    pub(super) fn end_all(&self) {
        let mut state = self.state();
        state.wish = state.wish.max(Wish::End);
        drop(state);
        self.ring();
    }

    /// Kills every job, and each that may still come.
    pub(super) fn kill_all(&self) {
        let mut state = self.state();
        state.wish = Wish::Kill;
        state.send(Signal::KILL);
    }

    /// Stops all jobs, as a terminal does with a job of its own.
    pub(super) fn stop_all(&self) {
        let mut state = self.state();
        state.stopped_at.get_or_insert_with(Instant::now);
        state.send(Signal::STOP);
    }

    pub(super) fn continue_all(&self) {
        let mut state = self.state();
        if let Some(since) = state.stopped_at.take() {
            state.stopped += since.elapsed();
        }
        state.send(Signal::CONT);
    }

    /// For how long all jobs were stopped until now.
    pub(super) fn stopped(&self) -> Duration {
        let state = self.state();
        state.stopped + state.stopped_at.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Waits until none is left of those that were killed, or for so long.
    pub(super) fn wait_until_empty(&self, longest: Duration) {
        let is_left = |state: &mut State| state.seats.iter().any(|seat| *seat != Seat::Free);
        let waited = self.left.wait_timeout_while(self.state(), longest, is_left);
        drop(waited.expect("nothing panics with the lock held"));
    }

    /// Has every worker look again at what its job may do.
    pub(super) fn ring(&self) {
        self.bells.iter().for_each(Bell::ring);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock held")
    }
}

impl State {
    fn send(&self, signal: Signal) {
        for seat in &self.seats {
            if let Seat::Taken(pid) = seat {
                send(*pid, signal);
            }
        }
    }
}

impl Place {
    /// Adds a process that was just started as the leader of a group.
    pub(super) fn enter(self, pid: Pid) -> Member {
        let mut state = self.groups.state();
        state.seats[self.worker] = Seat::Taken(pid);
        // What was sent to all before it came.
        if state.wish == Wish::Kill {
            send(pid, Signal::KILL);
        }
        if state.stopped_at.is_some() {
            send(pid, Signal::STOP);
        }
        drop(state);
        Member { _place: self, pid }
    }
}

impl Member {
    pub(super) fn send(&self, signal: Signal) {
        send(self.pid, signal);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.groups.state().seats[self.worker] = Seat::Free;
        self.groups.left.notify_all();
    }
}

fn send(group: Pid, signal: Signal) {
    // All of the group may have ended, or become somebody else's by a set-user-id program.
    let _ = kill_process_group(group, signal);
}
