//! Leases ahead: a producer holds further items while it works on one, so that it need not ask in between.
//!
//! No item waits behind a slow one for that. Nothing is leased ahead while a producer is idle. A producer that begins
//! to wait has the leases that were not begun [recalled](super::SchedulerEvent::Recall). Nothing is leased ahead while
//! items of both priorities wait either, since the next free producer takes a normal one, nor while an overdue item is
//! to be copied. A producer that has room for a further batch learns of the next full
//! [one](super::SchedulerEvent::Ahead).

use super::Scheduler;
use super::lease::{Lease, LeaseId, Phase, ProducerId};
use super::priority::Priority;
use super::producers::RunProducers;
use super::time::RunTime;
use super::waiters::Takes;
use super::workload::Workload;

/// Leases up to `most` items, one by one, to a producer that works on others. It does not wait for more. If the run has batches,
/// these are up to `most` batches, each of them full.
pub fn lease_ahead(
    scheduler: &mut Scheduler,
    producer: ProducerId,
    most: usize,
    now: RunTime,
) -> Vec<Lease> {
    scheduler.producers.waiters.take_room(producer);
    let leases = lease_up_to(scheduler, producer, most, now);
    // Single items are asked for again with each answer.
    if leases.len() < most && scheduler.workload.batches.has_batches() {
        scheduler.producers.waiters.note_room(producer);
    }
    leases
}

/// Notes that the hook of a lease has returned, although its outcome is not known yet: the producer works on the next, and what
/// comes after is no time of this hook.
pub fn note_returned(scheduler: &mut Scheduler, id: LeaseId, now: RunTime) {
    if let Some(held) = scheduler.workload.leases.get_mut(id) {
        held.returned = Some(now);
    }
}

fn lease_up_to(
    scheduler: &mut Scheduler,
    producer: ProducerId,
    most: usize,
    now: RunTime,
) -> Vec<Lease> {
    let RunProducers { health, waiters, .. } = &scheduler.producers;
    let is_trusted = health.may_take_new(producer) && !health.is_suspect(producer);
    // A woken producer is about to ask.
    let is_idle = waiters.taking(Takes::All).next().is_some() || waiters.woken().next().is_some();
    let Workload { batches, .. } = &scheduler.workload;
    let is_mixed = batches.has_background
        && [Priority::Normal, Priority::Background].iter().all(|it| scheduler.workload.has(*it));
    // The producer takes the copy once it has nothing ahead.
    let Scheduler { workload, producers, speculation, .. } = &*scheduler;
    let has_copy = speculation.has_overdue(producer, workload, producers, now);
    if scheduler.producers.is_aborted || !is_trusted || is_idle || is_mixed || has_copy {
        return vec![];
    }
    let share = scheduler.workload.batches.pending.len().div_ceil(health.live().max(1));
    let mut granted = 0;
    let mut leases = Vec::with_capacity(most.min(share));
    while leases.len() < most {
        let Scheduler { workload, producers, .. } = &mut *scheduler;
        let mut turns = workload.turns().iter();
        let retry = turns.find_map(|&it| workload.take_retry(producer, it, &producers.health, now));
        let batches = &mut workload.batches;
        let new = || (granted < share).then(|| batches.take_ahead(producer, now)).flatten();
        let Some(chosen) = retry.or_else(new) else { break };
        granted += chosen.items.len();
        leases.push(scheduler.grant(chosen, producer, Phase::Ahead, now));
    }
    leases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Batching};
    use crate::tests::{ask, at, config, events, fail, lease, offer, offered, succeed};
    use crate::{Begin, Config, Copies, Next, Outcome, SchedulerEvent, Standing};

    fn ahead(scheduler: &mut Scheduler, producer: ProducerId, most: usize) -> Vec<u64> {
        let leases = lease_ahead(scheduler, producer, most, at(0));
        leases.into_iter().flat_map(|lease| lease.items).collect()
    }

    #[test]
    fn a_producer_takes_no_more_than_an_even_share_of_what_is_pending() {
        let mut scheduler = offered(config(2), 7);
        assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0]);
        assert_eq!(ahead(&mut scheduler, 0, 2), [1, 2], "as many as it asks for");
        assert_eq!(ahead(&mut scheduler, 0, 64), [3, 4], "half of four");
        assert_eq!(ahead(&mut scheduler, 1, 64), [5], "half of two");
        assert_eq!(ahead(&mut scheduler, 1, 64), [6], "half of one, rounded up");
        assert_eq!(ahead(&mut scheduler, 1, 64), [0; 0]);
    }

    #[test]
    fn of_batches_full_ones_are_leased_ahead() {
        let batching = Some(Batching::new(Batch::up_to(3)));
        let mut scheduler = offered(Config { batching, ..config(1) }, 8);
        assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1, 2]);
        let ahead = lease_ahead(&mut scheduler, 0, 2, at(0));
        assert_eq!(ahead.iter().map(|it| &it.items[..]).collect::<Vec<_>>(), [[3, 4, 5]]);
        scheduler.input_ended(at(0));
        assert!(lease_ahead(&mut scheduler, 0, 2, at(0)).is_empty(), "two more are no batch");
        scheduler.release(ahead[0].id, at(1));
        let returned = lease(&mut scheduler, 0, at(1));
        assert_eq!((returned.items, returned.attempt), (vec![3, 4, 5], 1), "it cost no attempt");
    }

    #[test]
    fn what_comes_after_the_hook_is_no_time_of_the_batch() {
        let learned = |returned: Option<u64>, finished| {
            let batching = Some(Batching::new(Batch::auto()));
            let mut scheduler = offered(Config { batching, ..config(1) }, 9);
            let first = lease(&mut scheduler, 0, at(0));
            scheduler.begin(first.id, Copies::Missing, at(0));
            returned.into_iter().for_each(|time| note_returned(&mut scheduler, first.id, at(time)));
            let outcomes = vec![Outcome::Succeeded; first.items.len()];
            scheduler.finish(first.id, &outcomes, at(finished));
            format!("{:?}", scheduler.learned())
        };
        assert_eq!(learned(Some(5), 25), learned(None, 5));
        assert_ne!(learned(None, 25), learned(None, 5));
    }

    #[test]
    fn a_producer_with_room_is_told_of_a_full_batch() {
        let batching = Some(Batching::new(Batch::up_to(3)));
        let mut scheduler = offered(Config { batching, ..config(2) }, 8);
        assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1, 2]);
        assert_eq!(lease(&mut scheduler, 1, at(0)).items, [3, 4, 5]);
        assert_eq!(ahead(&mut scheduler, 0, 1), [0; 0], "6 and 7 are no full batch");
        events(&mut scheduler);
        offer(&mut scheduler, 8, at(0));
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Ahead(0)]);
        offer(&mut scheduler, 9, at(0));
        assert_eq!(events(&mut scheduler), [], "once");
        assert_eq!(ahead(&mut scheduler, 0, 1), [6, 7, 8]);
        (10..15).for_each(|index| offer(&mut scheduler, index, at(0)));
        assert_eq!(events(&mut scheduler), [], "it has no more room");
    }

    #[test]
    fn a_producer_with_room_is_not_told_of_what_an_idle_one_takes() {
        let batching = Some(Batching::new(Batch::up_to(2)));
        let mut scheduler = offered(Config { batching, ..config(2) }, 2);
        lease(&mut scheduler, 0, at(0));
        assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
        assert_eq!(ahead(&mut scheduler, 0, 1), [0; 0]);
        (2..4).for_each(|index| offer(&mut scheduler, index, at(0)));
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Wake(1)]);
        (4..6).for_each(|index| offer(&mut scheduler, index, at(0)));
        assert_eq!(events(&mut scheduler), [], "the woken one has not asked");
        lease(&mut scheduler, 1, at(0));
        (6..8).for_each(|index| offer(&mut scheduler, index, at(0)));
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Ahead(0)]);
    }

    #[test]
    fn nothing_is_leased_ahead_while_a_producer_is_idle() {
        let mut scheduler = offered(config(2), 1);
        lease(&mut scheduler, 0, at(0));
        assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
        offer(&mut scheduler, 1, at(0));
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Wake(1)]);
        assert_eq!(ahead(&mut scheduler, 0, 64), [0; 0], "the other is about to ask");
        assert_eq!(lease(&mut scheduler, 1, at(0)).items, [1]);
    }

    #[test]
    fn nothing_is_leased_ahead_to_a_suspect_or_after_the_end() {
        let suspected = |failures| {
            let config = Config { retries: 1, quarantine_after: Some(failures), ..config(2) };
            let mut scheduler = offered(config, 9);
            fail(&mut scheduler, 0, at(0));
            scheduler
        };
        assert_eq!(ahead(&mut suspected(2), 0, 64), [0; 0], "though it may take new items");
        let mut scheduler = suspected(1);
        assert_eq!(ahead(&mut scheduler, 0, 64), [0; 0], "it may be to blame");
        assert_ne!(ahead(&mut scheduler, 1, 2), [0; 0]);
        scheduler.abort();
        assert_eq!(ahead(&mut scheduler, 1, 64), [0; 0]);
    }

    #[test]
    fn a_producer_that_becomes_idle_has_recalled_what_was_not_begun() {
        let mut scheduler = offered(config(2), 4);
        let first = lease(&mut scheduler, 0, at(0));
        let later = lease_ahead(&mut scheduler, 0, 64, at(0));
        assert_eq!(lease(&mut scheduler, 1, at(0)).items, [3]);
        events(&mut scheduler);
        assert_eq!(ask(&mut scheduler, 1, at(1)), Next::Wait);
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Recall(0)]);
        // The first of them has begun by then.
        assert_eq!(scheduler.finish(first.id, &[Outcome::Succeeded], at(1)), [Standing::Counts]);
        assert_eq!(scheduler.begin(later[0].id, Copies::Missing, at(1)), Begin::Work);
        scheduler.release(later[1].id, at(1));
        assert_eq!(events(&mut scheduler), [SchedulerEvent::Wake(1)]);
        let returned = lease(&mut scheduler, 1, at(1));
        assert_eq!((returned.items, returned.attempt), (vec![2], 1), "it cost no attempt");
        assert_eq!(ask(&mut scheduler, 0, at(1)), Next::Wait);
        assert_eq!(events(&mut scheduler), [], "nothing is ahead");
    }

    #[test]
    fn what_waits_for_another_attempt_is_leased_ahead_first() {
        let mut scheduler = offered(Config { retries: 1, ..config(2) }, 4);
        assert_eq!(fail(&mut scheduler, 1, at(0)).0, 0);
        let leases = lease_ahead(&mut scheduler, 0, 2, at(20));
        let leases: Vec<_> = leases.into_iter().map(|it| (it.items[0], it.attempt)).collect();
        assert_eq!(leases, [(0, 2), (1, 1)]);
        assert_eq!(succeed(&mut scheduler, 1, at(20)), 2);
    }

    #[test]
    fn what_a_lost_producer_had_ahead_goes_to_another_without_an_attempt() {
        let mut scheduler = offered(config(2), 3);
        lease(&mut scheduler, 0, at(0));
        assert_eq!(ahead(&mut scheduler, 0, 1), [1]);
        scheduler.producer_lost(0, at(1)).expect("one is left");
        let taken = [0; 3].map(|_| lease(&mut scheduler, 1, at(1)));
        assert_eq!(
            taken.each_ref().map(|lease| (lease.items[0], lease.attempt)),
            [(0, 1), (1, 1), (2, 1)]
        );
    }
}
