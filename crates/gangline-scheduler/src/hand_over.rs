//! Leases that change hands: which worker takes an item is known only when it begins.
//!
//! A producer of a cluster leases an item and puts it where any worker may take it. The lease is
//! [preparing](super::Phase::Preparing) until a worker begins the item; it then goes to the producer of that worker.

use super::batch::Size;
use super::lease::{Copies, LeaseId, ProducerId};
use super::time::RunTime;
use super::{Begin, Scheduler, Until};

/// Begins the hook of a lease at another producer, or at its own. A producer that is lost takes over nothing.
pub fn hand_over(scheduler: &mut Scheduler, id: LeaseId, to: ProducerId, now: RunTime) -> Begin {
    let is_live = scheduler.producers.health.is_live(to);
    let Some(held) = scheduler.workload.leases.get_wanted(id) else { return Begin::Stale };
    if is_live {
        held.producer = to;
    }
    scheduler.begin_now(id, Copies::Kept, now)
}

/// Excludes a producer that has no worker, until [`producer_joined`](Scheduler::producer_joined). Nothing waits for
/// it.
pub fn worker_left(scheduler: &mut Scheduler, producer: ProducerId) {
    if scheduler.producers.health.is_live(producer) {
        scheduler.exclude(producer, Until::Ready);
        scheduler.producers.wake_all();
    }
}

/// Whether a producer that asks for nothing has to leave.
pub fn must_leave(scheduler: &Scheduler, producer: ProducerId) -> bool {
    scheduler.producers.is_aborted || !scheduler.producers.health.is_live(producer)
}

/// Whether the run is over.
pub fn is_over(scheduler: &Scheduler) -> bool {
    scheduler.producers.is_aborted
}

/// Whether no result of a lease counts any more.
pub fn is_stale(scheduler: &Scheduler, id: LeaseId) -> bool {
    scheduler.workload.leases.get(id).is_none_or(|held| held.is_stale())
}

/// Whether an item is on its first attempt, on one producer, and was not put back.
pub fn is_plain(scheduler: &Scheduler, item: u64) -> bool {
    scheduler.workload.items.get(item).is_none()
}

/// The size of the item of a lease.
pub fn size_of(scheduler: &Scheduler, id: LeaseId) -> Size {
    let item = scheduler.workload.leases.get(id).and_then(|held| held.items.first());
    item.map_or(Size::ONE, |item| item.size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, config, offer, scheduler, succeed};
    use crate::{Lease, Next, Outcome, Readiness, Standing};

    /// An item that producer 0 put where any worker may take it.
    fn published() -> (Scheduler, Lease) {
        let mut scheduler = scheduler(config(2));
        offer(&mut scheduler, 0, at(0));
        match scheduler.lease(0, Readiness::NeedsInit, at(0)) {
            Next::Work(lease) => (scheduler, lease),
            other => panic!("{other:?} is no work"),
        }
    }

    #[test]
    fn the_producer_of_the_worker_that_begins_an_item_has_its_lease() {
        let (mut scheduler, lease) = published();
        assert!(!is_stale(&scheduler, lease.id) && is_plain(&scheduler, 0));
        assert_eq!(hand_over(&mut scheduler, lease.id, 1, at(1)), Begin::Work);
        scheduler.producer_lost(0, at(2)).expect("one is left");
        assert!(!is_stale(&scheduler, lease.id), "the other has it");
        let standings = scheduler.finish(lease.id, &[Outcome::Succeeded], at(3));
        assert_eq!(standings, [Standing::Counts]);
        assert!(is_stale(&scheduler, lease.id), "it has ended");
        assert_eq!(hand_over(&mut scheduler, lease.id, 1, at(4)), Begin::Stale);
    }

    #[test]
    fn a_lost_producer_takes_over_nothing() {
        let (mut scheduler, lease) = published();
        scheduler.producer_lost(1, at(0)).expect("one is left");
        assert_eq!(hand_over(&mut scheduler, lease.id, 1, at(1)), Begin::Work);
        assert_eq!(scheduler.leases().of(0).count(), 1, "it stays where it was");
    }

    #[test]
    fn an_item_that_was_withdrawn_is_not_begun() {
        let (mut scheduler, lease) = published();
        scheduler.withdraw(&[0], at(1));
        assert!(is_stale(&scheduler, lease.id) && !is_plain(&scheduler, 0));
        assert_eq!(hand_over(&mut scheduler, lease.id, 1, at(1)), Begin::Stale);
    }

    #[test]
    fn a_producer_without_a_worker_takes_part_again_when_it_joins() {
        let mut scheduler = scheduler(config(2));
        worker_left(&mut scheduler, 0);
        assert!(!scheduler.health().is_available(0));
        assert!(!must_leave(&scheduler, 0), "another worker may come");
        assert!(scheduler.producer_joined(0));
        assert!(scheduler.health().is_available(0));
        scheduler.producer_lost(0, at(0)).expect("one is left");
        worker_left(&mut scheduler, 0);
        assert!(must_leave(&scheduler, 0) && !must_leave(&scheduler, 1));
        assert!(!is_over(&scheduler));
        scheduler.abort();
        assert!(must_leave(&scheduler, 1) && is_over(&scheduler));
    }

    #[test]
    fn what_was_put_back_is_not_plain() {
        let (mut scheduler, lease) = published();
        scheduler.release(lease.id, at(1));
        assert!(!is_plain(&scheduler, 0));
        assert_eq!(succeed(&mut scheduler, 1, at(1)), 0);
        assert!(is_plain(&scheduler, 0), "nothing is kept of it");
    }
}
