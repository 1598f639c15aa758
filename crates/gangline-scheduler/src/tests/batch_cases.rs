//! Batches: how they form, fail and are divided.

use super::*;

#[test]
fn a_guilty_item_of_a_batch_is_found_by_halves() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(8)), ..config(1) }, 8);
    let mut calls = Vec::new();
    scheduler.input_ended(at(0));
    while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
        calls.push(lease.items.len());
        if !lease.items.contains(&5) {
            scheduler.finish(lease.id, &vec![Outcome::Succeeded; lease.items.len()], at(0));
            continue;
        }
        let came = scheduler.fail_together(lease.id, Inputs::Kept, Memory::Sufficient, at(0));
        if let Together::Failed(items) = came {
            assert_eq!(items, [5]);
            assert_eq!(scheduler.decide(&items, RETRY, at(0)), Decision::Skip);
        }
    }
    assert_eq!(calls, [8, 4, 4, 2, 1, 1, 2]);
}

#[test]
fn a_batch_that_does_not_fit_is_split_without_blame() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(10)), ..config(1) }, 20);
    let mut calls = Vec::new();
    while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
        calls.push(lease.items.len());
        match lease.items.len() > 3 {
            true => {
                let came = scheduler.fail_together(lease.id, Inputs::Kept, Memory::Short, at(0));
                assert_eq!(came, Together::Split(lease.items));
            }
            false => {
                let outcomes = vec![Outcome::Succeeded; lease.items.len()];
                scheduler.finish(lease.id, &outcomes, at(0));
            }
        }
    }
    assert_eq!(calls[..7], [10, 5, 2, 2, 2, 2, 2]);
    assert_eq!(calls[7..], [2; 5], "later batches are as small");
    assert_eq!(scheduler.learned()[0].memory(), Some(2));
}

#[test]
fn a_batch_without_its_inputs_fails_together() {
    let config = Config { batching: batches(Batch::of(3)), retries: 1, ..config(2) };
    let mut scheduler = offered(config, 3);
    let lease = lease(&mut scheduler, 0, at(0));
    let came = scheduler.fail_together(lease.id, Inputs::Copied, Memory::Sufficient, at(0));
    assert_eq!(came, Together::Failed(vec![0, 1, 2]));
    assert_eq!(scheduler.decide(&[0, 1, 2], RETRY, at(0)), Decision::Retry(at(10)));
    assert_eq!(succeed(&mut scheduler, 1, at(10)), 0, "each by itself");
}

#[test]
fn idle_producers_take_parts_that_their_owner_comes_to_later() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 4);
    let whole = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    scheduler.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0));
    assert!(wakes(&mut scheduler).is_empty(), "its owner goes on at once");
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1]);
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(lease(&mut scheduler, 1, at(0)).items, [2, 3]);
}

#[test]
fn a_batch_waits_until_it_is_full_or_nothing_more_can_come() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 3);
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    scheduler.feeder(Activity::Waiting, at(0));
    assert_eq!(wakes(&mut scheduler), [0]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1, 2]);
}

#[test]
fn one_producer_keeps_the_time_of_a_batch() {
    let batching = batches(Batch::of(4).within(5 * MS));
    let mut scheduler = scheduler(Config { batching, ..config(3) });
    (0..3).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    offer(&mut scheduler, 0, at(1));
    assert_eq!(wakes(&mut scheduler), [0]);
    assert_eq!(ask(&mut scheduler, 0, at(1)), Next::WaitUntil(at(6)));
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::Wait);
    offer(&mut scheduler, 1, at(2));
    assert!(wakes(&mut scheduler).is_empty());
    assert_eq!(lease(&mut scheduler, 0, at(6)).items, [0, 1]);
}

#[test]
fn one_producer_is_woken_for_a_batch() {
    let mut scheduler = scheduler(Config { batching: batches(Batch::of(4)), ..config(2) });
    (0..2).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    (0..4).for_each(|index| offer(&mut scheduler, index, at(0)));
    assert_eq!(wakes(&mut scheduler), [0]);
    scheduler.feeder(Activity::Waiting, at(0));
    assert!(wakes(&mut scheduler).is_empty(), "it takes all of them");
}

#[test]
fn what_is_withdrawn_from_a_batch_or_its_parts_is_not_tried_again() {
    for is_split in [false, true] {
        let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 4);
        let whole = lease(&mut scheduler, 0, at(0));
        let split = |scheduler: &mut Scheduler| {
            scheduler.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0))
        };
        let mut came = is_split.then(|| split(&mut scheduler));
        scheduler.withdraw(&[2], at(0));
        let items = match came.get_or_insert_with(|| split(&mut scheduler)) {
            Together::Split(items) => items.clone(),
            other => panic!("{other:?} is no split"),
        };
        assert_eq!(items, if is_split { vec![0, 1, 2, 3] } else { vec![0, 1, 3] });
        let mut left = vec![];
        while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
            left.extend(lease.items);
        }
        assert_eq!(left, [0, 1, 3]);
    }
}

#[test]
fn a_batch_without_extent_that_does_not_fit_is_halved() {
    let mut batching = Batching::new(Batch::of(4));
    batching.limit_cost(10);
    let mut scheduler = scheduler(Config { batching: Some(batching), ..config(1) });
    for index in 0..4 {
        let size = Size { cost: 0, padded: 1 };
        scheduler.offer(index, Meta { size, ..meta(at(0)) }, at(0));
    }
    let whole = lease(&mut scheduler, 0, at(0));
    scheduler.fail_together(whole.id, Inputs::Kept, Memory::Short, at(0));
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1]);
}

#[test]
fn an_item_that_was_withdrawn_does_not_count_by_the_copy_of_a_batch_that_failed() {
    let config = Config { batching: batches(Batch::of(2)), copy_after: Some(10 * MS), ..config(2) };
    let mut scheduler = offered(config, 2);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(50));
    scheduler.withdraw(&[0], at(51));
    let came = scheduler.fail_together(slow.id, Inputs::Kept, Memory::Sufficient, at(52));
    assert_eq!(came, Together::Split(vec![1]));
    let standings = scheduler.finish(copy.id, &[Outcome::Succeeded; 2], at(53));
    assert_eq!(standings, [Standing::Stale, Standing::Counts]);
}

/// A run with this window, and how many items are leased to each producer, in turns.
fn shares(rule: Batch, window: usize, producers: usize, turns: usize) -> Vec<usize> {
    let mut batching = Batching::new(rule);
    batching.limit_to_window(window, producers);
    let config = Config { batching: Some(batching), window, ..config(producers) };
    let mut scheduler = offered(config, window as u64);
    let mut next = window as u64;
    let mut sizes = vec![];
    let mut leased = VecDeque::new();
    for turn in 0..turns {
        if turn >= producers {
            let Lease { id, items, .. } = leased.pop_front().expect("each producer has one");
            scheduler.finish(id, &vec![Outcome::Succeeded; items.len()], at(turn as u64));
            items.iter().for_each(|_| {
                offer(&mut scheduler, next, at(turn as u64));
                next += 1;
            });
        }
        let next_lease = lease(&mut scheduler, turn % producers, at(turn as u64));
        sizes.push(next_lease.items.len());
        leased.push_back(next_lease);
    }
    sizes
}

#[test]
fn a_window_just_above_a_batch_makes_no_batches_of_one() {
    assert_eq!(shares(Batch::up_to(32), 33, 2, 6), [16; 6]);
    assert_eq!(shares(Batch::up_to(32), 33, 1, 3), [32; 3]);
}

proptest::proptest! {
    #[test]
    fn batches_that_do_not_wait_are_even_in_every_window(
        most in 1..40_usize, producers in 1..6_usize, more in 0..80_usize,
    ) {
        let window = most.max(producers) + more;
        let even = most.min(window / producers);
        proptest::prop_assert_eq!(shares(Batch::up_to(most), window, producers, 12), [even; 12]);
    }
}

const SUCCEEDED: [Outcome; 4] = [Outcome::Succeeded; 4];

#[test]
fn what_was_not_tried_comes_again_in_halves() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 4);
    let whole = lease(&mut scheduler, 0, at(0));
    let ended =
        scheduler.finish_in_part(whole.id, &SUCCEEDED, &[1, 2, 3], Memory::Sufficient, at(0));
    assert_eq!((ended.standings[0], ended.again), (Standing::Counts, vec![1, 2, 3]));
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [1]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [2, 3]);
    assert_eq!(scheduler.learned()[0].memory(), None);
}

#[test]
fn a_single_item_that_was_not_tried_comes_alone_and_memory_is_learned_of_the_whole() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 4);
    let whole = lease(&mut scheduler, 0, at(0));
    let ended = scheduler.finish_in_part(whole.id, &SUCCEEDED, &[3], Memory::Short, at(0));
    assert_eq!(ended.again, [3]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).attempt, 1);
    assert!(scheduler.learned()[0].memory().is_some_and(|limit| limit < 4));
}

#[test]
fn a_lease_that_is_over_is_not_ended_in_part() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 4);
    let whole = lease(&mut scheduler, 0, at(0));
    assert_eq!(scheduler.producer_lost(0, at(0)), Ok(()));
    let ended = scheduler.finish_in_part(whole.id, &SUCCEEDED, &[1], Memory::Sufficient, at(0));
    assert_eq!(ended, EndedInPart { standings: vec![Standing::Stale; 4], again: vec![] });
}
