//! The producers of a run: which take part, which are late, which wait, and what the backend does about it.

use super::answers::TooFewProducers;
use super::config::Config;
use super::deadlines::{Absence, Deadlines};
use super::events::{Events, Expired, SchedulerEvent};
use super::health::ProducerHealth;
use super::lease::{Held, LeaseId, Leases, Phase, ProducerId, priority_of};
use super::priority::Priority;
use super::time::RunTime;
use super::waiters::{Takes, Waiters};

/// The producers of a run, with the requests to the backend about them.
#[derive(Debug)]
pub(super) struct RunProducers {
    pub(super) health: ProducerHealth,
    pub(super) deadlines: Deadlines,
    pub(super) waiters: Waiters,
    pub(super) events: Events,
    /// The run fails below this number of live producers.
    least: usize,
    /// Whether every producer that asks for a lease leaves.
    pub(super) is_aborted: bool,
}

impl RunProducers {
    pub(super) fn new(config: &Config, now: RunTime) -> Self {
        let Config { producers, quarantine_after, timeouts, .. } = *config;
        let places = config.places.clone();
        RunProducers {
            health: ProducerHealth::new(producers, quarantine_after, places),
            deadlines: Deadlines::new(timeouts, producers, now),
            waiters: Waiters::new(producers),
            events: Events::default(),
            least: config.min_producers.max(1),
            is_aborted: false,
        }
    }

    /// Which items a producer takes.
    pub(super) fn takes(&self, producer: ProducerId) -> Takes {
        if self.health.is_suspended(producer) { Takes::TriedBefore } else { Takes::All }
    }

    /// Checks that enough producers would be left without this one.
    pub(super) fn can_lose(&self, producer: ProducerId) -> Result<(), TooFewProducers> {
        let live = self.health.live() - usize::from(self.health.is_live(producer));
        match live < self.least {
            true => Err(TooFewProducers { live }),
            false => Ok(()),
        }
    }

    /// Notes that the producer is in a hook without a lease.
    pub(super) fn expect(&mut self, producer: ProducerId, absence: Absence, now: RunTime) {
        self.deadlines.expect(producer, absence, now);
        self.health.detach(producer);
        self.wake_all();
    }

    /// Has the producer take part again, if none of its leases is detached.
    pub(super) fn rejoin(&mut self, producer: ProducerId, leases: &Leases) {
        if !leases.is_detached(producer) && !self.health.is_available(producer) {
            self.health.rejoin(producer);
            self.wake_all();
        }
    }

    /// Reports a lease without wanted items, whose producer is in a hook. Nothing waits for that producer.
    pub(super) fn revoke(&mut self, lease: LeaseId, producer: ProducerId) {
        self.events.push(SchedulerEvent::Revoke { lease, producer });
        self.health.detach(producer);
        self.wake_all();
    }

    /// Excludes the producer of a hook that took too long until that returns. Returns whether it took part.
    pub(super) fn expire(&mut self, expired: Expired) -> bool {
        let producer = expired.producer;
        self.events.push(SchedulerEvent::Expired(expired));
        let was_live = self.health.is_live(producer);
        self.health.leave(producer);
        was_live
    }

    /// Reports if too few producers are left without one that took part.
    pub(super) fn note_departure(&mut self, producer: ProducerId) {
        self.deadlines.clear(producer);
        let live = self.health.live();
        if live < self.least {
            self.events.push(SchedulerEvent::TooFewProducers { live });
        }
        // Also this producer, which leaves. Producers that waited for it no longer have to.
        self.wake_all();
    }

    /// The producers that take part and are in a hook.
    pub(super) fn in_hooks(&self, leases: &Leases) -> Vec<ProducerId> {
        let is_busy = |it| leases.is_busy(it) || self.deadlines.absence(it).is_some();
        let all = 0..self.waiters.len();
        all.filter(|&it| is_busy(it) && self.health.is_live(it)).collect()
    }

    /// Has all leases given back that were not begun, if `idle` could take them.
    pub(super) fn recall_for(&mut self, idle: ProducerId, leases: &Leases) {
        if self.waiters.taking(Takes::All).all(|producer| producer != idle) {
            return;
        }
        self.recall_those(leases, |_| true);
    }

    /// Recalls the leases of this priority that were not begun.
    pub(super) fn recall(&mut self, priority: Priority, leases: &Leases) {
        self.recall_those(leases, |held| priority_of(&held.items) == priority);
    }

    fn recall_those(&mut self, leases: &Leases, is_one: impl Fn(&Held) -> bool) {
        let ahead = leases.iter().filter(|(_, it)| it.phase == Phase::Ahead && is_one(it));
        let mut holders: Vec<_> = ahead.map(|(_, held)| held.producer).collect();
        holders.dedup();
        holders.into_iter().for_each(|holder| self.events.push(SchedulerEvent::Recall(holder)));
    }

    /// Has a producer that waits ask for a lease again.
    pub(super) fn wake(&mut self, producer: ProducerId) {
        if self.waiters.wake(producer) {
            self.events.push(SchedulerEvent::Wake(producer));
        }
    }

    pub(super) fn wake_all(&mut self) {
        let waiting: Vec<_> = self.waiters.waiting().collect();
        waiting.into_iter().for_each(|producer| self.wake(producer));
    }

    /// Wakes the producers that would not ask again by themselves.
    pub(super) fn wake_those_without_time(&mut self) {
        let idle: Vec<_> = self.waiters.without_time().collect();
        idle.into_iter().for_each(|producer| self.wake(producer));
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
}
