//! The free permits of a run, and the weight of its items in flight.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::ceiling::Ceiling;

#[derive(Debug)]
pub(super) struct Permits {
    pub(super) free: usize,
    /// The weight of the items in flight.
    pub(super) weight: u64,
    /// The limit that it shares with other stages of a pipeline.
    pub(super) ceiling: Option<Arc<Ceiling>>,
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
                self.weight == 0
                    || self.weight.checked_add(weight).is_some_and(|sum| sum <= most)
                        && self.ceiling.as_ref().is_none_or(|ceiling| ceiling.has_room(weight))
            }
        }
    }

    /// Whether the feeder waits for something that is there now.
    pub(super) fn has_awaited(&self) -> bool {
        self.awaited.is_some_and(|want| self.has(want))
    }

    /// Adds the weight of an item that is given out.
    pub(super) fn weigh(&mut self, weight: u64) {
        self.weight = self.weight.saturating_add(weight);
        if let Some(ceiling) = &self.ceiling {
            ceiling.add(weight);
        }
    }

    /// Takes the weight of consumed items away. The caller then tells the stages that share the limit, if any.
    pub(super) fn unload(&mut self, weight: u64) -> Option<Arc<Ceiling>> {
        self.weight = self.weight.saturating_sub(weight);
        let ceiling = self.ceiling.clone().filter(|_| weight > 0);
        if let Some(ceiling) = &ceiling {
            ceiling.subtract(weight);
        }
        ceiling
    }
}

/// The signals between two hand-overs that one thread feeds and collects from. Empty in other runs.
#[derive(Default)]
pub(super) struct Across {
    /// In the first stage: wakes the thread, which sleeps as the collector of the last.
    pub(super) wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// In the last stage: whether the thread can go on as the feeder of the first.
    pub(super) is_ready: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Across {
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.get().is_some_and(|is_ready| is_ready())
    }
}

impl fmt::Debug for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Across").finish_non_exhaustive()
    }
}
