//! How much memory the items in flight may take; no threads or clocks here.

#[cfg(test)]
mod tests;

use crate::items::IndexMap;

/// The bytes that the items in flight of all stages of a line may take together.
///
/// An item takes what its input does until its output is known, and then what that does. What is not known yet counts
/// as the largest that was seen in that stage: an output that is to come, and an item that is to be pulled. Before the
/// first output of a stage is known, an item counts as an even part of the stage's share.
///
/// A stage without items may always take one, or [more](MemoryBudget::with_least). So the stages behind a full one drain,
/// and it cannot happen that all of them wait. Each stage keeps room for an item of its largest size so far, as far as its items do not take it.
#[derive(Debug)]
pub struct MemoryBudget {
    most: u64,
    /// The sum over all items of all stages. Items that their owner measures wrongly must not make it overflow.
    total: u128,
    stages: Vec<StageUse>,
}

#[derive(Debug)]
struct StageUse {
    /// What each item in flight takes.
    taken: IndexMap<u64>,
    /// What an output that is not known yet takes.
    output: Expected,
    largest_input: u64,
    /// What its items take in all.
    used: u128,
    /// The number of items that it may have whatever they take.
    least: usize,
}

/// The size of an output that is not known yet.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// No output is known: an even part of the stage's share.
    Part(u64),
    /// The largest output so far.
    Largest(u64),
}

/// An item for which there is to be room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// The next item, which is not pulled yet.
    Next,
    /// An item with an input of this many bytes.
    For(u64),
}

impl MemoryBudget {
    /// A budget of `most` bytes for stages that work on these numbers of items at once.
    pub fn new(most: u64, stages: &[usize]) -> Self {
        let share = most / stages.len().max(1) as u64;
        let stage = |&at_work: &usize| StageUse {
            taken: IndexMap::default(),
            output: Expected::Part(share / at_work.max(1) as u64),
            largest_input: 0,
            used: 0,
            least: 1,
        };
        MemoryBudget { most, total: 0, stages: stages.iter().map(stage).collect() }
    }

    /// Sets the number of items that each stage may have whatever they take, at least one.
    pub fn with_least(mut self, least: &[usize]) -> Self {
        for (stage, &least) in self.stages.iter_mut().zip(least) {
            stage.least = least.max(1);
        }
        self
    }

    /// Whether the stage may take this item now.
    pub fn has_room(&self, stage: usize, room: Room) -> bool {
        let of_stage = &self.stages[stage];
        let bytes = u128::from(of_stage.bytes(room));
        of_stage.taken.len() < of_stage.least || self.free(stage).is_some_and(|free| bytes <= free)
    }

    /// The number of items that the stage may take now, if none is larger than those so far.
    pub fn room(&self, stage: usize) -> usize {
        let of_stage = &self.stages[stage];
        let bytes = u128::from(of_stage.bytes(Room::Next)).max(1);
        let fit = usize::try_from(self.free(stage).unwrap_or(0) / bytes).unwrap_or(usize::MAX);
        fit.max(of_stage.least.saturating_sub(of_stage.taken.len()))
    }

    /// Whether the sizes of this stage's items are known, and not guessed from the bound.
    pub fn is_measured(&self, stage: usize) -> bool {
        matches!(self.stages[stage].output, Expected::Largest(_))
    }

    /// Takes room for an item with an input of `bytes`. Returns whether there was enough.
    pub fn take(&mut self, stage: usize, item: u64, bytes: u64) -> bool {
        if !self.has_room(stage, Room::For(bytes)) {
            return false;
        }
        let of_stage = &mut self.stages[stage];
        of_stage.largest_input = of_stage.largest_input.max(bytes);
        let bytes = of_stage.bytes(Room::For(bytes));
        let before = of_stage.taken.insert(item, bytes);
        debug_assert!(before.is_none(), "item {item} of stage {stage} takes room twice");
        of_stage.used += u128::from(bytes);
        self.total += u128::from(bytes);
        true
    }

    /// Notes that the output of an item takes `bytes`. Returns whether that leaves more room.
    pub fn settle(&mut self, stage: usize, item: u64, bytes: u64) -> bool {
        let StageUse { taken, output, used, .. } = &mut self.stages[stage];
        *output = match *output {
            Expected::Part(_) => Expected::Largest(bytes),
            Expected::Largest(largest) => Expected::Largest(largest.max(bytes)),
        };
        // An item may have passed by, or be consumed already.
        let Some(taken) = taken.get_mut(&item) else { return false };
        let before = std::mem::replace(taken, bytes);
        *used = *used - u128::from(before) + u128::from(bytes);
        self.total = self.total - u128::from(before) + u128::from(bytes);
        bytes < before
    }

    /// The bytes that neither items take nor other stages keep. `None` if they take more than there is.
    fn free(&self, stage: usize) -> Option<u128> {
        let others = self.stages.iter().enumerate().filter(|&(other, _)| other != stage);
        let kept = others.map(|(_, other)| other.kept()).sum::<u128>();
        u128::from(self.most).checked_sub(self.total + kept)
    }

    /// Returns the room of an item that was consumed. Returns whether it had some.
    pub fn give_back(&mut self, stage: usize, item: u64) -> bool {
        let taken = self.stages[stage].taken.remove(&item);
        self.stages[stage].used -= u128::from(taken.unwrap_or(0));
        self.total -= u128::from(taken.unwrap_or(0));
        taken.is_some()
    }
}

impl StageUse {
    /// What the item counts as.
    fn bytes(&self, room: Room) -> u64 {
        let input = match room {
            Room::Next => self.largest_input,
            Room::For(bytes) => bytes,
        };
        match self.output {
            Expected::Part(bytes) | Expected::Largest(bytes) => input.max(bytes),
        }
    }

    /// The room that is kept free for the item that it may always take: also while it has smaller ones, which it may
    /// give back at any time.
    fn kept(&self) -> u128 {
        u128::from(self.bytes(Room::Next)).saturating_sub(self.used)
    }
}
