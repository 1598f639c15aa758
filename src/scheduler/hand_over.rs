//! Leases that change hands: which worker takes an item is known only when it begins.
//!
//! A producer of a cluster leases an item and puts it where any worker may take it. The lease is
//! [preparing](super::Phase::Preparing) until a worker begins the item; it then goes to the producer of that worker.

use super::lease::{Copies, LeaseId, ProducerId};
use super::time::RunTime;
use super::{Begin, Scheduler, Until};

/// Begins the hook of a lease at another producer, or at its own. A producer that is lost takes over nothing.
pub(crate) fn hand_over(
    scheduler: &mut Scheduler,
    id: LeaseId,
    to: ProducerId,
    now: RunTime,
) -> Begin {
    let is_live = scheduler.health.is_live(to);
    let Some(held) = scheduler.leases.get_mut(id).filter(|held| !held.is_stale()) else {
        return Begin::Stale;
    };
    if is_live {
        held.producer = to;
    }
    scheduler.begin(id, Copies::Kept, now)
}

/// Excludes a producer that has no worker, until [`producer_joined`](Scheduler::producer_joined). Nothing waits for
/// it.
pub(crate) fn worker_left(scheduler: &mut Scheduler, producer: ProducerId) {
    if scheduler.health.is_live(producer) {
        scheduler.exclude(producer, Until::Ready);
        scheduler.wake_all();
    }
}

/// Whether a producer that asks for nothing has to leave.
pub(crate) fn must_leave(scheduler: &Scheduler, producer: ProducerId) -> bool {
    scheduler.is_aborted || !scheduler.health.is_live(producer)
}

/// Whether the run is over.
pub(crate) fn is_over(scheduler: &Scheduler) -> bool {
    scheduler.is_aborted
}

/// Whether no result of a lease counts any more.
pub(crate) fn is_stale(scheduler: &Scheduler, id: LeaseId) -> bool {
    scheduler.leases.get(id).is_none_or(|held| held.is_stale())
}

/// Whether an item is on its first attempt, on one producer, and was not put back.
pub(crate) fn is_plain(scheduler: &Scheduler, item: u64) -> bool {
    scheduler.items.get(item).is_none()
}
