//! What expansions ask of the scheduler: items are parts there, and some of them are withdrawn.

use super::Scheduler;
use super::items::{Outcome, Standing};
use super::lease::{LeaseId, Sized};
use super::time::RunTime;

/// Notes that items before this index do not wait for a batch to fill: no more come until they are done.
pub(crate) fn hurry(scheduler: &mut Scheduler, below: u64, now: RunTime) {
    scheduler.pending.hurry(below);
    scheduler.conditions_changed(now);
}

/// Takes withdrawn items out of a lease whose hook has not begun. Returns those that no other lease has
/// settled; the backend delivers their results.
pub(crate) fn cut_from(
    scheduler: &mut Scheduler,
    id: LeaseId,
    indices: &[u64],
    now: RunTime,
) -> Vec<u64> {
    let Some(held) = scheduler.leases.get_mut(id) else { return vec![] };
    let producer = held.producer;
    let is_cut = |item: &mut Sized| indices.contains(&item.index);
    let cut: Vec<_> = held.items.extract_if(.., is_cut).collect();
    let mut counted = Vec::new();
    for Sized { index, size } in cut {
        // Settled as a success, it leaves no trace. It clears no producer, since no hook has seen it.
        let settlement = scheduler.items.settle(index, size, Outcome::Succeeded, producer);
        if settlement.has_losers {
            scheduler.revoke(index, now);
        }
        if settlement.standing == Standing::Counts {
            scheduler.health.blame_item(index);
            counted.push(index);
        }
    }
    if let Some(held) = scheduler.leases.get_mut(id) {
        held.open = held.open.saturating_sub(counted.len());
    }
    scheduler.wake_unsuspended();
    counted
}
