//! The permits of a run, at which its feeder waits.

use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use gangline_scheduler::budget::Room;

use super::shared_budget::StageBudget;
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::{Condvar, Mutex, MutexGuard, lock, wait};

/// The permits for items in flight. The feeder sleeps here until permits are free, or memory has room.
#[derive(Debug)]
pub(crate) struct PermitPool {
    state: CachePadded<Mutex<Permits>>,
    returned: Condvar,
    /// The bell that wakes the feeder if it is the run's driver and so waits elsewhere.
    driver: Arc<DriverBell>,
    /// The memory budget of the items in flight. Set before the first item, if items are measured.
    memory: OnceLock<StageBudget>,
}

#[derive(Debug)]
struct Permits {
    free: usize,
    /// What the sleeping feeder waits for.
    awaited: Option<Want>,
    /// The feeder pulls no more items.
    halted: bool,
    /// No item is given out any more.
    aborted: bool,
}

/// What a feeder waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Permits {
        least: usize,
    },
    /// Room in memory.
    Room(Room),
}

impl PermitPool {
    pub(super) fn new(free: usize) -> Self {
        let permits = Permits { free, awaited: None, halted: false, aborted: false };
        PermitPool {
            state: CachePadded::new(Mutex::new(permits)),
            returned: Condvar::new(),
            driver: Arc::default(),
            memory: OnceLock::new(),
        }
    }

    /// Makes `driver` the bell that wakes the feeder.
    pub(super) fn fed_by(&mut self, driver: Arc<DriverBell>) {
        self.driver = driver;
    }

    /// Makes the run's items count in this budget. Called before the first item.
    pub(crate) fn share(&self, budget: StageBudget) {
        assert!(self.memory.set(budget).is_ok(), "a run is in one line");
    }

    /// The budget that items count in, if they are measured.
    pub(crate) fn memory(&self) -> Option<&StageBudget> {
        self.memory.get()
    }

    /// Returns permits.
    pub(crate) fn give_back(&self, permits: usize) {
        if permits == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.free += permits;
        self.wake_if_awaited(state);
    }

    /// Wakes the feeder if the room that it waits for is free now.
    pub(crate) fn look_for_room(&self) {
        self.wake_if_awaited(lock(&self.state));
    }

    /// Takes a multiple of `lot` permits, as many as are free: the rest would not fill a batch.
    pub(super) fn take_lots(&self, lot: usize) -> usize {
        let mut state = lock(&self.state);
        let taken = state.free - state.free % lot;
        state.free -= taken;
        taken
    }

    pub(super) fn has(&self, want: Want) -> bool {
        lock(&self.state).has(want, self.memory())
    }

    /// Sleeps until the feeder's want is met, or the feeder has to stop.
    pub(super) fn sleep_for(&self, want: Want) {
        let mut state = lock(&self.state);
        while !state.has(want, self.memory()) && !state.halted {
            state = self.sleep(state, want);
        }
    }

    /// Sleeps until memory has room for an item that is already pulled, also after a halt. Returns `false` if the run is
    /// aborted first.
    pub(super) fn sleep_for_room(&self, want: Want) -> bool {
        let mut state = lock(&self.state);
        while !state.has(want, self.memory()) && !state.aborted {
            state = self.sleep(state, want);
        }
        !state.aborted
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, Permits>, want: Want) -> MutexGuard<'a, Permits> {
        state.awaited = Some(want);
        state = wait(&self.returned, state);
        state.awaited = None;
        state
    }

    /// Notes the want of a feeder that sleeps elsewhere; `None` once it is awake.
    pub(super) fn await_elsewhere(&self, want: Option<Want>) {
        lock(&self.state).awaited = want;
    }

    /// Whether the want of a feeder that sleeps [elsewhere](Self::await_elsewhere) is met, or the feeder has to stop.
    pub(crate) fn may_feed_again(&self) -> bool {
        lock(&self.state).may_go_on(self.memory())
    }

    /// Stops the feeder before its next pull.
    pub(super) fn halt(&self) {
        lock(&self.state).halted = true;
        self.wake_feeder();
    }

    /// Stops the feeder even before it gives out the item that it holds.
    pub(super) fn abort(&self) {
        lock(&self.state).aborted = true;
        self.wake_feeder();
    }

    fn wake_if_awaited(&self, state: MutexGuard<'_, Permits>) {
        let is_awaited = state.awaited.is_some_and(|want| state.has(want, self.memory()));
        drop(state);
        if is_awaited {
            self.wake_feeder();
        }
    }

    fn wake_feeder(&self) {
        self.returned.notify_one();
        self.driver.ring();
    }
}

impl Permits {
    /// Whether this is there. Room is, if items are not measured.
    fn has(&self, want: Want, memory: Option<&StageBudget>) -> bool {
        match want {
            Want::Permits { least } => self.free >= least,
            Want::Room(room) => memory.is_none_or(|memory| memory.has_room(room)),
        }
    }

    /// Whether the feeder, which waits, can go on: what it waits for is there, or will not be needed. An item that
    /// waits for room is given out although the feeder is to stop.
    fn may_go_on(&self, memory: Option<&StageBudget>) -> bool {
        self.awaited.is_some_and(|want| {
            self.has(want, memory)
                || match want {
                    Want::Permits { .. } | Want::Room(Room::Next) => self.halted,
                    Want::Room(Room::For(_)) => self.aborted,
                }
        })
    }
}
