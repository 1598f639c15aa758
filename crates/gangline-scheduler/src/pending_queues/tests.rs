use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::batch::{Load, Size};

const LIMITS: Limits = Limits { items: 4, cost: None, padded: None };
const MS: Duration = Duration::from_millis(1);

fn meta(priority: Priority, size: u64) -> Meta {
    let size = Size { cost: size, padded: size };
    Meta { size, since: RunTime::START, priority }
}

/// Normal items from 0 on, and those of the background from 100 on, of these sizes.
fn queues(grouping: Grouping, normal: &[u64], background: &[u64]) -> PendingQueues {
    let mut queues = PendingQueues::new(grouping, 100);
    for (&size, index) in normal.iter().zip(0..) {
        queues.push(index, meta(Priority::Normal, size));
    }
    for (&size, index) in background.iter().zip(100..) {
        queues.push(index, meta(Priority::Background, size));
    }
    queues
}

/// The indices of the items that a producer takes, if it does not wait.
fn taken(queues: &mut PendingQueues, due: u64, rule: Batch, limits: Limits) -> Vec<u64> {
    match queues.pick(due, rule, limits, RunTime::START, More::MayCome) {
        Pick::Take(mixture) => queues.take(mixture).into_iter().map(|item| item.index).collect(),
        Pick::Wait | Pick::WaitUntil(_) => vec![],
    }
}

#[test]
fn calls_go_first_and_the_background_fills_their_batch() {
    let mut queues = queues(Grouping::None, &[1; 6], &[1; 5]);
    let mut take = || taken(&mut queues, 0, Batch::up_to(4), LIMITS);
    assert_eq!(take(), [0, 1, 2, 3]);
    assert_eq!(take(), [4, 5, 100, 101]);
    assert_eq!(take(), [102, 103, 104]);
    assert!(take().is_empty() && queues.is_empty());
}

#[test]
fn what_is_due_has_its_places_in_a_batch_that_calls_would_fill() {
    let mut full = queues(Grouping::None, &[1; 9], &[1; 5]);
    assert_eq!(taken(&mut full, 1, Batch::up_to(4), LIMITS), [0, 1, 2, 100]);
    assert_eq!(taken(&mut full, 9, Batch::up_to(4), LIMITS), [101, 102, 103, 104], "at most all");
    assert_eq!(taken(&mut full, 9, Batch::up_to(4), LIMITS), [3, 4, 5, 6], "none is left");
    let mut few = queues(Grouping::None, &[1; 2], &[1; 5]);
    assert_eq!(taken(&mut few, 1, Batch::up_to(4), LIMITS), [0, 1, 100, 101], "there is room");
    let mut single = queues(Grouping::None, &[1; 2], &[1; 2]);
    let one = Limits { items: 1, ..LIMITS };
    assert_eq!(taken(&mut single, 1, Batch::up_to(1), one), [100]);
    assert_eq!(taken(&mut single, 0, Batch::up_to(1), one), [0]);
}

#[test]
fn a_call_does_not_wait_for_others_if_the_background_fills_its_batch() {
    let rule = Batch::of(4).within(5 * MS);
    let mut queues = queues(Grouping::None, &[1], &[1; 2]);
    let pick = |queues: &PendingQueues, ms: u32| {
        queues.pick(0, rule, LIMITS, RunTime::START.after(ms * MS), More::MayCome)
    };
    assert_eq!(pick(&queues, 1), Pick::WaitUntil(RunTime::START.after(5 * MS)), "one is missing");
    assert!(matches!(pick(&queues, 5), Pick::Take(_)), "its time is over");
    queues.push(102, meta(Priority::Background, 1));
    assert_eq!(taken(&mut queues, 0, rule, LIMITS), [0, 100, 101, 102]);
}

#[test]
fn a_batch_is_filled_within_its_limits() {
    let limits = Limits { cost: Some(10), ..LIMITS };
    let mut queues = queues(Grouping::None, &[4], &[3, 4, 1]);
    assert_eq!(taken(&mut queues, 0, Batch::of(4), limits), [0, 100], "the next costs too much");
    assert_eq!(taken(&mut queues, 0, Batch::up_to(4), limits), [101, 102]);
}

#[test]
fn what_fills_a_batch_of_like_sizes_adds_no_padding() {
    let mut queues = queues(Grouping::Like, &[10, 11], &[12, 9, 4, 11, 100]);
    let mut take = || taken(&mut queues, 0, Batch::up_to(4), LIMITS);
    assert_eq!(take(), [0, 1, 101, 103], "12 is larger, and 4 is not like them");
    assert_eq!(take(), [100]);
    assert_eq!(take(), [102]);
    assert_eq!(take(), [104]);
}

#[test]
fn what_is_due_is_not_padded_together_with_calls_that_are_smaller() {
    let mut queues = queues(Grouping::Like, &[10; 4], &[1_000, 10]);
    assert_eq!(taken(&mut queues, 1, Batch::up_to(4), LIMITS), [100]);
    assert_eq!(taken(&mut queues, 1, Batch::up_to(4), LIMITS), [0, 1, 2, 101]);
}

#[test]
fn what_is_withdrawn_or_given_up_is_in_neither_queue() {
    let mut queues = queues(Grouping::None, &[1; 3], &[1; 3]);
    assert!(queues.withdraw(1) && queues.withdraw(100) && !queues.withdraw(100));
    assert_eq!(queues.len(), 4);
    queues.give_up_from(102);
    assert_eq!(taken(&mut queues, 0, Batch::up_to(9), Limits { items: 9, ..LIMITS }), [0, 2, 101]);
    assert!(!queues.has(Priority::Normal) && !queues.has(Priority::Background));
}

proptest! {
    /// `steps`: the priorities and sizes of the items that arrive, and then what is due when a producer looks.
    #[test]
    fn each_item_is_taken_once_within_the_limits_and_calls_go_first(
        like in any::<bool>(),
        (items, cost, padded) in (1u64..8, 200u64..600, 200u64..600),
        steps in proptest::collection::vec(
            (proptest::collection::vec((any::<bool>(), 1u64..200), 0..6), 0u64..4),
            0..40,
        ),
    ) {
        let grouping = if like { Grouping::Like } else { Grouping::None };
        let limits = Limits { items, cost: Some(cost), padded: Some(padded) };
        let rule = Batch::up_to(items as usize);
        let mut queues = PendingQueues::new(grouping, 20);
        let (mut put, mut all) = (vec![], vec![]);
        let mut check = |queues: &mut PendingQueues, due| {
            let pick = queues.pick(due, rule, limits, RunTime::START, More::Never);
            let Pick::Take(mixture) = pick else { return Ok(false) };
            let had_calls = queues.has(Priority::Normal);
            let taken = queues.take(mixture);
            prop_assert!(!taken.is_empty() && taken.is_sorted_by(|a, b| a.index < b.index));
            prop_assert!(limits.allow(Load::of(taken.iter().map(|item| item.size))));
            let of = |priority| taken.iter().filter(|item| item.priority == priority).count();
            let (normal, background) = (of(Priority::Normal), of(Priority::Background) as u64);
            if due == 0 {
                prop_assert!(normal > 0 || !had_calls, "calls lead");
                let fills = background > 0 && !like;
                prop_assert!(!fills || !queues.has(Priority::Normal), "it only fills up");
            }
            let is_limited = normal == 0 || !queues.has(Priority::Normal) || like;
            prop_assert!(is_limited || background <= due, "no more than is due");
            all.extend(taken.into_iter().map(|item| (item.index, item.size.cost)));
            Ok(true)
        };
        let mut index = 0;
        for (come, due) in steps {
            for (is_normal, size) in come {
                let priority = if is_normal { Priority::Normal } else { Priority::Background };
                queues.push(index, meta(priority, size));
                put.push((index, size));
                index += 1;
            }
            check(&mut queues, due)?;
        }
        while check(&mut queues, 0)? {}
        prop_assert!(queues.is_empty());
        all.sort_unstable();
        prop_assert_eq!(all, put);
    }
}
