//! Items that wait for their first lease, in a queue for each priority. Background items fill up the batches of normal
//! ones.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::config::Meta;
use super::lease::Sized;
use super::pending::{PendingItems, Pick, Selection};
use super::priority::Priority;
use super::time::RunTime;
use crate::batch::{Batch, BatchDecision, Fill, Grouping, Limits, More};

/// The items that wait, in a queue for each priority.
#[derive(Debug)]
pub(super) struct PendingQueues {
    normal: PendingItems,
    background: PendingItems,
}

/// The items of a batch, from one queue or from both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mixture {
    One(Priority, Selection),
    /// Items of both queues, by their places there.
    Both {
        normal: Vec<u64>,
        background: Vec<u64>,
    },
}

impl PendingQueues {
    /// `patience`: as of [`PendingItems::new`].
    pub(super) fn new(grouping: Grouping, patience: usize) -> Self {
        let [normal, background] = [(); 2].map(|()| PendingItems::new(grouping, patience));
        PendingQueues { normal, background }
    }

    pub(super) fn len(&self) -> usize {
        self.normal.len() + self.background.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.normal.is_empty() && self.background.is_empty()
    }

    /// Whether items of this priority wait.
    pub(super) fn has(&self, priority: Priority) -> bool {
        !self.queue(priority).is_empty()
    }

    /// How long the first normal item has waited.
    pub(super) fn waited(&self, now: RunTime) -> Duration {
        self.normal.waited(now)
    }

    fn queue(&self, priority: Priority) -> &PendingItems {
        match priority {
            Priority::Normal => &self.normal,
            Priority::Background => &self.background,
        }
    }

    fn queue_mut(&mut self, priority: Priority) -> &mut PendingItems {
        match priority {
            Priority::Normal => &mut self.normal,
            Priority::Background => &mut self.background,
        }
    }

    /// Stops items below this index from waiting for later ones. Only runs call it, whose items are all normal.
    pub(super) fn hurry(&mut self, below: u64) {
        self.normal.hurry(below);
    }

    /// Appends the next item.
    pub(super) fn push(&mut self, index: u64, meta: Meta) {
        self.queue_mut(meta.priority).push(index, meta);
    }

    /// Decides what a free producer does. `due` is the number of background items that go before normal ones.
    pub(super) fn pick(
        &self,
        due: u64,
        rule: Batch,
        limits: Limits,
        now: RunTime,
        more: More,
    ) -> Pick<Mixture> {
        let only = match (self.normal.is_empty(), self.background.is_empty()) {
            (_, true) => Priority::Normal,
            (true, false) => Priority::Background,
            (false, false) => return self.pick_of_both(due, rule, limits, now, more),
        };
        match self.queue(only).pick(rule, limits, now, more) {
            Pick::Take(selection) => Pick::Take(Mixture::One(only, selection)),
            Pick::Wait => Pick::Wait,
            Pick::WaitUntil(time) => Pick::WaitUntil(time),
        }
    }

    /// The batch of the first item, if that is full without one of the other priority.
    pub(super) fn full(&self, limits: Limits) -> Option<Mixture> {
        let priority = if self.normal.is_empty() { Priority::Background } else { Priority::Normal };
        let queue = self.queue(priority);
        if queue.is_empty() {
            return None;
        }
        let (selection, fill) = queue.around_first(limits);
        (fill == Fill::Full).then_some(Mixture::One(priority, selection))
    }

    /// Picks the batch that contains the first normal item, and fills it up with background items.
    ///
    /// If normal items alone fill the batch, background items that are due go first. Otherwise it has room for some
    /// anyway.
    fn pick_of_both(
        &self,
        due: u64,
        rule: Batch,
        limits: Limits,
        now: RunTime,
        more: More,
    ) -> Pick<Mixture> {
        let (selection, fill) = self.normal.around_first(limits);
        if fill == Fill::Full {
            let mixture = match due {
                0 => Mixture::One(Priority::Normal, selection),
                due => self.with_due(due, limits),
            };
            return Pick::Take(mixture);
        }
        let normal = self.normal.places(selection);
        let (background, fill) = self.background.that_fit(self.normal.load_of(&normal), limits);
        let waited = self.normal.waited(now).max(self.background.waited(now));
        let may_wait = self.normal.may_wait() && self.background.may_wait();
        let more = if may_wait { more } else { More::Never };
        match rule.decide(fill, waited, more) {
            BatchDecision::Take => Pick::Take(Mixture::Both { normal, background }),
            wait => match (self.normal.full(limits), wait) {
                (Some(selection), _) => Pick::Take(Mixture::One(Priority::Normal, selection)),
                (None, BatchDecision::WaitFor(time)) => Pick::WaitUntil(now.after(time)),
                (None, _) => Pick::Wait,
            },
        }
    }

    /// Selects the background items that are due, and fills their batch up with normal items.
    fn with_due(&self, due: u64, limits: Limits) -> Mixture {
        let few = Limits { items: limits.items.min(due), ..limits };
        let background = self.background.places(self.background.around_first(few).0);
        let (normal, _) = self.normal.that_fit(self.background.load_of(&background), limits);
        Mixture::Both { normal, background }
    }

    /// Takes these items, in the order of their indices.
    pub(super) fn take(&mut self, mixture: Mixture) -> Vec<Sized> {
        match mixture {
            Mixture::One(priority, selection) => self.queue_mut(priority).take(selection),
            Mixture::Both { normal, background } => {
                let mut taken = self.normal.take_places(normal);
                taken.extend(self.background.take_places(background));
                taken.sort_unstable_by_key(|item| item.index);
                taken
            }
        }
    }

    /// Takes the item with this index. Returns whether it was here.
    pub(super) fn withdraw(&mut self, index: u64) -> bool {
        self.normal.withdraw(index).is_some() || self.background.withdraw(index).is_some()
    }

    /// Drops the items from this index on.
    pub(super) fn give_up_from(&mut self, bound: u64) {
        self.normal.give_up_from(bound);
        self.background.give_up_from(bound);
    }
}
