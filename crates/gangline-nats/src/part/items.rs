//! The items that a part holds, and the producers that they occupy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::delivery::Delivered;
use crate::publication::Address;
use crate::wire::{ItemHeader, WorkerOutcome};

/// An item from its delivery until its message is acknowledged or handed back.
#[derive(Debug)]
pub(super) struct HeldItem {
    pub(super) header: ItemHeader,
    pub(super) from: Address,
    /// Its last delivery. The payload is dropped once the service has the input.
    pub(super) delivered: Delivered,
    pub(super) step: ItemStep,
}

/// The last step of an item.
#[derive(Debug)]
pub(super) enum ItemStep {
    /// It waits for an idle producer.
    New,
    /// The coordinator is asked whether this worker may begin it.
    Claiming,
    /// It waits for an idle producer, and the coordinator has granted it.
    Granted,
    /// A producer is kept for it while its input is read.
    Reading,
    /// The service has it. A hook may have begun it.
    Submitted { begun: Option<Instant> },
    /// It was given up while the service had it. A hook may have it yet, until this time at most.
    GivenUp { until: Option<Instant> },
    /// Its large output is being stored.
    Storing { outcome: WorkerOutcome, busy: Duration },
    /// Its result waits for its group, or is under way in one.
    Answered,
}

impl ItemStep {
    /// Whether no producer is kept for the item yet.
    pub(super) fn is_before_begin(&self) -> bool {
        matches!(self, ItemStep::New | ItemStep::Claiming | ItemStep::Granted)
    }
}

/// The items of a part, by publication.
///
/// An item is *held* until the broker hears what became of it. It is *begun* from the moment when a producer is kept for it
/// until no hook has it. One with an abandoned hook is begun although it is not held any more.
#[derive(Debug, Default)]
pub(super) struct HeldItems {
    pub(super) held: BTreeMap<u64, HeldItem>,
    begun: BTreeMap<u64, Address>,
}

impl HeldItems {
    /// Keeps a producer for an item.
    pub(super) fn begin(&mut self, publication: u64, from: Address) {
        self.begun.insert(publication, from);
    }

    /// No hook has an item any more.
    pub(super) fn end(&mut self, publication: u64) {
        self.begun.remove(&publication);
    }

    pub(super) fn is_begun(&self, publication: u64) -> bool {
        self.begun.contains_key(&publication)
    }

    /// The number of begun items.
    pub(super) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Whether the service works on items, or has not answered yet what became of one. A hook that panics drops its item
    /// before the service counts the lost state, and the answer comes after that.
    pub(super) fn are_worked_on(&self) -> bool {
        let is_submitted = |it: &HeldItem| matches!(it.step, ItemStep::Submitted { .. });
        !self.begun.is_empty() || self.held.values().any(is_submitted)
    }

    /// The number of items from this address that wait for a producer.
    pub(super) fn waiting(&self, from: Address) -> usize {
        let is_waiting = |it: &&HeldItem| it.from == from && it.step.is_before_begin();
        self.held.values().filter(is_waiting).count()
    }

    /// The number of items from this address that have, or wait for, a producer.
    pub(super) fn taken(&self, from: Address) -> usize {
        self.waiting(from) + self.begun.values().filter(|it| **it == from).count()
    }

    /// The publications of held items up to `upto` for which `is_so`.
    pub(super) fn list(&self, upto: u64, is_so: impl Fn(&ItemStep) -> bool) -> Vec<u64> {
        let listed = self.held.range(..=upto).filter(|(_, item)| is_so(&item.step));
        listed.map(|(&publication, _)| publication).collect()
    }
}
