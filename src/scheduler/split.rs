//! Batches that failed as a whole, in the parts that are tried next.

use super::lease::{ProducerId, Sized};
use crate::batch::{Ceiling, Limits, Load};

/// Parts that wait, each to be leased as one.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Of one owner the next is the last.
    waiting: Vec<Part>,
}

/// Items that are tried together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The producer that goes on with it; an idle one may take it first. `None`: any producer.
    pub(super) owner: Option<ProducerId>,
    pub(super) items: Vec<Sized>,
    pub(super) attempt: u32,
    pub(super) cut: Cut,
}

/// Why a part is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// A guilty item is in it, or was beside it.
    Blame,
    /// The device had no memory for more.
    Memory,
}

impl Parts {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many parts there are for others than their owners.
    pub(super) fn count_for_others(&self, is_busy: impl Fn(ProducerId) -> bool) -> usize {
        self.waiting.iter().filter(|part| part.owner.is_none_or(&is_busy)).count()
    }

    pub(super) fn push(&mut self, part: Part) {
        self.waiting.push(part);
    }

    /// Has a batch tried in two halves or, where memory lacked, as far as there is memory.
    ///
    /// The half of the earlier items comes first. So the first of several guilty items is found
    /// whatever becomes of the rest.
    pub(super) fn split(&mut self, mut part: Part) {
        match part.cut {
            Cut::Blame if part.items.len() == 1 => {}
            Cut::Blame => {
                let later = part.items.split_off(part.items.len() / 2);
                self.waiting.push(Part { items: later, ..part.clone() });
            }
            // Together again with what was cut off: the next cut is another one.
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

    /// The next part of a batch that this producer was at.
    pub(super) fn take_own(&mut self, producer: ProducerId) -> Option<Part> {
        let last = self.waiting.iter().rposition(|part| part.owner == Some(producer))?;
        Some(self.waiting.remove(last))
    }

    /// A part that no producer goes on with.
    pub(super) fn take_free(&mut self) -> Option<Part> {
        let first = self.waiting.iter().position(|part| part.owner.is_none())?;
        Some(self.waiting.remove(first))
    }

    /// The part that its owner would come to last, of an owner that is busy: others go on at once.
    pub(super) fn steal(&mut self, is_busy: impl Fn(ProducerId) -> bool) -> Option<Part> {
        let first = self.waiting.iter().position(|part| part.owner.is_none_or(&is_busy))?;
        Some(self.waiting.remove(first))
    }

    /// A producer does not go on with its parts.
    pub(super) fn disown(&mut self, producer: ProducerId) {
        let own = self.waiting.iter_mut().filter(|part| part.owner == Some(producer));
        own.for_each(|part| part.owner = None);
    }

    /// Takes out the items that are not kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64) -> bool) -> Vec<Sized> {
        let mut out = Vec::new();
        for part in &mut self.waiting {
            out.extend(part.items.extract_if(.., |item| !is_kept(item.index)));
        }
        self.waiting.retain(|part| !part.items.is_empty());
        out
    }
}

impl Part {
    /// Cuts off what is more than the device has memory for, as far as that is known.
    pub(super) fn cut_to(&mut self, limits: Limits, learned: &Ceiling) -> Option<Part> {
        let count = fitting(limits, learned, &self.items);
        if count >= self.items.len() {
            return None;
        }
        let items = self.items.split_off(count);
        Some(Part { items, cut: Cut::Memory, ..self.clone() })
    }
}

/// How many of the first items a device has memory for, one at least, as far as that is known.
pub(super) fn fitting(limits: Limits, learned: &Ceiling, items: &[Sized]) -> usize {
    let Some(extent) = learned.extent() else { return items.len() };
    limits.below(extent).prefix(items.iter().map(|item| item.size)).0
}

/// What a batch takes of the memory of a device, as the limits count it.
pub(super) fn extent(limits: Limits, items: &[Sized]) -> u64 {
    limits.extent(Load::of(items.iter().map(|item| item.size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Size;

    fn part(items: std::ops::Range<u64>, cut: Cut) -> Part {
        let items = items.map(|index| Sized { index, size: Size::ONE }).collect();
        Part { owner: Some(0), items, attempt: 1, cut }
    }

    fn indices(part: Option<Part>) -> Vec<u64> {
        part.map_or(vec![], |part| part.items.iter().map(|item| item.index).collect())
    }

    #[test]
    fn the_half_of_the_earlier_items_comes_first() {
        let mut parts = Parts::default();
        parts.split(part(0..5, Cut::Blame));
        assert_eq!(indices(parts.take_own(0)), [0, 1]);
        parts.split(part(0..2, Cut::Blame));
        assert_eq!(indices(parts.take_own(1)), [0; 0], "it is no part of its own");
        assert_eq!(indices(parts.steal(|_| true)), [2, 3, 4], "what the owner comes to last");
        assert_eq!(indices(parts.take_own(0)), [0]);
        parts.split(part(7..8, Cut::Blame));
        assert_eq!(indices(parts.take_own(0)), [7], "one item is tried again by itself");
    }

    #[test]
    fn what_memory_lacks_for_is_put_together_and_cut_anew() {
        let mut learned = Ceiling::new();
        let limits = Limits::items(10);
        let mut parts = Parts::default();
        let mut whole = part(0..10, Cut::Memory);
        learned.fell_short(10);
        let rest = whole.cut_to(limits, &learned).unwrap();
        assert_eq!((whole.items.len(), rest.items.len()), (5, 5));
        parts.push(rest);
        learned.fell_short(5);
        parts.split(Part { cut: Cut::Memory, ..whole });
        let mut whole = parts.take_own(0).unwrap();
        assert_eq!(whole.items.len(), 10);
        assert_eq!(whole.cut_to(limits, &learned).unwrap().items.len(), 8);
        assert!(whole.cut_to(limits, &learned).is_none());
    }

    #[test]
    fn what_its_owner_leaves_is_for_any_producer() {
        let mut parts = Parts::default();
        parts.push(part(0..3, Cut::Blame));
        assert_eq!(parts.take_free(), None);
        parts.disown(0);
        let gone = parts.retain(|index| index != 1);
        assert_eq!(gone[0].index, 1);
        assert_eq!(indices(parts.take_free()), [0, 2]);
        assert!(parts.is_empty());
    }
}
