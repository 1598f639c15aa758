//! The free permits of a run, and the weight of its items in flight.

use std::task::Waker;

#[derive(Debug)]
pub(super) struct Permits {
    pub(super) free: usize,
    /// The weight of the items in flight.
    pub(super) weight: u64,
    /// What the sleeping feeder waits for.
    pub(super) awaited: Option<Want>,
    /// The feeder pulls no more items.
    pub(super) halted: bool,
    /// No item is given out any more.
    pub(super) aborted: bool,
    /// Wakes the task of the run, if a task feeds it. Its waker must not panic.
    pub(super) task: Option<Waker>,
}

/// What a feeder waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Permits {
        least: usize,
    },
    /// Room for an item of this weight under the limit `most`. An item that exceeds the limit alone waits for
    /// an empty window; otherwise it would never be given out.
    Room {
        weight: u64,
        most: u64,
    },
}

impl Permits {
    pub(super) fn has(&self, want: Want) -> bool {
        match want {
            Want::Permits { least } => self.free >= least,
            Want::Room { weight, most } => {
                self.weight == 0 || self.weight.checked_add(weight).is_some_and(|sum| sum <= most)
            }
        }
    }
}
