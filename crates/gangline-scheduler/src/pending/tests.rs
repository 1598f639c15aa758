use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::priority::Priority;

fn meta(cost: u64, padded: u64) -> Meta {
    Meta { size: Size { cost, padded }, since: RunTime::START, priority: Priority::Normal }
}

const LIMITS: Limits = Limits { items: 4, cost: None, padded: None };

fn pending(grouping: Grouping, sizes: &[u64]) -> PendingItems {
    let mut pending = PendingItems::new(grouping, 100);
    for (&size, seq) in sizes.iter().zip(0..) {
        pending.push(seq, meta(size, size));
    }
    pending
}

/// The indices of the items that a producer takes, if it does not wait.
fn taken(pending: &mut PendingItems, batch: Batch, limits: Limits, more: More) -> Vec<u64> {
    match pending.pick(batch, limits, RunTime::START, more) {
        Pick::Take(selection) => {
            pending.take(selection).into_iter().map(|item| item.index).collect()
        }
        Pick::Wait | Pick::WaitUntil(_) => vec![],
    }
}

#[test]
fn in_the_order_of_the_input_a_batch_ends_where_the_next_does_not_fit() {
    let mut pending = pending(Grouping::None, &[3, 4, 3, 1, 1]);
    let limits = Limits { cost: Some(10), ..LIMITS };
    let mut take = |more| taken(&mut pending, Batch::of(4), limits, more);
    assert_eq!(take(More::MayCome), [0, 1, 2], "as much as may be");
    assert!(take(More::MayCome).is_empty());
    assert_eq!(take(More::Never), [3, 4]);
    assert!(take(More::Never).is_empty());
}

#[test]
fn like_sizes_go_together() {
    let mut pending = pending(Grouping::Like, &[10, 100, 11, 90, 12, 110, 13, 95]);
    let mut take = || taken(&mut pending, Batch::up_to(4), LIMITS, More::MayCome);
    assert_eq!(take(), [0, 2, 4, 6]);
    assert_eq!(take(), [1, 3, 5, 7]);
}

#[test]
fn the_nearest_sizes_fill_up_what_is_allowed() {
    let mut pending = pending(Grouping::Like, &[16, 9, 17, 30, 15]);
    let limits = Limits { padded: Some(51), ..LIMITS };
    assert_eq!(taken(&mut pending, Batch::up_to(9), limits, More::MayCome), [0, 2, 4]);
}

#[test]
fn the_nearer_of_a_smaller_and_a_larger_size_is_taken() {
    let limits = Limits { items: 2, ..LIMITS };
    for (below, above, expected) in [(7, 16, [0, 1]), (6, 11, [0, 2]), (9, 11, [0, 1])] {
        let mut pending = pending(Grouping::Like, &[10, below, above]);
        assert_eq!(taken(&mut pending, Batch::of(2), limits, More::MayCome), expected);
    }
}

#[test]
fn a_batch_is_full_where_the_next_item_costs_too_much() {
    for grouping in [Grouping::None, Grouping::Like] {
        let mut pending = pending(grouping, &[6, 6]);
        let limits = Limits { cost: Some(10), ..LIMITS };
        assert_eq!(taken(&mut pending, Batch::of(4), limits, More::MayCome), [0]);
    }
}

#[test]
fn a_full_batch_overtakes_one_that_waits() {
    let mut pending = pending(Grouping::Like, &[1_000, 10, 10, 10, 10, 10]);
    let mut take = |more| taken(&mut pending, Batch::of(4), LIMITS, more);
    assert_eq!(take(More::MayCome), [1, 2, 3, 4]);
    assert!(take(More::MayCome).is_empty());
    assert_eq!(take(More::Never), [0], "the one with the first item before the others");
    assert_eq!(take(More::Never), [5]);
}

#[test]
fn a_batch_is_full_where_the_next_of_like_size_costs_too_much() {
    let limits = Limits { cost: Some(10), ..LIMITS };
    let mut alike = PendingItems::new(Grouping::Like, 100);
    for (seq, padded) in [90, 7, 7, 7, 7].into_iter().enumerate() {
        alike.push(seq as u64, meta(3, padded));
    }
    let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
    assert_eq!(take(), [1, 2, 3], "that of others than the first");
    assert!(take().is_empty());
    alike.push(5, meta(8, 100));
    let mut take = || taken(&mut alike, Batch::of(9), limits, More::MayCome);
    assert_eq!(take(), [0], "that of the first");
    assert!(take().is_empty());
}

#[test]
fn an_endless_input_does_not_keep_back_a_rare_size() {
    let mut pending = PendingItems::new(Grouping::Like, 10);
    pending.push(0, meta(1, 1_000));
    let mut batches = Vec::new();
    for input in 1..=12 {
        pending.push(input, meta(1, 10));
        batches.push(taken(&mut pending, Batch::of(4), LIMITS, More::MayCome));
    }
    batches.retain(|batch| !batch.is_empty());
    assert_eq!(batches, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![0], vec![9, 10, 11, 12]]);
}

#[test]
fn the_time_limit_is_that_of_the_first() {
    let at = |ms| RunTime::at(Duration::from_millis(ms));
    let mut pending = PendingItems::new(Grouping::None, 10);
    for ms in [0, 3] {
        pending.push(ms, Meta { since: at(ms), ..meta(1, 1) });
    }
    let batch = Batch::of(4).within(Duration::from_millis(5));
    let pick = |pending: &PendingItems, ms| pending.pick(batch, LIMITS, at(ms), More::MayCome);
    assert_eq!(pick(&pending, 4), Pick::WaitUntil(at(5)));
    assert_eq!(pick(&pending, 5), Pick::Take(Selection::First(2)));
    pending.take(Selection::First(1));
    assert_eq!(pick(&pending, 5), Pick::WaitUntil(at(8)));
}

#[test]
fn what_is_withdrawn_or_given_up_is_in_no_batch() {
    for grouping in [Grouping::None, Grouping::Like] {
        let mut pending = pending(grouping, &[1; 8]);
        assert_eq!(pending.withdraw(0).unwrap().index, 0);
        assert!(pending.withdraw(0).is_none() && pending.withdraw(9).is_none());
        assert!(pending.withdraw(3).is_some());
        pending.give_up_from(6);
        assert_eq!(pending.len(), 4);
        let limits = Limits { items: 9, ..LIMITS };
        assert_eq!(taken(&mut pending, Batch::of(9), limits, More::Never), [1, 2, 4, 5]);
        assert!(pending.is_empty() && pending.slots.is_empty());
    }
}

proptest! {
    /// `steps`: the number of items that arrive, and whether a producer looks afterwards.
    #[test]
    fn every_item_is_taken_once_and_within_the_limits(
        sizes in proptest::collection::vec(1u64..200, 0..100),
        like in any::<bool>(),
        waits in any::<bool>(),
        (items, cost, padded) in (1u64..8, 200u64..600, 200u64..600),
        steps in proptest::collection::vec((0usize..6, any::<bool>()), 0..60),
    ) {
        let grouping = if like { Grouping::Like } else { Grouping::None };
        let limits = Limits { items, cost: Some(cost), padded: Some(padded) };
        let batch = if waits { Batch::of(items as usize) } else { Batch::up_to(items as usize) };
        let mut pending = PendingItems::new(grouping, 20);
        let mut input = sizes.iter();
        let mut all = Vec::new();
        let mut check = |pending: &mut PendingItems, more| {
            let Pick::Take(selection) = pending.pick(batch, limits, RunTime::START, more) else {
                return Ok(false);
            };
            let taken = pending.take(selection);
            prop_assert!(!taken.is_empty());
            prop_assert!(taken.is_sorted_by(|a, b| a.index < b.index));
            let load = Load::of(taken.iter().map(|item| item.size));
            prop_assert!(limits.allow(load));
            all.extend(taken.into_iter().map(|item| (item.index, item.size.cost)));
            Ok(true)
        };
        let (mut put, mut seq) = (Vec::new(), 0);
        for (come, looks) in steps {
            for &size in input.by_ref().take(come) {
                // Some indices have no item.
                seq += if size % 7 == 0 { 1_000 } else { 1 };
                put.push((seq, size));
                pending.push(seq, meta(size, size));
            }
            if looks {
                check(&mut pending, More::MayCome)?;
            }
        }
        while check(&mut pending, More::Never)? {}
        prop_assert_eq!(pending.len(), 0);
        all.sort_unstable();
        prop_assert_eq!(all, put);
    }
}

#[test]
fn an_item_before_the_urgent_end_does_not_wait_for_its_batch() {
    let mut pending = pending(Grouping::None, &[1, 1, 1]);
    let limits = Limits { items: 2, ..LIMITS };
    let take = |pending: &mut PendingItems| taken(pending, Batch::of(2), limits, More::MayCome);
    assert_eq!(take(&mut pending), [0, 1], "it is full");
    pending.hurry(2);
    assert!(take(&mut pending).is_empty(), "2 is not before 2");
    pending.hurry(3);
    pending.hurry(1);
    assert_eq!(take(&mut pending), [2]);
}
