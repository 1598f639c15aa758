//! One limit for the weights of several runs: the stages of a pipeline.

use std::sync::{Arc, OnceLock, Weak};

use crate::concurrency::atomic::{AtomicU64, Ordering};

/// What the items in flight of all stages of a pipeline may weigh together.
///
/// A stage without items may always take one, whatever it weighs. So the stages behind a full one drain, and it
/// cannot happen that all of them wait. That is why the sum may exceed the limit by one item for each stage.
pub(crate) struct Ceiling {
    most: u64,
    /// The weight of the items in flight of all stages.
    total: AtomicU64,
    stages: OnceLock<Vec<Weak<dyn Weighed>>>,
}

/// A run of weighed items.
pub(crate) trait Weighed: Send + Sync {
    /// Has the weight of its items count under this limit. Called before it has items.
    fn share(&self, ceiling: Arc<Ceiling>);

    /// Wakes the feeder if it waits for room that there is now.
    fn look_for_room(&self);
}

impl Ceiling {
    pub(crate) fn new(most: u64) -> Self {
        Ceiling { most, total: AtomicU64::new(0), stages: OnceLock::new() }
    }

    /// Names the runs that share it, before any of them has items.
    pub(crate) fn is_for(&self, stages: Vec<Weak<dyn Weighed>>) {
        assert!(self.stages.set(stages).is_ok(), "a pipeline has one set of stages");
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    pub(super) fn has_room(&self, weight: u64) -> bool {
        let total = self.total.load(Ordering::Relaxed);
        total.checked_add(weight).is_some_and(|sum| sum <= self.most)
    }

    /// Adds the weight of an item that is given out.
    pub(super) fn add(&self, weight: u64) {
        self.change(|total| total.saturating_add(weight));
    }

    /// Takes the weight of consumed items away. The caller then [tells](Ceiling::tell_stages) the stages, under no
    /// lock of its own.
    pub(super) fn subtract(&self, weight: u64) {
        self.change(|total| total.saturating_sub(weight));
    }

    /// Wakes the feeders that have room now. Each looks under its own lock, so a feeder that was about to sleep
    /// when the weight was taken away is woken too.
    pub(super) fn tell_stages(&self) {
        let stages = self.stages.get().map_or(&[][..], Vec::as_slice);
        stages.iter().filter_map(Weak::upgrade).for_each(|stage| stage.look_for_room());
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let _: Result<u64, u64> = self.total.fetch_update(set, fetch, |total| Some(change(total)));
    }
}

impl std::fmt::Debug for Ceiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ceiling").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn weights_of_all_stages_count() {
        let ceiling = Ceiling::new(10);
        ceiling.add(4);
        ceiling.add(5);
        assert!(ceiling.has_room(1) && !ceiling.has_room(2) && !ceiling.has_room(u64::MAX));
        ceiling.subtract(5);
        assert!(ceiling.has_room(6));
        ceiling.subtract(u64::MAX);
        ceiling.add(u64::MAX);
        assert!(!ceiling.has_room(1));
    }
}
