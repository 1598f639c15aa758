//! Which items a producer is leased next, and which producers are woken for them.

use super::ahead;
use super::events::{Event, Expired};
use super::items::{Dropped, Items, Outcome, Standing, State};
use super::lease::{
    Chosen, Copies, Generation, Held, Lease, LeaseId, Leases, Phase, Piece, ProducerId, Sized,
};
use super::pending::Pick;
use super::speculation::Chance;
use super::split::{Cut, Part};
use super::time::RunTime;
use super::waiters::Takes;
use super::{Activity, Input, Next, Readiness, Scheduler};
use crate::batch::{Limits, More, Size};

impl Scheduler {
    /// Leases items to a producer without work. A producer that has to wait asks again when it is woken.
    pub fn lease(&mut self, producer: ProducerId, readiness: Readiness, now: RunTime) -> Next {
        self.waiters.remove(producer);
        if self.is_aborted || !self.health.is_present(producer) {
            self.wake_for_work(now);
            return Next::Leave;
        }
        if let Some(chosen) = self.choose(producer, now) {
            let lease = self.grant(chosen, producer, readiness.into(), now);
            self.wake_for_work(now);
            self.wake_helpers();
            return Next::Work(lease);
        }
        let until = self.next_look(producer, now);
        self.waiters.add(producer, until, self.takes(producer));
        ahead::recall_for(self, producer);
        // This producer may have been the one woken for work that it may not take.
        self.wake_for_work(now);
        until.map_or(Next::Wait, Next::WaitUntil)
    }

    /// Notes that the producer has found work by itself.
    pub fn stop_waiting(&mut self, producer: ProducerId, now: RunTime) {
        self.waiters.remove(producer);
        self.wake_for_work(now);
    }

    fn takes(&self, producer: ProducerId) -> Takes {
        match self.health.is_suspended(producer) {
            true => Takes::TriedBefore,
            false => Takes::All,
        }
    }

    fn choose(&mut self, producer: ProducerId, now: RunTime) -> Option<Chosen> {
        while let Some(part) = self.parts.take_own(producer) {
            if let Some(chosen) = self.choose_part(part, producer) {
                return Some(chosen);
            }
        }
        // Before new items, since the consumer may wait for it.
        if let Some(chosen) = ahead::choose_retry(self, producer, now) {
            return Some(chosen);
        }
        if self.takes(producer) == Takes::All
            && let Some(chosen) = self.choose_new(producer, now)
        {
            return Some(chosen);
        }
        self.choose_copy(producer, now)
    }

    fn choose_new(&mut self, producer: ProducerId, now: RunTime) -> Option<Chosen> {
        while let Some(part) = self.parts.take_free() {
            if let Some(chosen) = self.choose_part(part, producer) {
                return Some(chosen);
            }
        }
        if !self.pending.is_empty()
            && let Pick::Take(selection) = self.pick(producer, now)
        {
            return Some(Chosen::first(self.pending.take(selection)));
        }
        while let Some(part) = self.parts.steal(|owner| self.leases.is_busy(owner)) {
            if let Some(chosen) = self.choose_part(part, producer) {
                return Some(chosen);
            }
        }
        None
    }

    /// Takes as much of a part as the device has memory for. `None` if its items are no longer wanted.
    fn choose_part(&mut self, mut part: Part, producer: ProducerId) -> Option<Chosen> {
        self.drop_settled(&mut part.items);
        if part.items.is_empty() {
            return None;
        }
        part.owner = Some(producer);
        if let Some(rest) = part.cut_to(self.batching.limits, &self.learned[producer]) {
            self.parts.push(rest);
        }
        Some(Chosen { items: part.items, attempt: part.attempt, piece: Piece::Part })
    }

    /// Chooses a copy of a slow item, if everything else waits for it.
    fn choose_copy(&mut self, producer: ProducerId, now: RunTime) -> Option<Chosen> {
        let Chance::Now(slow) = self.chance(producer, now) else { return None };
        let held = self.leases.get(slow).expect("it was just found");
        let (attempt, mut items) = (held.attempt, held.items.clone());
        items.retain(|item| item.index < self.bound && !self.items.is_settled(item.index));
        for item in &items {
            let record = self.items.open(item.index, item.size, 1);
            record.history.attempt = attempt;
            record.carriers += 1;
        }
        (!items.is_empty()).then_some(Chosen { items, attempt, piece: Piece::Part })
    }

    pub(super) fn grant_untracked(
        &mut self,
        index: u64,
        producer: ProducerId,
        readiness: Readiness,
        now: RunTime,
    ) -> Lease {
        let items = vec![Sized { index, size: Size::ONE }];
        self.grant(Chosen::first(items), producer, readiness.into(), now)
    }

    pub(super) fn grant(
        &mut self,
        Chosen { items, attempt, piece }: Chosen,
        producer: ProducerId,
        phase: Phase,
        now: RunTime,
    ) -> Lease {
        let indices = items.iter().map(|item| item.index).collect();
        let held = Held {
            producer,
            phase,
            attempt,
            open: items.len(),
            since: now,
            deadline: self.deadlines.of_lease(phase, items.len(), now),
            // The backend reports copies only when it has them.
            copies: Copies::Missing,
            items,
        };
        Lease { id: self.leases.insert(held), items: indices, attempt, piece }
    }

    /// The time at which a producer without work has to look again.
    fn next_look(&mut self, producer: ProducerId, now: RunTime) -> Option<RunTime> {
        let retry = self.retries.next_look(producer, &self.health, &self.waiters, now);
        let pending = match self.takes(producer) {
            Takes::All if !self.pending.is_empty() => match self.pick(producer, now) {
                Pick::WaitUntil(time) if self.waiters.waiting_until(time).next().is_none() => {
                    Some(time)
                }
                _ => None,
            },
            _ => None,
        };
        let copy = match self.chance(producer, now) {
            Chance::At(due) => Some(due),
            Chance::Now(_) | Chance::None => None,
        };
        retry.into_iter().chain(pending).chain(copy).min()
    }

    /// The batch of new items that a producer would take.
    fn pick(&self, producer: ProducerId, now: RunTime) -> Pick {
        self.pending.pick(self.batching.rule, self.limits_of(producer), now, self.more())
    }

    fn limits_of(&self, producer: ProducerId) -> Limits {
        let limits = self.batching.limits;
        self.learned[producer].extent().map_or(limits, |extent| limits.below(extent))
    }

    fn more(&self) -> More {
        match (self.input, self.feeder) {
            (Input::Ended, _) | (Input::MayCome, Activity::Waiting) => More::Never,
            (Input::MayCome, Activity::Working) => More::MayCome,
            (Input::Calls, _) => match self.batching.rule.is_timed() {
                true => More::MayCome,
                false => More::Never,
            },
        }
    }

    fn chance(&self, producer: ProducerId, now: RunTime) -> Chance {
        match self.speculation.is_on() && self.stands_still() {
            true => self.speculation.chance(producer, &self.leases, &self.items, &self.health, now),
            false => Chance::None,
        }
    }

    /// Whether everything waits for items that are in hooks.
    fn stands_still(&self) -> bool {
        match self.input {
            Input::Calls => self.pending.is_empty(),
            Input::MayCome | Input::Ended => {
                self.more() == More::Never && self.consumer == Activity::Waiting
            }
        }
    }

    /// Settles one item of a lease that has ended.
    pub(super) fn settle(
        &mut self,
        item: Sized,
        outcome: Outcome,
        producer: ProducerId,
        now: RunTime,
    ) -> Standing {
        let Sized { index, size } = item;
        if index >= self.bound {
            // The end of the run does not wait for another producer that still works on it.
            if outcome == Outcome::Succeeded && self.items.get(index).is_some() {
                if self.items.settle(index, size, outcome, producer).has_losers {
                    self.revoke(index, now);
                }
            } else if self.items.uncover(index) == Dropped::Alone {
                self.items.remove(index);
            }
            return Standing::Stale;
        }
        let settlement = self.items.settle(index, size, outcome, producer);
        if settlement.has_losers {
            self.revoke(index, now);
        }
        let shows_something = settlement.was_special || self.health.is_suspect(producer);
        if outcome == Outcome::Succeeded
            && settlement.standing == Standing::Counts
            && shows_something
        {
            self.clear(index, producer, now);
        }
        settlement.standing
    }

    /// Records that a producer succeeded with an item, which may show what was to blame for earlier failures.
    pub(super) fn clear(&mut self, index: u64, producer: ProducerId, now: RunTime) {
        if !self.health.has_suspects() {
            return;
        }
        for guilty in self.health.succeeded(index, producer) {
            self.events.push(Event::Quarantined(guilty, self.health.generation(guilty)));
            self.after_loss(guilty, now);
        }
        self.wake_unsuspended();
    }

    /// Revokes the leases that still cover a settled item.
    pub(super) fn revoke(&mut self, index: u64, now: RunTime) {
        for id in self.leases.covering(index) {
            let held = self.leases.get_mut(id).expect("it covers the item");
            held.open -= 1;
            if held.is_detached() {
                let producer = held.producer;
                self.events.push(Event::Revoke { lease: id, producer });
                self.health.detach(producer);
                self.wake_all();
            }
        }
        self.wake_for_work(now);
    }

    /// Whether another producer works on an item of this lease, or has settled it.
    pub fn is_shared(&self, id: LeaseId) -> bool {
        self.leases.get(id).is_none_or(|held| self.items.are_shared(&held.items))
    }

    /// The leases that are held.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The records of items that failed, or that several producers work on.
    pub fn items(&self) -> &Items {
        &self.items
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

    /// Ends a lease. `None` if it was already over.
    pub(super) fn end_lease(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.leases.remove(id)?;
        if held.is_detached() {
            self.rejoin(held.producer);
        }
        Some(held)
    }

    pub(super) fn rejoin(&mut self, producer: ProducerId) {
        let is_detached = self.leases.of(producer).any(|(_, held)| held.is_detached());
        if !is_detached && !self.health.is_available(producer) {
            self.health.rejoin(producer);
            self.wake_all();
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
            self.parts.push(Part { owner, items: alone, attempt, cut });
            return;
        }
        for Sized { index, size } in alone {
            let record = self.items.open(index, size, 0);
            record.state = State::Open;
            self.retries.insert(index, record.history.claims.clone(), now, now);
        }
    }

    pub(super) fn expire(&mut self, id: LeaseId, now: RunTime) {
        // It may have ended together with another lease of its producer.
        let Some(held) = self.leases.remove(id) else { return };
        let Held { producer, phase, attempt, .. } = held;
        let leased = held.items.len();
        let mut items = Vec::new();
        match phase {
            Phase::Ahead | Phase::Preparing | Phase::Ending => self.put_back(held, now),
            Phase::Working => {
                let failed = held.items.into_iter().filter(|&item| {
                    self.settle(item, Outcome::Failed, producer, now) == Standing::Counts
                });
                items.extend(failed.map(|item| item.index));
            }
        }
        let lease = Some(id);
        self.expired(
            Expired { producer, generation: 0, lease, phase, attempt, leased, items },
            now,
        );
    }

    /// Abandons the producers that are still in a hook when the grace of the run is over.
    pub(super) fn abandon_all(&mut self, now: RunTime) {
        for producer in 0..self.waiters.len() {
            let is_busy = self.leases.of(producer).next().is_some()
                || self.deadlines.absence(producer).is_some();
            if is_busy && self.health.is_live(producer) {
                self.events.push(Event::Abandon(producer));
                self.lose(producer, now);
            }
        }
    }

    /// Removes the producer for good, and puts its items back. It may already be lost, but hold items.
    pub(super) fn lose(&mut self, producer: ProducerId, now: RunTime) {
        let was_live = self.health.is_live(producer);
        self.health.lose(producer);
        self.after_departure(producer, was_live, now);
    }

    /// Removes the producer until the hook that it is in returns, and puts its items back.
    pub(super) fn expired(&mut self, expired: Expired, now: RunTime) {
        let producer = expired.producer;
        let (latest, is_lost) =
            (self.health.generation(producer), self.health.awaits_successor(producer));
        // A lost producer that is still in a hook is not lost once more.
        let generation = latest - Generation::from(is_lost);
        self.events.push(Event::Expired(Expired { generation, ..expired }));
        let was_live = self.health.is_live(producer) && !is_lost;
        if !is_lost {
            self.health.leave(producer);
        }
        self.after_departure(producer, was_live, now);
    }

    fn after_departure(&mut self, producer: ProducerId, was_live: bool, now: RunTime) {
        let leases: Vec<_> = self.leases.of(producer).map(|(id, _)| id).collect();
        for id in leases {
            let held = self.leases.remove(id).expect("it was just found");
            self.put_back(held, now);
        }
        match was_live {
            true => self.after_loss(producer, now),
            false => self.wake_for_work(now),
        }
    }

    fn after_loss(&mut self, producer: ProducerId, now: RunTime) {
        self.deadlines.clear(producer);
        self.parts.disown(producer);
        if !self.is_aborted {
            self.health.replace(producer);
        }
        let live = self.health.live();
        if live < self.config.min_producers.max(1) {
            self.events.push(Event::TooFewProducers { live });
        }
        // Also this producer, which leaves. Producers that waited for it no longer have to.
        self.wake_all();
        self.wake_for_work(now);
    }

    fn wake(&mut self, producer: ProducerId) {
        if self.waiters.wake(producer) {
            self.events.push(Event::Wake(producer));
        }
    }

    pub(super) fn wake_all(&mut self) {
        let waiting: Vec<_> = self.waiters.waiting().collect();
        waiting.into_iter().for_each(|producer| self.wake(producer));
    }

    /// Wakes the producers that wait as suspended and no longer are.
    pub(super) fn wake_unsuspended(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let suspended = self.waiters.taking(Takes::TriedBefore);
        let free: Vec<_> = suspended.filter(|&it| !self.health.is_suspended(it)).collect();
        free.into_iter().for_each(|producer| self.wake(producer));
    }

    /// Wakes one producer for each piece of work.
    pub(super) fn wake_for_work(&mut self, now: RunTime) {
        if self.waiters.is_empty() {
            return;
        }
        while let Some(producer) = self.retries.unwatched(&self.health, &self.waiters, now) {
            self.wake(producer);
        }
        self.wake_for_parts();
        self.wake_for_pending(now);
    }

    /// Wakes a producer for parts whose owner is busy.
    pub(super) fn wake_for_parts(&mut self) {
        if self.waiters.is_empty() || self.parts.is_empty() {
            return;
        }
        let here = self.parts.count_for_others(|owner| self.leases.is_busy(owner));
        if self.waiters.woken().count() < here {
            let free = self.waiters.taking(Takes::All).next();
            free.into_iter().for_each(|producer| self.wake(producer));
        }
    }

    /// Wakes a producer for new items that make a batch, or that need a producer to watch their time limit.
    pub(super) fn wake_for_pending(&mut self, now: RunTime) {
        if self.waiters.is_empty() || self.pending.is_empty() {
            return;
        }
        let coming = self.waiters.woken().count() as u64;
        let most = self.batching.limits.items.max(1);
        if coming > 0 && coming * most >= self.pending.len() as u64 {
            return;
        }
        let wakes = |producer: &ProducerId| match self.pick(*producer, now) {
            Pick::Take(_) => true,
            Pick::WaitUntil(time) => self.waiters.waiting_until(time).next().is_none(),
            Pick::Wait => false,
        };
        let free = self.waiters.taking(Takes::All).find(wakes);
        free.into_iter().for_each(|producer| self.wake(producer));
    }

    /// Wakes the producers that could copy slow items and would not look by themselves.
    pub(super) fn wake_helpers(&mut self) {
        if self.speculation.is_on() && self.stands_still() {
            let idle: Vec<_> = self.waiters.without_time().collect();
            idle.into_iter().for_each(|producer| self.wake(producer));
        }
    }
}
