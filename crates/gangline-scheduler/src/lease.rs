//! The leases that producers hold: which producer works on which items.

use super::priority::Priority;
use super::time::RunTime;
use crate::batch::Size;

/// A producer, by its place in the list of devices.
pub type ProducerId = usize;

/// The identifier of a lease. It is never reused, so a late answer is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId {
    slot: u32,
    generation: u32,
}

impl LeaseId {
    /// This identifier as one number, less than `u64::MAX - 1`.
    pub fn number(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.generation)
    }
}

/// The items that a producer works on, together and in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its identifier.
    pub id: LeaseId,
    /// The indices of the items.
    pub items: Vec<u64>,
    /// The number of the attempt; the first is 1.
    pub attempt: u32,
    /// How the items were put together.
    pub piece: Piece,
}

/// How the items of a lease were put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// From the items that wait.
    Whole,
    /// A part of a batch that was split.
    Part,
    /// A copy of what another producer works on.
    Copy,
}

/// An item with its size and its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sized {
    pub(super) index: u64,
    pub(super) size: Size,
    pub(super) priority: Priority,
}

/// The state of a lease while a producer holds it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) producer: ProducerId,
    pub(super) items: Vec<Sized>,
    pub(super) attempt: u32,
    pub(super) phase: Phase,
    /// The start of the phase.
    pub(super) since: RunTime,
    /// When the hook returned, if its outcome comes later.
    pub(super) returned: Option<RunTime>,
    pub(super) deadline: Option<RunTime>,
    pub(super) copies: Copies,
    pub(super) piece: Piece,
    /// The number of its items whose result may still count.
    pub(super) open: usize,
}

/// The items that a lease is granted for.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) items: Vec<Sized>,
    pub(super) attempt: u32,
    pub(super) piece: Piece,
}

/// Whether a producer that asks for work has its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It has its state.
    Ready,
    /// It calls `producer_init` first, and then [`begin`](super::Scheduler::begin).
    NeedsInit,
}

/// What the producer does under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It builds its state. No hook has seen the items.
    Preparing,
    /// A hook has the items.
    Working,
    /// It works on an earlier lease. No hook has seen the items.
    Ahead,
    /// It ends its state, between two items.
    Ending,
}

/// Whether the backend keeps a copy of each item of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// It can give the items to another producer too.
    Kept,
    /// The hook has the only ones.
    Missing,
}

/// The leases that are held.
#[derive(Debug, Default)]
pub struct Leases {
    slots: Vec<LeaseSlot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct LeaseSlot {
    generation: u32,
    held: Option<Held>,
}

impl Sized {
    /// Makes a normal item that is not measured.
    pub(super) fn plain(index: u64) -> Self {
        Sized { index, size: Size::ONE, priority: Priority::Normal }
    }
}

/// Returns the priority of items that are leased together: the highest among them.
pub(super) fn priority_of(items: &[Sized]) -> Priority {
    items.iter().map(|item| item.priority).min().unwrap_or_default()
}

impl Chosen {
    /// Chooses items for a first attempt.
    pub(super) fn first(items: Vec<Sized>) -> Self {
        Chosen { items, attempt: 1, piece: Piece::Whole }
    }
}

impl Held {
    pub(super) fn is_stale(&self) -> bool {
        self.open == 0
    }

    /// Whether its hook runs although no result counts.
    pub(super) fn is_detached(&self) -> bool {
        self.is_stale() && self.phase == Phase::Working
    }

    /// Whether it has background items only.
    pub(super) fn is_background(&self) -> bool {
        priority_of(&self.items) == Priority::Background
    }

    pub(super) fn first_item(&self) -> Option<u64> {
        self.items.iter().map(|item| item.index).min()
    }
}

impl From<Readiness> for Phase {
    fn from(readiness: Readiness) -> Self {
        match readiness {
            Readiness::Ready => Phase::Working,
            Readiness::NeedsInit => Phase::Preparing,
        }
    }
}

impl Leases {
    #[inline]
    pub(super) fn insert(&mut self, held: Held) -> LeaseId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(LeaseSlot { generation: 0, held: None });
            u32::try_from(self.slots.len() - 1)
                .expect("there are fewer leases than items in flight")
        });
        let place = &mut self.slots[slot as usize];
        place.held = Some(held);
        LeaseId { slot, generation: place.generation }
    }

    /// Removes a lease. `None` if it was already over.
    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let held = slot.held.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(held)
    }

    /// Whether a lease has neither ended nor expired.
    pub fn is_held(&self, id: LeaseId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn get(&self, id: LeaseId) -> Option<&Held> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.held.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: LeaseId) -> Option<&mut Held> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.held.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Held)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(slot, it)| {
            Some((LeaseId { slot, generation: it.generation }, it.held.as_ref()?))
        })
    }

    /// The leases of one producer.
    pub(super) fn of(&self, producer: ProducerId) -> impl Iterator<Item = (LeaseId, &Held)> {
        self.iter().filter(move |(_, held)| held.producer == producer)
    }

    /// The lease, if a result of it may still count.
    #[inline]
    pub(super) fn get_wanted(&mut self, id: LeaseId) -> Option<&mut Held> {
        self.get_mut(id).filter(|held| !held.is_stale())
    }

    /// Whether the producer is in a hook although no result of it counts.
    pub(super) fn is_detached(&self, producer: ProducerId) -> bool {
        self.of(producer).any(|(_, held)| held.is_detached())
    }

    pub(super) fn is_busy(&self, producer: ProducerId) -> bool {
        self.of(producer).next().is_some()
    }

    /// The leases that are past their deadlines.
    pub(super) fn overdue(&self, now: RunTime) -> Vec<LeaseId> {
        let is_over = |held: &Held| held.deadline.is_some_and(|deadline| deadline <= now);
        self.iter().filter(|(_, held)| is_over(held)).map(|(id, _)| id).collect()
    }

    /// The producer whose hook has an item, and the number of the attempt.
    pub fn attempt_at(&self, index: u64) -> Option<(ProducerId, u32)> {
        let works = |held: &Held| held.phase == Phase::Working;
        let covers = |held: &Held| held.items.iter().any(|item| item.index == index);
        let (_, held) = self.iter().find(|(_, held)| works(held) && covers(held))?;
        Some((held.producer, held.attempt))
    }

    /// The leases that cover an item.
    pub(super) fn covering(&self, index: u64) -> Vec<LeaseId> {
        let covers = |held: &Held| held.items.iter().any(|item| item.index == index);
        self.iter().filter(|(_, held)| covers(held)).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(producer: ProducerId, index: u64) -> Held {
        Held {
            producer,
            items: vec![Sized::plain(index)],
            attempt: 1,
            phase: Phase::Working,
            since: RunTime::START,
            returned: None,
            deadline: None,
            copies: Copies::Missing,
            piece: Piece::Whole,
            open: 1,
        }
    }

    #[test]
    fn the_name_of_a_lease_is_not_used_again() {
        let mut leases = Leases::default();
        let first = leases.insert(held(0, 5));
        assert_eq!(leases.covering(5), [first]);
        assert!(leases.remove(first).is_some());
        let second = leases.insert(held(1, 6));
        assert!(leases.get(first).is_none() && leases.remove(first).is_none());
        assert_eq!(leases.get(second).unwrap().first_item(), Some(6));
        assert_eq!(leases.of(1).count(), 1);
        assert_eq!(leases.of(0).count(), 0);
    }

    #[test]
    fn the_number_of_a_lease_is_that_of_no_other() {
        let number = |slot, generation| LeaseId { slot, generation }.number();
        let numbers = [number(0, 0), number(0, 1), number(1, 0), number(1, 1), number(2, 1)];
        assert_eq!(numbers, [0, 1, 1 << 32, (1 << 32) + 1, (2 << 32) + 1]);
        assert!(number(u32::MAX, u32::MAX - 2) < u64::MAX - 1);
    }
}
