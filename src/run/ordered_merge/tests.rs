use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::run::no_output::NoOutput;
use crate::run::outbox::{Outbox, outbox};

/// Producers that take from one input and steal from each other, as the hand-over lets them.
struct StealingProducers {
    inboxes: Vec<VecDeque<u64>>,
    outboxes: Vec<Outbox<u64>>,
    next: u64,
    delivered: BTreeSet<u64>,
}

impl StealingProducers {
    fn new(lanes: usize, order: Order) -> (Self, OrderedMerge<u64>) {
        let (outboxes, results) = (0..lanes).map(|_| outbox(8)).unzip();
        let inboxes = vec![VecDeque::new(); lanes];
        let producers =
            StealingProducers { inboxes, outboxes, next: 0, delivered: BTreeSet::new() };
        (producers, OrderedMerge::new(order, results))
    }

    fn take(&mut self, lane: usize, count: u64) {
        self.inboxes[lane].extend(self.next..self.next + count);
        self.next += count;
    }

    /// Steals the older half of the victim's items, if the thief has none.
    fn steal(&mut self, thief: usize, victim: usize) {
        if self.inboxes[thief].is_empty() {
            let half = self.inboxes[victim].len().div_ceil(2);
            let loot: Vec<_> = self.inboxes[victim].drain(..half).collect();
            self.inboxes[thief].extend(loot);
        }
    }

    fn work(&mut self, lane: usize, fails: bool) {
        if let Some(item) = self.inboxes[lane].pop_front() {
            let outcome =
                if fails { Err(NoOutput::ending(Error::Closed {})) } else { Ok(10 * item) };
            self.outboxes[lane].push(item, outcome);
            self.delivered.insert(item);
        }
    }
}

#[derive(Debug, Clone)]
enum MergeStep {
    Take(usize, u64),
    Steal(usize, usize),
    Work(usize, bool),
    Pop(usize),
}

fn steps(lanes: usize) -> impl Strategy<Value = Vec<MergeStep>> {
    let lane = 0..lanes;
    let step = prop_oneof![
        1 => (lane.clone(), 1u64..20).prop_map(|(lane, count)| MergeStep::Take(lane, count)),
        2 => (lane.clone(), lane.clone()).prop_map(|(thief, victim)| MergeStep::Steal(thief, victim)),
        8 => (lane, proptest::bool::weighted(0.3)).prop_map(|(lane, fails)| MergeStep::Work(lane, fails)),
        2 => (0usize..20).prop_map(MergeStep::Pop),
    ];
    proptest::collection::vec(step, 0..300)
}

fn pop(
    merge: &mut OrderedMerge<u64>,
    producers: &StealingProducers,
    popped: &mut Vec<u64>,
    order: Order,
) -> bool {
    let Some((item, outcome)) = merge.pop() else {
        let next = popped.len() as u64;
        let is_here = match order {
            Order::Input => producers.delivered.contains(&next),
            Order::Completion => producers.delivered.len() > popped.len(),
        };
        assert!(!is_here || merge.has_new(), "{next} is here, and nobody would look again");
        return merge.has_new();
    };
    assert!(outcome.is_err() || outcome.ok() == Some(10 * item));
    assert!(order == Order::Completion || item == popped.len() as u64);
    popped.push(item);
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn whatever_was_delivered_comes_out_in_its_turn(
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        steps in (2usize..5).prop_flat_map(steps),
    ) {
        let (mut producers, mut merge) = StealingProducers::new(5, order);
        let mut popped = Vec::new();
        for step in steps {
            match step {
                MergeStep::Take(lane, count) => producers.take(lane, count),
                MergeStep::Steal(thief, victim) => producers.steal(thief, victim),
                MergeStep::Work(lane, fails) => producers.work(lane, fails),
                MergeStep::Pop(most) => {
                    (0..most).for_each(|_| _ = pop(&mut merge, &producers, &mut popped, order));
                }
            }
        }
        let lanes = producers.inboxes.len();
        (0..lanes).for_each(|lane| while !producers.inboxes[lane].is_empty() { producers.work(lane, false) });
        let mut rounds = 0;
        while pop(&mut merge, &producers, &mut popped, order) {
            rounds += 1;
            prop_assert!(rounds < 100_000, "it finds nothing, and always something new");
        }
        popped.sort_unstable();
        prop_assert_eq!(popped, (0..producers.next).collect::<Vec<_>>());
    }
}

/// The item after the last output was stolen back, and comes after the failure of a later one.
#[test]
fn an_item_behind_the_failure_of_a_later_one_is_found() {
    let (mut outbox, results) = outbox(8);
    let mut merge = OrderedMerge::new(Order::Input, vec![results]);
    outbox.push(0, Ok(0));
    outbox.push(2, Err(NoOutput::ending(Error::Closed {})));
    outbox.push(1, Ok(10));
    let items: Vec<_> = std::iter::from_fn(|| merge.pop()).map(|(item, _)| item).collect();
    assert_eq!(items, [0, 1, 2]);
}
