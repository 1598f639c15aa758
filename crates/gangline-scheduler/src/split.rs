//! Batches that failed as a whole, split into parts.

use super::lease::{ProducerId, Sized, priority_of};
use super::priority::Priority;
use crate::batch::{Ceiling, Limits, Load};

/// Parts that wait; each is leased as one.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The last part of an owner is its next.
    waiting: Vec<BatchPart>,
}

/// Items that are tried together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchPart {
    /// The producer that takes it next, unless an idle one takes it first. `None`: any producer.
    pub(super) owner: Option<ProducerId>,
    pub(super) items: Vec<Sized>,
    pub(super) attempt: u32,
    pub(super) cut: Cut,
}

/// Why a batch was split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// To find the item that is to blame.
    Blame,
    /// The device ran out of memory.
    Memory,
}

impl Parts {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of parts that producers other than their owners may take.
    pub(super) fn count_for_others(&self, is_busy: impl Fn(ProducerId) -> bool) -> usize {
        self.waiting.iter().filter(|part| part.owner.is_none_or(&is_busy)).count()
    }

    pub(super) fn push(&mut self, part: BatchPart) {
        self.waiting.push(part);
    }

    /// Puts back a failed batch: in two halves, or whole if it ran out of memory. [`BatchPart::cut_to`] then
    /// limits it when it is leased.
    ///
    /// The half of the earlier items comes first. So the first of several bad items is found, whatever the
    /// outcome of the rest.
    pub(super) fn split(&mut self, mut part: BatchPart) {
        match part.cut {
            Cut::Blame if part.items.len() == 1 => {}
            Cut::Blame => {
                let later = part.items.split_off(part.items.len() / 2);
                self.waiting.push(BatchPart { items: later, ..part.clone() });
            }
            // Joined with the rest that was cut off before, since the next cut is at another place.
            Cut::Memory => {
                let last = self.waiting.iter().rposition(|it| it.owner == part.owner);
                let rest = last.filter(|&last| self.waiting[last].cut == Cut::Memory);
                if let Some(rest) = rest {
                    part.items.append(&mut self.waiting.remove(rest).items);
                }
            }
        }
        self.waiting.push(part);
    }

    /// Whether a part of this priority waits.
    pub(super) fn has(&self, priority: Priority) -> bool {
        self.waiting.iter().any(|part| part.is(priority))
    }

    /// Takes the producer's next part of a priority.
    pub(super) fn take_own(
        &mut self,
        producer: ProducerId,
        priority: Priority,
    ) -> Option<BatchPart> {
        let is_own = |part: &BatchPart| part.owner == Some(producer) && part.is(priority);
        let last = self.waiting.iter().rposition(is_own)?;
        Some(self.waiting.remove(last))
    }

    /// Takes a part without an owner.
    pub(super) fn take_free(&mut self, priority: Priority) -> Option<BatchPart> {
        let is_free = |part: &BatchPart| part.owner.is_none() && part.is(priority);
        let first = self.waiting.iter().position(is_free)?;
        Some(self.waiting.remove(first))
    }

    /// Takes the part that a busy owner would take last.
    pub(super) fn steal(
        &mut self,
        priority: Priority,
        is_busy: impl Fn(ProducerId) -> bool,
    ) -> Option<BatchPart> {
        let is_left = |part: &BatchPart| part.owner.is_none_or(&is_busy) && part.is(priority);
        let first = self.waiting.iter().position(is_left)?;
        Some(self.waiting.remove(first))
    }

    /// Removes the owner of a producer's parts.
    pub(super) fn disown(&mut self, producer: ProducerId) {
        let own = self.waiting.iter_mut().filter(|part| part.owner == Some(producer));
        own.for_each(|part| part.owner = None);
    }

    /// Removes items that are not to be kept, and returns them.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64) -> bool) -> Vec<Sized> {
        let mut out = Vec::new();
        for part in &mut self.waiting {
            out.extend(part.items.extract_if(.., |item| !is_kept(item.index)));
        }
        self.waiting.retain(|part| !part.items.is_empty());
        out
    }
}

impl BatchPart {
    fn is(&self, priority: Priority) -> bool {
        priority_of(&self.items) == priority
    }

    /// Cuts off the items that exceed the device's learned memory limit.
    pub(super) fn cut_to(&mut self, limits: Limits, learned: &Ceiling) -> Option<BatchPart> {
        let count = fitting(limits, learned, &self.items);
        if count >= self.items.len() {
            return None;
        }
        let items = self.items.split_off(count);
        Some(BatchPart { items, cut: Cut::Memory, ..self.clone() })
    }
}

/// The number of first items that fit the device's learned memory limit; at least one.
pub(super) fn fitting(limits: Limits, learned: &Ceiling, items: &[Sized]) -> usize {
    let Some(extent) = learned.extent() else { return items.len() };
    limits.below(extent).prefix(items.iter().map(|item| item.size)).0
}

/// The extent of a batch: the amount of device memory that it needs, as the limits count it.
pub(super) fn extent(limits: Limits, items: &[Sized]) -> u64 {
    limits.extent(Load::of(items.iter().map(|item| item.size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: Priority = Priority::Normal;

    fn part(items: std::ops::Range<u64>, cut: Cut) -> BatchPart {
        let items = items.map(Sized::plain).collect();
        BatchPart { owner: Some(0), items, attempt: 1, cut }
    }

    fn indices(part: Option<BatchPart>) -> Vec<u64> {
        part.map_or(vec![], |part| part.items.iter().map(|item| item.index).collect())
    }

    #[test]
    fn the_half_of_the_earlier_items_comes_first() {
        let mut parts = Parts::default();
        parts.split(part(0..5, Cut::Blame));
        assert_eq!(indices(parts.take_own(0, NORMAL)), [0, 1]);
        parts.split(part(0..2, Cut::Blame));
        assert_eq!(indices(parts.take_own(1, NORMAL)), [0; 0], "it is no part of its own");
        assert_eq!(
            indices(parts.steal(NORMAL, |_| true)),
            [2, 3, 4],
            "what the owner comes to last"
        );
        assert_eq!(indices(parts.take_own(0, NORMAL)), [0]);
        parts.split(part(7..8, Cut::Blame));
        assert_eq!(indices(parts.take_own(0, NORMAL)), [7], "one item is tried again by itself");
    }

    #[test]
    fn what_memory_lacks_for_is_put_together_and_cut_anew() {
        let mut learned = Ceiling::default();
        let limits = Limits::items(10);
        let mut parts = Parts::default();
        let mut whole = part(0..10, Cut::Memory);
        learned.fell_short(10);
        let rest = whole.cut_to(limits, &learned).unwrap();
        assert_eq!((whole.items.len(), rest.items.len()), (5, 5));
        parts.push(rest);
        learned.fell_short(5);
        parts.split(BatchPart { cut: Cut::Memory, ..whole });
        let mut whole = parts.take_own(0, NORMAL).unwrap();
        assert_eq!(whole.items.len(), 10);
        assert_eq!(whole.cut_to(limits, &learned).unwrap().items.len(), 8);
        assert!(whole.cut_to(limits, &learned).is_none());
        let rest = part(0..10, Cut::Blame).cut_to(limits, &learned).unwrap();
        assert_eq!((rest.items.len(), rest.cut), (8, Cut::Memory));
    }

    #[test]
    fn what_its_owner_leaves_is_for_any_producer() {
        let mut parts = Parts::default();
        parts.push(part(0..3, Cut::Blame));
        assert_eq!(parts.take_free(NORMAL), None);
        parts.disown(0);
        let gone = parts.retain(|index| index != 1);
        assert_eq!(gone[0].index, 1);
        assert_eq!(indices(parts.take_free(NORMAL)), [0, 2]);
        assert!(parts.is_empty());
    }
}
