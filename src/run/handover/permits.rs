//! The free permits of a run, and the weight of its items in flight.

use std::sync::Arc;

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

    /// Whether the feeder, which waits, can go on: what it waits for is there, or will not be needed. An item that
    /// waits for room is given out although the feeder is to stop.
    pub(super) fn may_go_on(&self) -> bool {
        self.awaited.is_some_and(|want| {
            self.has(want)
                || match want {
                    Want::Permits { .. } => self.halted,
                    Want::Room { .. } => self.aborted,
                }
        })
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
