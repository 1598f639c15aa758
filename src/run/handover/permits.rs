//! The free permits of a run, and what its feeder waits for.

use super::shared_budget::StageBudget;
use crate::scheduler::budget::Room;

#[derive(Debug)]
pub(super) struct Permits {
    pub(super) free: usize,
    /// What the sleeping feeder waits for.
    pub(super) awaited: Option<Want>,
    /// The feeder pulls no more items.
    pub(super) halted: bool,
    /// No item is given out any more.
    pub(super) aborted: bool,
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

impl Permits {
    /// Whether this is there. Room is, if items are not measured.
    pub(super) fn has(&self, want: Want, memory: Option<&StageBudget>) -> bool {
        match want {
            Want::Permits { least } => self.free >= least,
            Want::Room(room) => memory.is_none_or(|memory| memory.has_room(room)),
        }
    }

    /// Whether the feeder waits for something that is there now.
    pub(super) fn has_awaited(&self, memory: Option<&StageBudget>) -> bool {
        self.awaited.is_some_and(|want| self.has(want, memory))
    }

    /// Whether the feeder, which waits, can go on: what it waits for is there, or will not be needed. An item that
    /// waits for room is given out although the feeder is to stop.
    pub(super) fn may_go_on(&self, memory: Option<&StageBudget>) -> bool {
        self.awaited.is_some_and(|want| {
            self.has(want, memory)
                || match want {
                    Want::Permits { .. } | Want::Room(Room::Next) => self.halted,
                    Want::Room(Room::For(_)) => self.aborted,
                }
        })
    }
}
