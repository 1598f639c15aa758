//! The running process groups, and signals to them.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::bell::PipeBell;
use crate::locking::lock;

/// The process groups of running jobs, at most one per slot.
///
/// A group is removed before its leader is reaped. Until then its number cannot be reused, so a signal cannot
/// reach a stranger.
#[derive(Debug)]
pub(crate) struct Groups {
    state: Mutex<GroupsState>,
    /// Notified when a group enters or leaves, and when stopped groups continue.
    changed: Condvar,
    /// One per slot, rung when the orders for its job may have changed.
    bells: Vec<PipeBell>,
}

#[derive(Debug, Default)]
struct GroupsState {
    slots: Vec<GroupSlot>,
    wish: Wish,
    /// Whether stopped processes are ended, since they would not end by themselves.
    ends_stopped: bool,
    /// How many groups have entered so far.
    entered: u64,
    /// The slot of the process that is ended because memory is scarce.
    recalled: Option<usize>,
    stopped_at: Option<Instant>,
    /// How long all groups were stopped.
    stopped: Duration,
}

/// The process of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupSlot {
    Free,
    /// A process is being started; its number is not known yet.
    Starting,
    Taken(ProcessGroup),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessGroup {
    pid: Pid,
    /// The number of its entry: the youngest has the largest.
    entry: u64,
    occupant: Occupant,
    /// Whether the process has stopped by itself, and not because all jobs were stopped.
    is_stopped: bool,
}

/// What a process is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A job, with its number.
    Job(u64),
    /// A warm worker, with the number of its slot.
    Worker(usize),
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Occupant::Job(number) => write!(f, "job {number}"),
            Occupant::Worker(slot) => write!(f, "the worker of slot {slot}"),
        }
    }
}

/// A change of the leader of a group, as job control reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    Stopped,
    Continued,
}

/// The order that applies to running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Wish {
    #[default]
    GoOn,
    /// Ask them to end, and kill them after a while.
    End,
    /// They were killed, and every process that is added is killed too.
    Kill,
}

/// A place for a process that is being started; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ProcessPlace {
    groups: Arc<Groups>,
    worker: usize,
    occupant: Occupant,
}

/// A running group; dropping it removes the group.
#[derive(Debug)]
pub(crate) struct Member {
    _place: ProcessPlace,
    pid: Pid,
}

/// How long a stop waits for processes that are being started, which takes milliseconds.
const LONGEST_START: Duration = Duration::from_secs(1);

impl Groups {
    pub(crate) fn new(workers: usize) -> io::Result<Arc<Groups>> {
        let bells: io::Result<Vec<PipeBell>> = (0..workers).map(|_| PipeBell::new()).collect();
        let slots = vec![GroupSlot::Free; workers];
        let state = GroupsState { slots, ..GroupsState::default() };
        Ok(Arc::new(Groups { state: Mutex::new(state), changed: Condvar::new(), bells: bells? }))
    }

    /// To be called before a process is started, so that a wait for all groups includes it. While all groups
    /// are stopped, none is started.
    pub(crate) fn place(self: &Arc<Self>, worker: usize, occupant: Occupant) -> ProcessPlace {
        let is_stopped = |state: &mut GroupsState| state.stopped_at.is_some();
        let state = self.changed.wait_while(lock(&self.state), is_stopped);
        state.expect("nothing panics with the lock held").slots[worker] = GroupSlot::Starting;
        ProcessPlace { groups: Arc::clone(self), worker, occupant }
    }

    /// The number of processes that may run at once.
    pub(crate) fn len(&self) -> usize {
        self.bells.len()
    }

    pub(crate) fn bell(&self, worker: usize) -> &PipeBell {
        &self.bells[worker]
    }

    pub(crate) fn wish(&self) -> Wish {
        lock(&self.state).wish
    }

    /// The order that applies to the process of a slot.
    pub(crate) fn wish_for(&self, worker: usize) -> Wish {
        if self.is_stuck(worker) { self.wish().max(Wish::End) } else { self.wish() }
    }

    /// Whether the process of a slot has stopped, although it is to end.
    pub(crate) fn is_stuck(&self, worker: usize) -> bool {
        let state = lock(&self.state);
        let has_stopped =
            matches!(state.slots[worker], GroupSlot::Taken(group) if group.is_stopped);
        has_stopped && state.ends_stopped
    }

    /// Ends every job: each slot signals its own, and escalates.
    pub(crate) fn end_all(&self) {
        let mut state = lock(&self.state);
        state.wish = state.wish.max(Wish::End);
        drop(state);
        self.ring();
    }

    /// Ends the process that was started last, which runs again later. The only one goes on, so that the run
    /// does; and one at a time is ended, since memory is free only when it has gone.
    pub(crate) fn recall_youngest(&self) {
        let mut state = lock(&self.state);
        if state.recalled.is_some() {
            return;
        }
        let taken = state.slots.iter().enumerate().filter_map(|(worker, slot)| match slot {
            GroupSlot::Taken(group) => Some((group.entry, worker)),
            GroupSlot::Free | GroupSlot::Starting => None,
        });
        let mut taken: Vec<(u64, usize)> = taken.collect();
        taken.sort_unstable();
        if let [_, .., (_, youngest)] = *taken {
            state.recalled = Some(youngest);
            self.bells[youngest].ring();
        }
    }

    /// Whether the process of a slot is to end, and to run again later.
    pub(crate) fn is_recalled(&self, worker: usize) -> bool {
        lock(&self.state).recalled == Some(worker)
    }

    /// Ends each process that has stopped or stops later. The run is ending, and would otherwise wait for it for
    /// ever.
    pub(crate) fn end_stopped(&self) {
        lock(&self.state).ends_stopped = true;
        self.ring();
    }

    /// Records a change of the leader of a group. If the leader has stopped by itself, and not because all jobs
    /// were stopped, returns what it was started for.
    pub(crate) fn note(&self, pid: Pid, transition: Transition) -> Option<Occupant> {
        // A process may stop before its group has entered.
        let may_enter = |state: &mut GroupsState| {
            state.group(pid).is_none() && state.slots.contains(&GroupSlot::Starting)
        };
        let waited = self.changed.wait_timeout_while(lock(&self.state), LONGEST_START, may_enter);
        let (mut state, _) = waited.expect("nothing panics with the lock held");
        let stops_with_all = state.stopped_at.is_some();
        let group = state.group(pid)?;
        group.is_stopped = transition == Transition::Stopped && !stops_with_all;
        let stopped = group.is_stopped.then_some(group.occupant);
        let is_ended = stopped.is_some() && state.ends_stopped;
        drop(state);
        if is_ended {
            self.ring();
        }
        stopped
    }

    /// Kills every job, including those that are being started.
    pub(crate) fn kill_all(&self) {
        let mut state = lock(&self.state);
        state.wish = Wish::Kill;
        state.send(Signal::KILL);
        drop(state);
        // A job that runs elsewhere has no process here.
        self.ring();
    }

    /// Stops all jobs, as a terminal does with Ctrl-Z.
    pub(crate) fn stop_all(&self) {
        let mut state = lock(&self.state);
        state.stopped_at.get_or_insert_with(Instant::now);
        // Stopped groups continue with the others.
        state.groups().for_each(|group| group.is_stopped = false);
        state.send(Signal::STOP);
        // One that is being started stops when it enters.
        let is_starting = |state: &mut GroupsState| state.slots.contains(&GroupSlot::Starting);
        let waited = self.changed.wait_timeout_while(state, LONGEST_START, is_starting);
        drop(waited.expect("nothing panics with the lock held"));
    }

    pub(crate) fn continue_all(&self) {
        let mut state = lock(&self.state);
        if let Some(since) = state.stopped_at.take() {
            state.stopped += since.elapsed();
        }
        state.send(Signal::CONT);
        self.changed.notify_all();
    }

    /// How long all jobs have been stopped so far.
    pub(crate) fn stopped(&self) -> Duration {
        let state = lock(&self.state);
        state.stopped + state.stopped_at.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Waits until all killed groups are gone, at most `longest`.
    pub(crate) fn wait_until_empty(&self, longest: Duration) {
        let is_left =
            |state: &mut GroupsState| state.slots.iter().any(|slot| *slot != GroupSlot::Free);
        let waited = self.changed.wait_timeout_while(lock(&self.state), longest, is_left);
        drop(waited.expect("nothing panics with the lock held"));
    }

    /// Wakes every slot to check its orders.
    pub(crate) fn ring(&self) {
        self.bells.iter().for_each(PipeBell::ring);
    }
}

impl GroupsState {
    fn send(&self, signal: Signal) {
        for slot in &self.slots {
            if let GroupSlot::Taken(group) = slot {
                send(group.pid, signal);
            }
        }
    }

    fn groups(&mut self) -> impl Iterator<Item = &mut ProcessGroup> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            GroupSlot::Taken(group) => Some(group),
            GroupSlot::Free | GroupSlot::Starting => None,
        })
    }

    fn group(&mut self, pid: Pid) -> Option<&mut ProcessGroup> {
        self.groups().find(|group| group.pid == pid)
    }
}

impl ProcessPlace {
    /// Adds a process that was just started as the leader of a group.
    pub(crate) fn enter(self, pid: Pid) -> Member {
        let mut state = lock(&self.groups.state);
        state.entered += 1;
        let (entry, occupant) = (state.entered, self.occupant);
        let group = ProcessGroup { pid, entry, occupant, is_stopped: false };
        state.slots[self.worker] = GroupSlot::Taken(group);
        // Applies the orders given before it was added.
        if state.wish == Wish::Kill {
            send(pid, Signal::KILL);
        }
        if state.stopped_at.is_some() {
            send(pid, Signal::STOP);
        }
        drop(state);
        self.groups.changed.notify_all();
        Member { _place: self, pid }
    }
}

impl Member {
    /// The leader of the group.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid, signal);
    }
}

impl Drop for ProcessPlace {
    fn drop(&mut self) {
        let mut state = lock(&self.groups.state);
        state.slots[self.worker] = GroupSlot::Free;
        state.recalled.take_if(|recalled| *recalled == self.worker);
        drop(state);
        self.groups.changed.notify_all();
    }
}

fn send(group: Pid, signal: Signal) {
    // The group may have ended, or a set-user-id program may have changed its user.
    let _ = kill_process_group(group, signal);
}
