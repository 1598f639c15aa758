//! The memory budget that the runs of a line share.

use std::fmt;
use std::sync::{Arc, Weak};

use gangline_scheduler::budget::{MemoryBudget, Room};

use crate::concurrency::{Mutex, lock};

/// The memory that the items in flight of all stages of a line may take, with the runs of these stages.
pub(crate) struct SharedBudget {
    state: Mutex<SharedBudgetState>,
    /// The runs with a bound, by stage.
    runs: Vec<Weak<dyn Bounded>>,
}

struct SharedBudgetState {
    budget: MemoryBudget,
    /// Whether a feeder has found no room since the runs last looked for some.
    is_awaited: bool,
    /// Whether an item has found no room, beside those that did not before a size was known.
    was_full: bool,
}

impl SharedBudgetState {
    fn note(&mut self, stage: usize, has_room: bool) {
        self.is_awaited |= !has_room;
        self.was_full |= !has_room && self.budget.is_measured(stage);
    }
}

/// A run that may have a bound.
pub(crate) trait Bounded: Send + Sync {
    /// The bound that was asked for. `None` without one.
    fn memory_bound(&self) -> Option<MemoryBound>;

    /// Has its items count in this budget. Called before it has items.
    fn share(&self, budget: StageBudget);

    /// Wakes the feeder if it waits for room that there is now.
    fn look_for_room(&self);
}

/// What a run asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryBound {
    /// In bytes.
    pub(crate) most: u64,
    /// How many items producers work on at once.
    pub(crate) at_work: usize,
    /// The number of items that the stage may have whatever they take.
    pub(crate) least: usize,
}

/// The budget of a line, for one stage.
#[derive(Clone)]
pub(crate) struct StageBudget {
    shared: Arc<SharedBudget>,
    stage: usize,
}

/// Has the runs of a line share one budget, if some of them have a bound: the smallest of these.
pub(crate) fn share_budget(runs: &[Arc<dyn Bounded>]) {
    let bounded: Vec<_> = runs.iter().filter_map(|run| Some((run, run.memory_bound()?))).collect();
    let Some(most) = bounded.iter().map(|(_, bound)| bound.most).min() else { return };
    let of_stages = |of: fn(&MemoryBound) -> usize| -> Vec<usize> {
        bounded.iter().map(|(_, bound)| of(bound)).collect()
    };
    let at_work = of_stages(|bound| bound.at_work);
    let budget = MemoryBudget::new(most, &at_work).with_least(&of_stages(|bound| bound.least));
    let runs = bounded.iter().map(|(run, _)| Arc::downgrade(run)).collect();
    let state = Mutex::new(SharedBudgetState { budget, is_awaited: false, was_full: false });
    let shared = Arc::new(SharedBudget { state, runs });
    for (stage, (run, _)) in bounded.into_iter().enumerate() {
        run.share(StageBudget { shared: shared.clone(), stage });
    }
}

impl StageBudget {
    /// Whether there is room for this item. If not, the runs look again when there is more.
    pub(super) fn has_room(&self, room: Room) -> bool {
        let mut state = lock(&self.shared.state);
        let has_room = state.budget.has_room(self.stage, room);
        state.note(self.stage, has_room);
        has_room
    }

    /// Takes room for an item with an input of `bytes`. Returns whether there was enough.
    pub(super) fn take(&self, item: u64, bytes: u64) -> bool {
        let mut state = lock(&self.shared.state);
        let has_room = state.budget.take(self.stage, item, bytes);
        state.note(self.stage, has_room);
        has_room
    }

    /// Whether the bound has kept items back.
    pub(crate) fn was_full(&self) -> bool {
        lock(&self.shared.state).was_full
    }

    /// Notes what the output of an item takes.
    pub(crate) fn settle(&self, item: u64, bytes: u64) {
        self.change(|budget| budget.settle(self.stage, item, bytes));
    }

    /// Returns the room of an item that was consumed.
    pub(crate) fn give_back(&self, item: u64) {
        self.change(|budget| budget.give_back(self.stage, item));
    }

    /// Changes the budget, and has the runs look if that `change` leaves more room and a feeder waits for some. Each
    /// looks under its own lock, so a feeder that was about to sleep when the room came is woken too.
    fn change(&self, change: impl FnOnce(&mut MemoryBudget) -> bool) {
        let mut state = lock(&self.shared.state);
        let is_news = change(&mut state.budget) && std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_news {
            let runs = self.shared.runs.iter();
            runs.filter_map(Weak::upgrade).for_each(|run| run.look_for_room());
        }
    }
}

impl fmt::Debug for StageBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageBudget").field("stage", &self.stage).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    struct BoundedRun {
        least: usize,
        budget: OnceLock<StageBudget>,
    }

    impl BoundedRun {
        fn with_least(least: usize) -> Arc<Self> {
            Arc::new(BoundedRun { least, budget: OnceLock::new() })
        }
    }

    impl Bounded for BoundedRun {
        fn memory_bound(&self) -> Option<MemoryBound> {
            Some(MemoryBound { most: 100, at_work: 4, least: self.least })
        }

        fn share(&self, budget: StageBudget) {
            assert!(self.budget.set(budget).is_ok());
        }

        fn look_for_room(&self) {}
    }

    /// Every run finds no room at its beginning, however large the bound is.
    #[test]
    fn a_guess_keeps_no_items_back() {
        let run = BoundedRun::with_least(1);
        let bounded: Arc<dyn Bounded> = run.clone();
        share_budget(std::slice::from_ref(&bounded));
        let budget = run.budget.get().unwrap();
        (0..4).for_each(|item| assert!(budget.take(item, 1)));
        assert!(!budget.take(4, 1) && !budget.was_full(), "no output is known");
        (0..4).for_each(|item| budget.settle(item, 1));
        assert!(budget.take(4, 1) && !budget.was_full());
        assert!(!budget.take(5, 99) && budget.was_full());
    }

    #[test]
    fn each_stage_has_its_own_least() {
        let runs = [BoundedRun::with_least(3), BoundedRun::with_least(1)];
        share_budget(&runs.clone().map(|run| -> Arc<dyn Bounded> { run }));
        let [first, second] = runs.each_ref().map(|run| run.budget.get().unwrap());
        assert!((0..3).all(|item| first.take(item, 1000)));
        assert!(!first.take(3, 1000) && second.take(0, 1000) && !second.take(1, 1000));
    }
}
