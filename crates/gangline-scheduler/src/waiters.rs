//! The producers without work, and until when they wait.

use super::lease::ProducerId;
use super::time::RunTime;

/// Which producers wait for a lease.
///
/// A producer that was woken counts as woken until it asks again, so that one item wakes one producer.
#[derive(Debug)]
pub(super) struct Waiters {
    states: Vec<WaiterState>,
    waiting: usize,
    with_room: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    Busy,
    /// Busy, and to learn of a full batch that it may lease ahead.
    BusyWithRoom,
    Waiting {
        /// The time at which it asks again by itself.
        until: Option<RunTime>,
        takes: Takes,
    },
    Woken,
}

/// Which items a waiting producer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    All,
    /// Only retries: the producer is suspended.
    TriedBefore,
}

impl Waiters {
    pub(super) fn new(producers: usize) -> Self {
        Waiters { states: vec![WaiterState::Busy; producers], waiting: 0, with_room: 0 }
    }

    /// The number of producers, whether they wait or not.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Registers a producer that waits, and asks again at `until` by itself.
    pub(super) fn add(&mut self, producer: ProducerId, until: Option<RunTime>, takes: Takes) {
        self.remove(producer);
        self.states[producer] = WaiterState::Waiting { until, takes };
        self.waiting += 1;
    }

    /// Notes that the producer neither waits nor is about to ask.
    pub(super) fn remove(&mut self, producer: ProducerId) {
        match self.states[producer] {
            WaiterState::Waiting { .. } => self.waiting -= 1,
            WaiterState::BusyWithRoom => self.with_room -= 1,
            WaiterState::Busy | WaiterState::Woken => {}
        }
        self.states[producer] = WaiterState::Busy;
    }

    /// Notes that a busy producer is to learn of a full batch.
    pub(super) fn note_room(&mut self, producer: ProducerId) {
        if self.states[producer] == WaiterState::Busy {
            self.states[producer] = WaiterState::BusyWithRoom;
            self.with_room += 1;
        }
    }

    /// Notes that the producer is not to be told.
    pub(super) fn take_room(&mut self, producer: ProducerId) {
        if self.states[producer] == WaiterState::BusyWithRoom {
            self.remove(producer);
        }
    }

    /// The busy producers that are to learn of a full batch, unless another producer is idle, which takes it.
    pub(super) fn with_room(&self) -> impl Iterator<Item = ProducerId> {
        let is_idle = self.with_room == 0 || self.waiting > 0 || self.woken().next().is_some();
        self.those(move |state| !is_idle && *state == WaiterState::BusyWithRoom)
    }

    /// Makes a producer ask again. Returns whether it was waiting.
    pub(super) fn wake(&mut self, producer: ProducerId) -> bool {
        let WaiterState::Waiting { .. } = self.states[producer] else { return false };
        self.states[producer] = WaiterState::Woken;
        self.waiting -= 1;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The producers that wait, by place.
    pub(super) fn waiting(&self) -> impl Iterator<Item = ProducerId> {
        self.those(|state| matches!(state, WaiterState::Waiting { .. }))
    }

    /// The waiting producers that take such items.
    pub(super) fn taking(&self, which: Takes) -> impl Iterator<Item = ProducerId> {
        self.those(
            move |state| matches!(state, WaiterState::Waiting { takes, .. } if *takes == which),
        )
    }

    /// The producers that were woken and have not asked yet.
    pub(super) fn woken(&self) -> impl Iterator<Item = ProducerId> {
        self.those(|state| *state == WaiterState::Woken)
    }

    /// The producers that ask again by themselves, at `time` or before.
    pub(super) fn waiting_until(&self, time: RunTime) -> impl Iterator<Item = ProducerId> {
        self.those(move |state| {
            matches!(state, WaiterState::Waiting { until: Some(until), .. } if *until <= time)
        })
    }

    /// The producers that do not ask again unless they are woken.
    pub(super) fn without_time(&self) -> impl Iterator<Item = ProducerId> {
        self.those(|state| matches!(state, WaiterState::Waiting { until: None, .. }))
    }

    fn those(&self, is: impl Fn(&WaiterState) -> bool) -> impl Iterator<Item = ProducerId> {
        let states = self.states.iter().enumerate();
        states.filter(move |(_, state)| is(state)).map(|(producer, _)| producer)
    }
}
