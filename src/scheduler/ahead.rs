//! Leases ahead: a producer holds further items while it works on one, so that it need not ask in between.
//!
//! No item waits behind a slow one for that: nothing is leased ahead while a producer has nothing to do, and one
//! that begins to wait has the leases that were not begun [recalled](Event::Recall).

use super::Scheduler;
use super::events::Event;
use super::lease::{Chosen, Lease, Phase, ProducerId, Sized};
use super::pending::Pick;
use super::time::RunTime;
use super::waiters::Takes;
use crate::scheduler::batch::More;

/// Leases up to `most` items, one by one, to a producer that works on others. It does not wait for more.
pub(crate) fn lease_ahead(
    scheduler: &mut Scheduler,
    producer: ProducerId,
    most: usize,
    now: RunTime,
) -> Vec<Lease> {
    let health = &scheduler.health;
    let is_trusted = health.may_take_new(producer) && !health.is_suspect(producer);
    // A woken producer is about to ask.
    let is_idle = scheduler.waiters.taking(Takes::All).next().is_some()
        || scheduler.waiters.woken().next().is_some();
    if scheduler.is_aborted || !is_trusted || is_idle {
        return vec![];
    }
    let share = scheduler.pending.len().div_ceil(health.live().max(1));
    let mut leases = Vec::with_capacity(most.min(share));
    while leases.len() < most {
        let retry = choose_retry(scheduler, producer, now);
        let new = || (leases.len() < share).then(|| choose_first(scheduler, now)).flatten();
        let Some(chosen) = retry.or_else(new) else { break };
        leases.push(scheduler.grant(chosen, producer, Phase::Ahead, now));
    }
    leases
}

/// Has all leases given back that were not begun, if this producer could take them.
pub(super) fn recall_for(scheduler: &mut Scheduler, idle: ProducerId) {
    if scheduler.waiters.taking(Takes::All).all(|producer| producer != idle) {
        return;
    }
    let ahead = scheduler.leases.iter().filter(|(_, held)| held.phase == Phase::Ahead);
    let mut holders: Vec<_> = ahead.map(|(_, held)| held.producer).collect();
    holders.dedup();
    holders.into_iter().for_each(|holder| scheduler.events.push(Event::Recall(holder)));
}

/// Chooses an item that waits for another attempt, or that was given back.
pub(super) fn choose_retry(
    scheduler: &mut Scheduler,
    producer: ProducerId,
    now: RunTime,
) -> Option<Chosen> {
    let index = scheduler.retries.take(producer, &scheduler.health, now)?;
    let record = scheduler.items.get_mut(index).expect("an item that waits has a record");
    record.carriers += 1;
    let (size, attempt) = (record.size, record.history.attempt);
    Some(Chosen { items: vec![Sized { index, size }], attempt })
}

fn choose_first(scheduler: &mut Scheduler, now: RunTime) -> Option<Chosen> {
    let (rule, limits) = (scheduler.batching.rule, scheduler.batching.limits);
    match scheduler.pending.pick(rule, limits, now, More::Never) {
        Pick::Take(selection) => {
            Some(Chosen { items: scheduler.pending.take(selection), attempt: 1 })
        }
        Pick::Wait | Pick::WaitUntil(_) => None,
    }
}
