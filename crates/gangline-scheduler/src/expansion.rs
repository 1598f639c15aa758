//! What expansions ask of the scheduler: items are parts there, and some of them are withdrawn.

use super::Scheduler;
use super::items::{Outcome, Standing};
use super::lease::{LeaseId, Sized};
use super::time::RunTime;

/// Notes that items before this index do not wait for a batch to fill: no more come until they are done.
pub fn hurry(scheduler: &mut Scheduler, below: u64, now: RunTime) {
    scheduler.workload.batches.pending.hurry(below);
    scheduler.flow_changed(now);
}

/// Takes withdrawn items out of a lease whose hook has not begun. Returns those that no other lease has
/// settled; the backend delivers their results.
pub fn cut_from(scheduler: &mut Scheduler, id: LeaseId, indices: &[u64], now: RunTime) -> Vec<u64> {
    let Scheduler { workload, producers, .. } = scheduler;
    let Some(held) = workload.leases.get_mut(id) else { return vec![] };
    let producer = held.producer;
    let is_cut = |item: &mut Sized| indices.contains(&item.index);
    let cut: Vec<_> = held.items.extract_if(.., is_cut).collect();
    let mut counted = Vec::new();
    for item in cut {
        let index = item.index;
        // Settled as a success, it leaves no trace. It clears no producer, since no hook has seen it.
        let settlement = workload.items.settle(item, Outcome::Succeeded, producer);
        if settlement.has_losers {
            workload.revoke(index, producers, now);
        }
        if settlement.standing == Standing::Counts {
            producers.health.blame_item(index);
            counted.push(index);
        }
    }
    if let Some(held) = workload.leases.get_mut(id) {
        held.open = held.open.saturating_sub(counted.len());
    }
    producers.wake_unsuspended();
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::tests::{MS, ask, at, batches, config, lease, offered};
    use crate::{Activity, Config, Next, SchedulerEvent};

    #[test]
    fn items_that_no_more_come_after_do_not_wait_for_a_batch() {
        let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 2);
        assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
        hurry(&mut scheduler, 2, at(0));
        assert_eq!(scheduler.poll_event(), Some(SchedulerEvent::Wake(0)));
        assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1]);
    }

    #[test]
    fn items_that_are_cut_from_a_lease_are_settled_and_the_rest_goes_on() {
        let mut scheduler = offered(Config { batching: batches(Batch::of(3)), ..config(2) }, 3);
        let held = lease(&mut scheduler, 0, at(0));
        assert_eq!(cut_from(&mut scheduler, held.id, &[1, 7], at(0)), [1]);
        assert!(cut_from(&mut scheduler, held.id, &[1], at(0)).is_empty(), "only once");
        let standings = scheduler.finish(held.id, &[Outcome::Succeeded; 2], at(0));
        assert_eq!(standings, [Standing::Counts; 2]);
        assert!(cut_from(&mut scheduler, held.id, &[0], at(0)).is_empty(), "it has ended");
    }

    #[test]
    fn a_copy_of_an_item_that_is_cut_is_revoked() {
        let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
        let slow = lease(&mut scheduler, 0, at(0));
        scheduler.input_ended(at(0));
        scheduler.consumer(Activity::Waiting, at(0));
        let copy = lease(&mut scheduler, 1, at(10));
        while scheduler.poll_event().is_some() {}
        assert_eq!(cut_from(&mut scheduler, copy.id, &[0], at(11)), [0]);
        let revoked = SchedulerEvent::Revoke { lease: slow.id, producer: 0 };
        assert!(std::iter::from_fn(|| scheduler.poll_event()).any(|event| event == revoked));
    }
}
