//! The queue of retries: which producer tries which failed item next.

use std::collections::BTreeSet;

use super::health::ProducerHealth;
use super::lease::ProducerId;
use super::priority::Priority;
use super::time::RunTime;
use super::waiters::Waiters;

/// Items that wait for a retry, in classes by the producers that may try them.
///
/// A producer that asks for work looks at the classes, not at the items. There are about as many classes as
/// producers, but up to a window of items.
#[derive(Debug, Default)]
pub(super) struct RetryQueue {
    classes: Vec<Class>,
    len: usize,
}

/// Items that the same producers may try.
#[derive(Debug)]
struct Class {
    claims: Claims,
    /// Indexed by producer; valid for `version` of the producers' health.
    may_try: Vec<bool>,
    version: Option<u64>,
    /// Items that may be tried now.
    ready: BTreeSet<u64>,
    /// Items that wait, with the earliest time of their retry.
    timed: BTreeSet<(RunTime, u64)>,
}

/// What decides which producers may try an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    /// The producers that should not try it if others can.
    pub(super) tried: Vec<ProducerId>,
    /// The only producer that may try the item, as long as that producer is available.
    pub(super) keeper: Option<ProducerId>,
    /// The priority of the item. A retry goes before new items of the same priority.
    pub(super) priority: Priority,
}

impl RetryQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item. From `due` on it waits for a producer that may try it.
    pub(super) fn insert(&mut self, index: u64, mut claims: Claims, due: RunTime, now: RunTime) {
        claims.tried.sort_unstable();
        let found = self.classes.iter().position(|class| class.claims == claims);
        let place = found.unwrap_or_else(|| {
            self.classes.push(Class::new(claims));
            self.classes.len() - 1
        });
        let class = &mut self.classes[place];
        let is_new = match due <= now {
            true => class.ready.insert(index),
            false => class.timed.insert((due, index)),
        };
        debug_assert!(is_new, "an item waits once");
        self.len += 1;
    }

    /// Whether items of this priority wait.
    pub(super) fn has(&self, priority: Priority) -> bool {
        self.classes.iter().any(|class| class.claims.priority == priority)
    }

    /// Takes the first item of this priority that `producer` may try now.
    pub(super) fn take(
        &mut self,
        producer: ProducerId,
        priority: Priority,
        health: &ProducerHealth,
        now: RunTime,
    ) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let classes = self.classes.iter_mut().filter(|class| class.claims.priority == priority);
        let ready = classes.filter_map(|class| {
            class.promote(now);
            let first = *class.ready.first()?;
            class.refresh(health).may_try[producer].then_some((first, class))
        });
        let (index, class) = ready.min_by_key(|(first, _)| *first)?;
        class.ready.remove(&index);
        let is_empty = class.is_empty();
        self.len -= 1;
        if is_empty {
            self.classes.retain(|class| !class.is_empty());
        }
        Some(index)
    }

    /// The time at which `producer` has to look again, unless a waiting producer that may try the same items
    /// looks then.
    pub(super) fn next_look(
        &mut self,
        producer: ProducerId,
        health: &ProducerHealth,
        waiters: &Waiters,
        now: RunTime,
    ) -> Option<RunTime> {
        let classes = self.classes.iter_mut();
        let unwatched = classes.filter_map(|class| {
            class.promote(now);
            let due = class.due(now)?;
            let class = class.refresh(health);
            let mut watchers = waiters.waiting_until(due);
            let is_mine = class.may_try[producer] && !watchers.any(|it| class.may_try[it]);
            is_mine.then_some(due)
        });
        unwatched.min()
    }

    /// Returns a producer to wake if items wait that no producer is about to look at.
    pub(super) fn unwatched(
        &mut self,
        health: &ProducerHealth,
        waiters: &Waiters,
        now: RunTime,
    ) -> Option<ProducerId> {
        self.classes.iter_mut().find_map(|class| {
            class.promote(now);
            let due = class.due(now)?;
            let class = class.refresh(health);
            let may_try = |producer: &ProducerId| class.may_try[*producer];
            let wanted = class.ready.len().max(1);
            let coming = waiters.woken().filter(may_try).take(wanted).count();
            let is_watched = coming >= wanted
                || class.ready.is_empty() && waiters.waiting_until(due).any(|it| may_try(&it));
            if is_watched { None } else { waiters.waiting().find(may_try) }
        })
    }

    /// Ends all waits for a time.
    pub(super) fn promote_all(&mut self) {
        for class in &mut self.classes {
            class
                .ready
                .extend(std::mem::take(&mut class.timed).into_iter().map(|(_, index)| index));
        }
    }

    /// Removes an item. Returns whether it was there.
    pub(super) fn remove(&mut self, index: u64) -> bool {
        let before = self.len;
        self.retain(|it| it != index);
        self.len < before
    }

    /// Removes all items from this index on.
    pub(super) fn give_up_from(&mut self, bound: u64) {
        self.retain(|index| index < bound);
    }

    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        for class in &mut self.classes {
            class.ready.retain(|&index| is_kept(index));
            class.timed.retain(|&(_, index)| is_kept(index));
        }
        self.classes.retain(|class| !class.is_empty());
        self.len = self.classes.iter().map(|class| class.ready.len() + class.timed.len()).sum();
    }
}

impl Class {
    fn new(claims: Claims) -> Self {
        let (ready, timed) = (BTreeSet::new(), BTreeSet::new());
        Class { claims, may_try: vec![], version: None, ready, timed }
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.timed.is_empty()
    }

    /// Moves due items to `ready`.
    fn promote(&mut self, now: RunTime) {
        while let Some(&(due, index)) = self.timed.first().filter(|(due, _)| *due <= now) {
            self.timed.remove(&(due, index));
            self.ready.insert(index);
        }
    }

    /// The earliest time at which an item of this class may be tried.
    fn due(&self, now: RunTime) -> Option<RunTime> {
        if self.ready.is_empty() { self.timed.first().map(|&(due, _)| due) } else { Some(now) }
    }

    fn refresh(&mut self, health: &ProducerHealth) -> &mut Self {
        if self.version != Some(health.version()) {
            self.version = Some(health.version());
            self.may_try = health.all_that_may_try(&self.claims.tried, self.claims.keeper);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::waiters::Takes;

    const LATER: Duration = Duration::from_secs(1);

    /// Returns the claims on an item that this producer has failed.
    fn after(producer: ProducerId) -> Claims {
        Claims { tried: vec![producer], keeper: None, priority: Priority::Normal }
    }

    fn later() -> RunTime {
        RunTime::START.after(LATER)
    }

    #[test]
    fn the_first_in_order_of_what_is_due_goes_to_another_producer() {
        let now = RunTime::START;
        let mut health = ProducerHealth::new(3, None, None);
        let mut queue = RetryQueue::default();
        assert_eq!(queue.take(0, Priority::Normal, &health, now), None);
        queue.insert(7, after(1), now, now);
        queue.insert(3, after(1), later(), now);
        queue.insert(5, after(0), now, now);
        assert_eq!(queue.take(0, Priority::Normal, &health, now), Some(7));
        assert_eq!(
            queue.take(0, Priority::Normal, &health, now),
            None,
            "5 failed there, and 3 is not due"
        );
        let waiters = Waiters::new(3);
        assert_eq!(queue.next_look(0, &health, &waiters, now), Some(later()));
        assert_eq!(queue.take(2, Priority::Normal, &health, now), Some(5));
        assert_eq!(queue.take(1, Priority::Normal, &health, later()), None, "it failed there");
        health.lose(0);
        health.lose(2);
        assert_eq!(queue.take(1, Priority::Normal, &health, later()), Some(3), "no other is left");
        assert!(queue.is_empty() && queue.classes.is_empty());
    }

    #[test]
    fn one_item_has_one_producer_woken_or_one_that_looks_in_time() {
        let (now, health) = (RunTime::START, ProducerHealth::new(4, None, None));
        let (mut queue, mut waiters) = (RetryQueue::default(), Waiters::new(4));
        (0..4).for_each(|producer| waiters.add(producer, None, Takes::All));
        queue.insert(5, after(0), now, now);
        assert_eq!(queue.unwatched(&health, &waiters, now), Some(1), "it failed on 0");
        waiters.wake(1);
        assert_eq!(queue.unwatched(&health, &waiters, now), None);
        queue.take(1, Priority::Normal, &health, now);
        queue.insert(6, after(0), later(), now);
        waiters.add(1, None, Takes::All);
        assert_eq!(queue.unwatched(&health, &waiters, now), Some(1));
        let until = queue.next_look(1, &health, &waiters, now);
        waiters.add(1, until, Takes::All);
        assert_eq!(queue.unwatched(&health, &waiters, now), None, "1 looks in time");
        assert_eq!(queue.next_look(2, &health, &waiters, now), None, "so 2 does not have to");
    }

    #[test]
    fn what_is_given_up_is_not_tried_again() {
        let (now, health) = (RunTime::START, ProducerHealth::new(2, None, None));
        let mut queue = RetryQueue::default();
        for (index, due) in [(3, now), (5, now), (6, later()), (8, now)] {
            queue.insert(index, after(1), due, now);
        }
        assert!(queue.remove(3) && !queue.remove(3) && !queue.remove(4));
        queue.give_up_from(6);
        assert!(!queue.remove(6) && !queue.remove(8), "from 6 on");
        assert_eq!(queue.take(0, Priority::Normal, &health, later()), Some(5));
        assert!(queue.is_empty());
    }
}
