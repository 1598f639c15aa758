use super::*;
use proptest::prelude::*;

/// The next item of a stage that has room for it.
fn take(budget: &mut MemoryBudget, stage: usize, item: u64, bytes: u64) -> bool {
    budget.has_room(stage, Room::Next) && budget.take(stage, item, bytes)
}

#[test]
fn an_item_that_is_larger_than_the_budget_goes_alone() {
    let mut budget = MemoryBudget::new(10, &[2]);
    assert!(budget.take(0, 0, 3));
    assert!(!budget.take(0, 1, 50));
    assert!(budget.give_back(0, 0) && budget.take(0, 1, 50));
    assert!(!budget.has_room(0, Room::For(0)), "beside it there is no other");
    assert!(budget.give_back(0, 1) && !budget.give_back(0, 1));
}

#[test]
fn before_an_output_is_known_the_items_at_work_share_the_budget() {
    let mut budget = MemoryBudget::new(100, &[4]);
    let taken = (0..9).take_while(|&item| take(&mut budget, 0, item, 1)).count();
    assert_eq!(taken, 4);
    assert!(budget.settle(0, 0, 10), "it is smaller than what it could be");
    let more = (4..99).take_while(|&item| take(&mut budget, 0, item, 1)).count();
    assert_eq!(more, 1, "10 + 3 x 25 + 10");
    (1..5).for_each(|item| _ = budget.settle(0, item, 10));
    assert_eq!((5..99).take_while(|&item| take(&mut budget, 0, item, 1)).count(), 5);
}

#[test]
fn an_output_that_grows_leaves_less_room() {
    let mut budget = MemoryBudget::new(100, &[1]);
    assert!(take(&mut budget, 0, 0, 10));
    budget.settle(0, 0, 10);
    assert!(budget.has_room(0, Room::For(90)) && !budget.has_room(0, Room::For(91)));
    assert!(!budget.settle(0, 0, 60));
    assert!(!budget.has_room(0, Room::For(1)), "its output may be as large");
    budget.give_back(0, 0);
    assert!(budget.has_room(0, Room::Next));
}

#[test]
fn the_least_number_of_items_goes_whatever_they_take() {
    let mut budget = MemoryBudget::new(10, &[2]).with_least(&[3]);
    assert_eq!(budget.room(0), 3);
    assert!((0..3).all(|item| budget.take(0, item, 50)) && !budget.take(0, 3, 0));
    (0..3).for_each(|item| _ = budget.settle(0, item, 1));
    assert_eq!(budget.room(0), 0, "the next may take 50");
    (0..2).for_each(|item| assert!(budget.give_back(0, item)));
    assert_eq!(budget.room(0), 2);
}

#[test]
fn the_room_is_the_number_of_items_that_fit() {
    let mut budget = MemoryBudget::new(100, &[2]);
    assert_eq!(budget.room(0), 2, "an even part each");
    assert!(budget.take(0, 0, 8));
    budget.settle(0, 0, 10);
    assert_eq!(budget.room(0), 9);
    assert_eq!((1..99).take_while(|&item| take(&mut budget, 0, item, 1)).count(), 9);
    assert_eq!(budget.room(0), 0);
}

#[test]
fn room_is_kept_for_each_stage_without_items() {
    let mut budget = MemoryBudget::new(100, &[1, 1]);
    assert!(take(&mut budget, 1, 0, 40));
    budget.settle(1, 0, 1);
    budget.give_back(1, 0);
    assert!(take(&mut budget, 0, 1, 30));
    budget.settle(0, 1, 30);
    assert!(take(&mut budget, 0, 2, 30), "30 + 30 + 40");
    assert!(!budget.has_room(0, Room::For(1)), "then there would be none for the other stage");
    assert!(take(&mut budget, 1, 3, 40));
}

/// Sizes that inputs and outputs have at most.
const MOST: u64 = 9;

#[derive(Debug, Clone, Copy)]
enum Step {
    Take { stage: usize, bytes: u64 },
    Settle { item: usize, bytes: u64 },
    GiveBack { item: usize },
}

fn step(stages: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..stages, 0..=MOST).prop_map(|(stage, bytes)| Step::Take { stage, bytes }),
        1 => (0..99_usize, 0..=MOST).prop_map(|(item, bytes)| Step::Settle { item, bytes }),
        1 => (0..99_usize).prop_map(|item| Step::GiveBack { item }),
    ]
}

proptest! {
    /// Sizes that do not surprise: after one item of the largest size has been through each stage, the sum of what inputs
    /// and outputs take never exceeds the budget, if that has room for one of the largest in each stage.
    #[test]
    fn known_sizes_never_exceed_the_budget(
        most in 0_u64..60,
        stages in 1_usize..4,
        steps in prop::collection::vec(step(3), 0..200),
    ) {
        let mut budget = MemoryBudget::new(most, &vec![2; stages]);
        for stage in 0..stages {
            let item = u64::MAX - stage as u64;
            budget.take(stage, item, MOST);
            budget.settle(stage, item, MOST);
            budget.give_back(stage, item);
        }
        let mut in_flight: Vec<(usize, u64, u64)> = vec![];
        let mut settled = std::collections::HashSet::new();
        for (item, step) in (0..).zip(steps) {
            match step {
                Step::Take { stage, bytes } if stage < stages => {
                    let is_empty = !in_flight.iter().any(|it| it.0 == stage);
                    let has_room = budget.has_room(stage, Room::Next);
                    prop_assert!(has_room || !is_empty, "a stage without items may always take one");
                    prop_assert!(!has_room || budget.has_room(stage, Room::For(bytes)));
                    prop_assert_eq!(has_room, budget.room(stage) > 0);
                    if has_room && budget.take(stage, item, bytes) {
                        in_flight.push((stage, item, bytes));
                    }
                }
                Step::Settle { item, bytes } if !in_flight.is_empty() => {
                    let count = in_flight.len();
                    let (stage, item, takes) = &mut in_flight[item % count];
                    if settled.insert(*item) {
                        *takes = bytes;
                        budget.settle(*stage, *item, bytes);
                    }
                }
                Step::GiveBack { item } if !in_flight.is_empty() => {
                    let (stage, item, _) = in_flight.swap_remove(item % in_flight.len());
                    prop_assert!(budget.give_back(stage, item));
                }
                _ => {}
            }
            let sum = in_flight.iter().map(|it| it.2).sum::<u64>();
            prop_assert!(sum <= most.max(stages as u64 * MOST), "{sum} of {most}: {in_flight:?}");
        }
        for (stage, item, _) in in_flight {
            budget.give_back(stage, item);
        }
        prop_assert_eq!(budget.total, 0);
    }

    /// Whatever is measured, also `u64::MAX`: no overflow, and all room comes back.
    #[test]
    fn any_sizes_leave_nothing_behind(sizes in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40)) {
        let mut budget = MemoryBudget::new(1000, &[1, 3]);
        for (item, &(input, output)) in (0..).zip(&sizes) {
            let stage = (input % 2) as usize;
            if !budget.take(stage, item, input) {
                (0..item).for_each(|item| _ = budget.give_back(stage, item));
                prop_assert!(budget.take(stage, item, input), "nothing else is in flight");
            }
            budget.settle(stage, item, output);
        }
        for stage in 0..2 {
            (0..sizes.len() as u64).for_each(|item| _ = budget.give_back(stage, item));
        }
        prop_assert_eq!(budget.total, 0);
    }
}
