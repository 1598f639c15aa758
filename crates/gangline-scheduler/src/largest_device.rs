//! An item that does not fit into the memory of its device alone: it goes to the device with the most memory, once.

use super::Scheduler;
use super::health::ProducerHealth;
use super::items::{Dropped, ItemRecord, ItemState, LargestDevice};
use super::lease::{LeaseId, Leases, ProducerId};
use super::time::RunTime;

/// Ends a lease whose only item its device has no memory for, and has the producer with the most memory try the item.
/// No attempt is spent. `memory`: for each place in bytes, `None` where it is not known.
///
/// Returns whether it did so. If not, the item has failed, and nothing is changed: no producer that takes part has more
/// memory, or the item went to the largest before, or another producer works on it.
pub fn give_to_largest(
    scheduler: &mut Scheduler,
    id: LeaseId,
    memory: &[Option<u64>],
    now: RunTime,
) -> bool {
    let Scheduler { workload, producers, .. } = scheduler;
    let Some(held) = workload.leases.get(id).filter(|held| !held.is_stale()) else { return false };
    let (&[item], producer) = (&held.items[..], held.producer) else { return false };
    let record = workload.items.get(item.index);
    let was_there = |it: &ItemRecord| it.history.largest == LargestDevice::Tried;
    if item.index >= workload.bound
        || workload.items.are_shared(&[item])
        || record.is_some_and(was_there)
    {
        return false;
    }
    let Some(largest) = largest(producer, memory, &producers.health, &workload.leases) else {
        return false;
    };
    let held = workload.end(id, producers).expect("it was just found");
    workload.batches.fell_short(producer, &held.items);
    let dropped = workload.items.uncover(item.index);
    debug_assert_eq!(dropped, Dropped::Alone, "no other lease covers it");
    let record = workload.items.open(item, 0);
    record.state = ItemState::Open;
    record.history.note(producer);
    record.history.largest = LargestDevice::Tried;
    record.history.claims.keeper = Some(largest);
    workload.retries.insert(item.index, record.history.claims.clone(), now, now);
    workload.wake_for_work(producers, now);
    true
}

/// The producer with more memory than this one that has the most. Of several, one that holds no lease.
fn largest(
    producer: ProducerId,
    memory: &[Option<u64>],
    health: &ProducerHealth,
    leases: &Leases,
) -> Option<ProducerId> {
    let own = *memory.get(producer)?.as_ref()?;
    let others = (0..).zip(memory).filter_map(|(other, memory)| Some((other, (*memory)?)));
    let larger = others.filter(|&(other, memory)| memory > own && health.is_available(other));
    let best = larger
        .min_by_key(|&(other, memory)| (std::cmp::Reverse(memory), leases.is_busy(other), other));
    best.map(|(other, _)| other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::tests::{RETRY, ask, at, batches, config, events, lease, offered, succeed, wakes};
    use crate::{Config, Decision, Inputs, Lease, Memory, Next, Outcome, Standing, Together};

    const SIZES: [Option<u64>; 4] = [Some(24), Some(80), None, Some(80)];

    /// A batch of two is split, and the first item does not fit alone on producer 0.
    fn alone(config: Config) -> (Scheduler, Lease) {
        let mut scheduler = offered(Config { batching: batches(Batch::of(2)), ..config }, 2);
        let whole = lease(&mut scheduler, 0, at(0));
        let came = scheduler.fail_together(whole.id, Inputs::Kept, Memory::Short, at(0));
        assert_eq!(came, Together::Split(vec![0, 1]));
        let first = lease(&mut scheduler, 0, at(0));
        assert_eq!(first.items, [0]);
        events(&mut scheduler);
        (scheduler, first)
    }

    #[test]
    fn an_item_that_does_not_fit_alone_goes_to_the_largest_device_without_an_attempt() {
        let (mut scheduler, first) = alone(config(4));
        for producer in [1, 2, 3] {
            let came = ask(&mut scheduler, producer, at(0));
            assert!(matches!(came, Next::Work(_)) == (producer == 1), "{came:?}");
        }
        assert!(give_to_largest(&mut scheduler, first.id, &SIZES, at(1)));
        assert_eq!(wakes(&mut scheduler), [3], "the other of the largest is busy");
        assert_eq!(ask(&mut scheduler, 2, at(1)), Next::Wait);
        let again = lease(&mut scheduler, 3, at(1));
        assert_eq!((again.items, again.attempt), (vec![0], 1));
        assert_eq!(scheduler.finish(again.id, &[Outcome::Succeeded], at(2)), [Standing::Counts]);
        assert!(scheduler.items().get(0).is_none(), "nothing is kept of it");
    }

    #[test]
    fn it_goes_there_once() {
        let (mut scheduler, first) = alone(Config { retries: 1, ..config(2) });
        assert!(give_to_largest(&mut scheduler, first.id, &[Some(24), Some(80)], at(1)));
        let again = lease(&mut scheduler, 1, at(1));
        assert!(!give_to_largest(&mut scheduler, again.id, &[Some(24), Some(80)], at(2)));
        let came = scheduler.fail_together(again.id, Inputs::Kept, Memory::Short, at(2));
        assert_eq!(came, Together::Failed(vec![0]));
        assert!(matches!(scheduler.decide(&[0], RETRY, at(2)), Decision::Retry(_)));
        let last = std::iter::repeat_with(|| lease(&mut scheduler, 0, at(100)));
        let last = last.into_iter().find(|it| it.items == [0]).expect("it is tried again");
        assert_eq!(last.attempt, 2);
        assert!(!give_to_largest(&mut scheduler, last.id, &[Some(24), Some(80)], at(101)));
    }

    #[test]
    fn nothing_changes_without_a_larger_device_that_is_known() {
        let sizes: [&[Option<u64>]; 4] =
            [&[], &[None, Some(80)], &[Some(80), Some(80)], &[Some(24), None]];
        for sizes in sizes {
            let (mut scheduler, first) = alone(config(2));
            assert!(!give_to_largest(&mut scheduler, first.id, sizes, at(1)), "{sizes:?}");
            let came = scheduler.fail_together(first.id, Inputs::Kept, Memory::Short, at(1));
            assert_eq!(came, Together::Failed(vec![0]));
        }
    }

    #[test]
    fn a_lost_producer_is_given_nothing_and_leaves_what_it_was_given_to_others() {
        let sizes = [Some(24), Some(80), Some(40)];
        let (mut scheduler, first) = alone(config(3));
        scheduler.producer_lost(1, at(0)).expect("two are left");
        assert!(give_to_largest(&mut scheduler, first.id, &sizes, at(1)));
        scheduler.producer_lost(2, at(1)).expect("one is left");
        let left = [succeed(&mut scheduler, 0, at(2)), succeed(&mut scheduler, 0, at(2))];
        assert!(left.contains(&0) && left.contains(&1), "{left:?}");
    }

    #[test]
    fn a_batch_and_what_is_not_wanted_are_not_moved() {
        let mut batch = offered(Config { batching: batches(Batch::of(2)), ..config(2) }, 2);
        let whole = lease(&mut batch, 0, at(0));
        assert!(!give_to_largest(&mut batch, whole.id, &[Some(1), Some(2)], at(0)));
        let (mut scheduler, first) = alone(config(2));
        scheduler.withdraw(&[0], at(0));
        assert!(!give_to_largest(&mut scheduler, first.id, &[Some(1), Some(2)], at(0)));
        scheduler.finish(first.id, &[Outcome::Failed], at(0));
        assert!(!give_to_largest(&mut scheduler, first.id, &[Some(1), Some(2)], at(0)), "ended");
    }
}
