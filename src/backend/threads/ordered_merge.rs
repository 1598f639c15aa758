//! Merges the results of all producers into the runner's order.

use crate::backend::threads::outbox::{Outcome, Results};
use crate::base::Order;
use crate::scheduler::reorder::Reorder;

/// Merges the results of all lanes; a lane is the outbox of one producer.
///
/// In input order, results come from the lane that holds the next index, as long as indices there are
/// consecutive. A lane ascends, except after a steal, since stolen items may be older than those already
/// delivered. So if no lane has the next index at its head, it may be behind a later one in a lane that goes
/// back. The results of such a lane move into a buffer. The same happens to a lane with a full ring, which
/// would hide the results behind it.
///
/// In completion order, each lane is in the order in which it finished. Which of two lanes finished first is
/// not known, so the smaller index goes first, as it most likely did. Otherwise a consumer that was busy
/// would see all results of one producer before any of the next.
#[derive(Debug)]
pub(crate) struct OrderedMerge<T> {
    order: Order,
    /// One per producer; then the feeder's lane, for failures of the input, and the deadline thread's, if
    /// there is one.
    lanes: Vec<Results<T>>,
    /// Results in front of others that wait for their turn.
    early: Reorder<Outcome<T>>,
    /// The lane of the next results, and their number in `left`.
    current: usize,
    left: usize,
}

impl<T> OrderedMerge<T> {
    pub(crate) fn new(order: Order, lanes: Vec<Results<T>>) -> Self {
        OrderedMerge { order, lanes, early: Reorder::new(), current: 0, left: 0 }
    }

    /// Returns the next result, if it has arrived.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Outcome<T>)> {
        if self.left == 0 {
            return self.pop_elsewhere();
        }
        self.left -= 1;
        Some(self.lanes[self.current].pop())
    }

    /// Whether results are held back for order. Valid after [`pop`](OrderedMerge::pop) found nothing.
    pub(crate) fn holds_back(&self) -> bool {
        self.early.held() > 0 || self.lanes.iter().any(Results::holds_back)
    }

    /// The missing item that others are held back for, if any. Valid after [`pop`](OrderedMerge::pop) found
    /// nothing.
    pub(crate) fn awaited(&self) -> Option<u64> {
        (self.order == Order::Input && self.holds_back()).then(|| self.early.next())
    }

    /// Whether a result may have arrived since [`pop`](OrderedMerge::pop) found nothing. `true` whenever
    /// `pop` would find one.
    pub(crate) fn has_new(&mut self) -> bool {
        self.lanes.iter_mut().any(Results::has_new)
    }

    /// Whether about `outputs` outputs of one producer have arrived; errors do not count.
    pub(crate) fn has_many_new(&mut self, outputs: usize) -> bool {
        self.lanes.iter_mut().any(|lane| lane.has_many_new(outputs))
    }

    /// For each lane, the number of results seen so far, taken or not.
    pub(crate) fn seen(&self) -> impl Iterator<Item = u64> + '_ {
        self.lanes.iter().map(Results::seen)
    }

    /// The results held back for order, and the lanes, which may hold more.
    pub(crate) fn into_parts(self) -> (Vec<Outcome<T>>, Vec<Results<T>>) {
        let OrderedMerge { mut early, lanes, .. } = self;
        (early.drain().collect(), lanes)
    }

    fn pop_elsewhere(&mut self) -> Option<(u64, Outcome<T>)> {
        if let Some(next) = self.early.pop() {
            return Some(next);
        }
        if self.choose() || (self.look() && self.choose()) {
            self.left -= 1;
            return Some(self.lanes[self.current].pop());
        }
        self.clear_the_way();
        self.early.pop()
    }

    /// Looks for new results. Returns whether there are any.
    fn look(&mut self) -> bool {
        let mut found = false;
        for lane in &mut self.lanes {
            found |= lane.look();
        }
        found
    }

    fn clear_the_way(&mut self) {
        if self.order == Order::Completion {
            return;
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_in_the_way()) {
            while lane.head().is_some() {
                let (seq, result) = lane.pop();
                self.early.insert(seq, result);
            }
        }
    }

    /// Chooses the lane of the next results.
    fn choose(&mut self) -> bool {
        let (mut first, mut second) = ((u64::MAX, 0), u64::MAX);
        for (lane, results) in self.lanes.iter_mut().enumerate() {
            let head = results.head().unwrap_or(u64::MAX);
            if head < first.0 {
                (first, second) = ((head, lane), first.0);
            } else if head < second {
                second = head;
            }
        }
        let (head, lane) = first;
        let is_next = self.order == Order::Completion || head == self.early.next();
        if head == u64::MAX || !is_next {
            return false;
        }
        // In input order, no other lane holds an index within this run of consecutive ones.
        self.left = (self.lanes[lane].in_a_row() as u64).min(second - head) as usize;
        self.early.pass(self.left);
        self.current = lane;
        true
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::backend::threads::failed_item::FailedItem;
    use crate::backend::threads::outbox::{Outbox, outbox};
    use crate::error::Error;

    /// Producers that take from one input and steal from each other, as the hand-over lets them.
    struct Producers {
        inboxes: Vec<VecDeque<u64>>,
        outboxes: Vec<Outbox<u64>>,
        next: u64,
        delivered: BTreeSet<u64>,
    }

    impl Producers {
        fn new(lanes: usize, order: Order) -> (Self, OrderedMerge<u64>) {
            let (outboxes, results) = (0..lanes).map(|_| outbox(8)).unzip();
            let inboxes = vec![VecDeque::new(); lanes];
            let producers = Producers { inboxes, outboxes, next: 0, delivered: BTreeSet::new() };
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
                    if fails { Err(FailedItem::ending(Error::Closed {})) } else { Ok(10 * item) };
                self.outboxes[lane].push(item, outcome);
                self.delivered.insert(item);
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take(usize, u64),
        Steal(usize, usize),
        Work(usize, bool),
        Pop(usize),
    }

    fn steps(lanes: usize) -> impl Strategy<Value = Vec<Step>> {
        let lane = 0..lanes;
        let step = prop_oneof![
            1 => (lane.clone(), 1u64..20).prop_map(|(lane, count)| Step::Take(lane, count)),
            2 => (lane.clone(), lane.clone()).prop_map(|(thief, victim)| Step::Steal(thief, victim)),
            8 => (lane, proptest::bool::weighted(0.3)).prop_map(|(lane, fails)| Step::Work(lane, fails)),
            2 => (0usize..20).prop_map(Step::Pop),
        ];
        proptest::collection::vec(step, 0..300)
    }

    fn pop(
        merge: &mut OrderedMerge<u64>,
        producers: &Producers,
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
            let (mut producers, mut merge) = Producers::new(5, order);
            let mut popped = Vec::new();
            for step in steps {
                match step {
                    Step::Take(lane, count) => producers.take(lane, count),
                    Step::Steal(thief, victim) => producers.steal(thief, victim),
                    Step::Work(lane, fails) => producers.work(lane, fails),
                    Step::Pop(most) => {
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
        outbox.push(2, Err(FailedItem::ending(Error::Closed {})));
        outbox.push(1, Ok(10));
        let items: Vec<_> = std::iter::from_fn(|| merge.pop()).map(|(item, _)| item).collect();
        assert_eq!(items, [0, 1, 2]);
    }
}
