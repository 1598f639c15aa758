//! The items of a run that are not done: what a producer may be leased of them, and what the end of a lease means.

use super::answers::Memory;
use super::batches::RunBatches;
use super::config::Config;
use super::events::{Expired, SchedulerEvent};
use super::health::ProducerHealth;
use super::items::{Dropped, ItemState, Items, Outcome, Standing};
use super::lease::{Chosen, Copies, Held, Lease, LeaseId, Leases, Phase, Piece, ProducerId, Sized};
use super::priority::Priority;
use super::producers::RunProducers;
use super::retry::Decision;
use super::retry_queue::RetryQueue;
use super::split::{BatchPart, Cut};
use super::time::RunTime;
use super::waiters::Takes;
use crate::batch::DeviceBatches;

/// The items that wait or are leased.
///
/// A method that frees items takes the producers too, to wake one for each piece of work.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) items: Items,
    pub(super) leases: Leases,
    pub(super) retries: RetryQueue,
    pub(super) batches: RunBatches,
    /// Items from this index on are not wanted.
    pub(super) bound: u64,
}

impl Workload {
    pub(super) fn new(config: &Config, learned: Vec<DeviceBatches>) -> Self {
        Workload {
            items: Items::default(),
            leases: Leases::default(),
            retries: RetryQueue::default(),
            batches: RunBatches::new(config, learned),
            bound: u64::MAX,
        }
    }

    /// Takes the next part of a batch that the producer failed.
    #[inline]
    pub(super) fn take_own_part(
        &mut self,
        producer: ProducerId,
        priority: Priority,
    ) -> Option<Chosen> {
        self.take_part(producer, |work| work.batches.parts.take_own(producer, priority))
    }

    /// Takes an item that waits for another attempt, or that was given back.
    pub(super) fn take_retry(
        &mut self,
        producer: ProducerId,
        priority: Priority,
        health: &ProducerHealth,
        now: RunTime,
    ) -> Option<Chosen> {
        let index = self.retries.take(producer, priority, health, now)?;
        let record = self.items.get_mut(index).expect("an item that waits has a record");
        record.carriers += 1;
        let (size, attempt) = (record.size, record.history.attempt);
        let items = vec![Sized { index, size, priority }];
        Some(Chosen { items, attempt, piece: Piece::Whole })
    }

    /// Takes new items, or a part that no other producer comes to first.
    pub(super) fn take_new(
        &mut self,
        producer: ProducerId,
        priority: Priority,
        now: RunTime,
    ) -> Option<Chosen> {
        let free = self.take_part(producer, |work| work.batches.parts.take_free(priority));
        if free.is_some() {
            return free;
        }
        if let Some(batch) = self.batches.take_new(producer, priority, now) {
            return Some(batch);
        }
        self.take_part(producer, |Workload { batches, leases, .. }| {
            batches.parts.steal(priority, |owner| leases.is_busy(owner))
        })
    }

    /// Takes the next of these parts with items that are still wanted.
    fn take_part(
        &mut self,
        producer: ProducerId,
        next: impl Fn(&mut Self) -> Option<BatchPart>,
    ) -> Option<Chosen> {
        loop {
            let mut part = next(self)?;
            self.drop_settled(&mut part.items);
            if !part.items.is_empty() {
                return Some(self.batches.take_fitting(part, producer));
            }
        }
    }

    /// Takes the wanted items of a lease once more.
    pub(super) fn take_copy(&mut self, of: LeaseId) -> Option<Chosen> {
        let held = self.leases.get(of)?;
        let (attempt, mut items) = (held.attempt, held.items.clone());
        items.retain(|item| item.index < self.bound && !self.items.is_settled(item.index));
        for item in &items {
            let record = self.items.open(*item, 1);
            record.history.attempt = attempt;
            record.carriers += 1;
        }
        (!items.is_empty()).then_some(Chosen { items, attempt, piece: Piece::Copy })
    }

    /// Leases these items to a producer.
    #[inline]
    pub(super) fn grant(
        &mut self,
        Chosen { items, attempt, piece }: Chosen,
        producer: ProducerId,
        phase: Phase,
        deadline: Option<RunTime>,
        now: RunTime,
    ) -> Lease {
        let indices = items.iter().map(|item| item.index).collect();
        let held = Held {
            producer,
            phase,
            attempt,
            open: items.len(),
            since: now,
            returned: None,
            deadline,
            // The backend reports copies only when it has them.
            copies: Copies::Missing,
            piece,
            items,
        };
        Lease { id: self.leases.insert(held), items: indices, attempt, piece }
    }

    /// Whether items wait for a lease, now or later.
    pub(super) fn is_waiting(&self) -> bool {
        !self.retries.is_empty() || !self.batches.is_empty()
    }

    /// The priorities in the order in which a free producer is offered their items.
    #[inline]
    pub(super) fn turns(&self) -> &'static [Priority] {
        if !self.batches.has_background {
            return &[Priority::Normal];
        }
        match self.batches.due() {
            0 => &[Priority::Normal, Priority::Background],
            _ => &[Priority::Background, Priority::Normal],
        }
    }

    /// Whether items of this priority wait for a lease, now or later.
    pub(super) fn has(&self, priority: Priority) -> bool {
        let RunBatches { pending, parts, .. } = &self.batches;
        pending.has(priority) || parts.has(priority) || self.retries.has(priority)
    }

    /// Counts items of a lease for the share of the background, if they have some of it or it waits.
    #[inline]
    pub(super) fn note_share(&mut self, items: &[Sized]) {
        if self.batches.has_background {
            let is_background = |item: &Sized| item.priority == Priority::Background;
            if items.iter().any(is_background) || self.has(Priority::Background) {
                self.batches.note_share(items);
            }
        }
    }

    /// The time at which a producer without work has to look again.
    pub(super) fn next_look(
        &mut self,
        producer: ProducerId,
        RunProducers { health, waiters, .. }: &RunProducers,
        takes: Takes,
        now: RunTime,
    ) -> Option<RunTime> {
        let retry = self.retries.next_look(producer, health, waiters, now);
        let new = match takes {
            Takes::All => self.batches.next_look(producer, waiters, now),
            Takes::TriedBefore => None,
        };
        retry.into_iter().chain(new).min()
    }

    /// Ends a lease. `None` if it was already over.
    pub(super) fn end(&mut self, id: LeaseId, producers: &mut RunProducers) -> Option<Held> {
        let held = self.leases.remove(id)?;
        if held.is_detached() {
            producers.rejoin(held.producer, &self.leases);
        }
        Some(held)
    }

    /// Settles one item of a lease that has ended.
    pub(super) fn settle(
        &mut self,
        item: Sized,
        outcome: Outcome,
        producer: ProducerId,
        producers: &mut RunProducers,
        now: RunTime,
    ) -> Standing {
        let index = item.index;
        if index >= self.bound {
            // The end of the run does not wait for another producer that still works on it.
            if outcome == Outcome::Succeeded && self.items.get(index).is_some() {
                if self.items.settle(item, outcome, producer).has_losers {
                    self.revoke(index, producers, now);
                }
            } else if self.items.uncover(index) == Dropped::Alone {
                self.items.remove(index);
            }
            return Standing::Stale;
        }
        let settlement = self.items.settle(item, outcome, producer);
        if settlement.has_losers {
            self.revoke(index, producers, now);
        }
        let shows_something = settlement.was_special || producers.health.is_suspect(producer);
        if outcome == Outcome::Succeeded
            && settlement.standing == Standing::Counts
            && shows_something
        {
            self.clear(index, producer, producers, now);
        }
        settlement.standing
    }

    /// Records that a producer succeeded with an item, which may show what was to blame for earlier failures.
    fn clear(
        &mut self,
        index: u64,
        producer: ProducerId,
        producers: &mut RunProducers,
        now: RunTime,
    ) {
        if !producers.health.has_suspects() {
            return;
        }
        for guilty in producers.health.succeeded(index, producer) {
            producers.events.push(SchedulerEvent::Quarantined(guilty));
            self.after_loss(guilty, producers, now);
        }
        producers.wake_unsuspended();
    }

    /// Revokes the leases that still cover a settled item.
    pub(super) fn revoke(&mut self, index: u64, producers: &mut RunProducers, now: RunTime) {
        for id in self.leases.covering(index) {
            let held = self.leases.get_mut(id).expect("it covers the item");
            held.open -= 1;
            if held.is_detached() {
                producers.revoke(id, held.producer);
            }
        }
        self.wake_for_work(producers, now);
    }

    /// Removes the items that are no longer wanted.
    pub(super) fn drop_settled(&mut self, items: &mut Vec<Sized>) {
        let is_over = |it: &mut Sized| it.index >= self.bound || self.items.is_settled(it.index);
        let over: Vec<_> = items.extract_if(.., |it| is_over(it)).collect();
        for item in over {
            if self.items.uncover(item.index) == Dropped::Alone {
                self.items.remove(item.index);
            }
        }
    }

    /// Puts back the items of a lease that has ended without an outcome.
    pub(super) fn put_back(&mut self, held: Held, now: RunTime) {
        let mut alone = Vec::new();
        for item in held.items {
            let is_wanted = item.index < self.bound;
            match self.items.uncover(item.index) {
                Dropped::Covered => {}
                Dropped::Alone if is_wanted => alone.push(item),
                Dropped::Alone => _ = self.items.remove(item.index),
            }
        }
        let is_plain = |item: &Sized| self.items.get(item.index).is_none();
        if alone.len() > 1 && alone.iter().all(is_plain) {
            let (owner, attempt, cut) = (None, held.attempt, Cut::Memory);
            self.batches.parts.push(BatchPart { owner, items: alone, attempt, cut });
            return;
        }
        for item in alone {
            let record = self.items.open(item, 0);
            record.state = ItemState::Open;
            self.retries.insert(item.index, record.history.claims.clone(), now, now);
        }
    }

    /// Does with a failed item what was decided.
    pub(super) fn apply(
        &mut self,
        decision: Decision,
        index: u64,
        producers: &mut RunProducers,
        now: RunTime,
    ) {
        let Decision::Retry(due) = decision else { return self.forget(index, producers) };
        let record = self.items.get_mut(index).expect("an item that is tried again has failed");
        let last = record.history.claims.tried.last().copied();
        record.history.advance(last.expect("a producer has failed it"));
        record.state = ItemState::Open;
        self.retries.insert(index, record.history.claims.clone(), due, now);
        producers.wake_unsuspended();
    }

    /// Forgets a finished item. No further attempt can show whether a producer was to blame for it.
    pub(super) fn forget(&mut self, index: u64, producers: &mut RunProducers) {
        self.items.remove(index);
        producers.health.blame_item(index);
        producers.wake_unsuspended();
    }

    /// Gives up an item whose result is no longer wanted.
    pub(super) fn withdraw(&mut self, index: u64, producers: &mut RunProducers, now: RunTime) {
        if self.batches.pending.withdraw(index) {
            return;
        }
        if self.retries.remove(index) {
            self.items.remove(index);
            return;
        }
        let carriers = self.leases.covering(index).len() as u32;
        self.batches.parts.retain(|it| it != index);
        if carriers == 0 {
            self.items.remove(index);
            return;
        }
        let record = self.items.open(Sized::plain(index), carriers);
        record.carriers = carriers;
        if std::mem::replace(&mut record.state, ItemState::Settled) != ItemState::Settled {
            self.revoke(index, producers, now);
        }
    }

    /// Gives up all items from this index on. Returns whether any was wanted.
    pub(super) fn give_up_from(&mut self, index: u64) -> bool {
        if index >= self.bound {
            return false;
        }
        self.bound = index;
        self.batches.pending.give_up_from(index);
        self.retries.give_up_from(index);
        for item in self.batches.parts.retain(|it| it < index) {
            self.items.uncover(item.index);
        }
        self.items.give_up_from(index);
        true
    }

    /// Ends a lease that is past its deadline.
    pub(super) fn expire(&mut self, id: LeaseId, producers: &mut RunProducers, now: RunTime) {
        // It may have ended together with another lease of its producer.
        let Some(held) = self.leases.remove(id) else { return };
        let Held { producer, phase, attempt, .. } = held;
        let leased = held.items.len();
        let mut items = Vec::new();
        match phase {
            Phase::Ahead | Phase::Preparing | Phase::Ending => self.put_back(held, now),
            Phase::Working => {
                let failed = held.items.into_iter().filter(|&item| {
                    let standing = self.settle(item, Outcome::Failed, producer, producers, now);
                    standing == Standing::Counts
                });
                items.extend(failed.map(|item| item.index));
            }
        }
        let lease = Some(id);
        let expired = Expired { producer, lease, phase, attempt, leased, items };
        self.leave(expired, producers, now);
    }

    /// Removes the producer until the hook that it is in returns, and puts its items back.
    pub(super) fn leave(&mut self, expired: Expired, producers: &mut RunProducers, now: RunTime) {
        let producer = expired.producer;
        let was_live = producers.expire(expired);
        self.after_departure(producer, was_live, producers, now);
    }

    /// Removes the producer for good, and puts its items back. It may already be lost, but hold items.
    pub(super) fn lose(
        &mut self,
        producer: ProducerId,
        producers: &mut RunProducers,
        now: RunTime,
    ) {
        let was_live = producers.health.is_live(producer);
        producers.health.lose(producer);
        self.after_departure(producer, was_live, producers, now);
    }

    fn after_departure(
        &mut self,
        producer: ProducerId,
        was_live: bool,
        producers: &mut RunProducers,
        now: RunTime,
    ) {
        let leases: Vec<_> = self.leases.of(producer).map(|(id, _)| id).collect();
        for id in leases {
            let held = self.leases.remove(id).expect("it was just found");
            self.put_back(held, now);
        }
        match was_live {
            true => self.after_loss(producer, producers, now),
            false => self.wake_for_work(producers, now),
        }
    }

    fn after_loss(&mut self, producer: ProducerId, producers: &mut RunProducers, now: RunTime) {
        self.batches.parts.disown(producer);
        producers.note_departure(producer);
        self.wake_for_work(producers, now);
    }

    /// Wakes one producer for each piece of work.
    pub(super) fn wake_for_work(&mut self, producers: &mut RunProducers, now: RunTime) {
        if producers.waiters.is_empty() {
            return self.wake_for_pending(producers, now);
        }
        while let Some(producer) =
            self.retries.unwatched(&producers.health, &producers.waiters, now)
        {
            producers.wake(producer);
        }
        self.wake_for_parts(producers);
        self.wake_for_pending(producers, now);
    }

    /// Puts the items of a lease back in parts. The owner takes one next; the others are for other producers.
    pub(super) fn split(
        &mut self,
        held: Held,
        memory: Memory,
        producers: &mut RunProducers,
    ) -> Vec<u64> {
        let items = held.items.iter().map(|item| item.index).collect();
        let owner = Some(held.producer).filter(|&owner| producers.health.is_live(owner));
        self.batches.split(held, owner, memory);
        self.wake_for_parts(producers);
        items
    }

    pub(super) fn wake_for_parts(&self, producers: &mut RunProducers) {
        let free = self.batches.unwatched_part(&producers.waiters, &self.leases);
        free.into_iter().for_each(|producer| producers.wake(producer));
    }

    #[inline]
    pub(super) fn wake_for_pending(&self, producers: &mut RunProducers, now: RunTime) {
        if !producers.waiters.is_empty() {
            let free = self.batches.unwatched(&producers.waiters, now);
            free.into_iter().for_each(|producer| producers.wake(producer));
        } else if let Some(busy) = self.batches.full_for(&producers.waiters, now) {
            producers.waiters.take_room(busy);
            producers.events.push(SchedulerEvent::Ahead(busy));
        }
    }
}
