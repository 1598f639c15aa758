//! The collector's end of all outboxes: results in the runner's order.

use super::outbox::{Outcome, Results};
use crate::order::{Order, Reorder};

/// Where the results of all producers come out.
///
/// In order of the input, results are handed out of the lane that has the one whose turn it is, as
/// many as follow each other there. Only when no lane has it in front is what is here moved into a
/// buffer: it may be behind, since a producer may steal items that are older than what it delivered.
///
/// In order of completion each lane is in the order in which it finished; which of two lanes finished
/// first is not known, so the one that is earlier in the input goes first, as it most likely did.
/// Without this a consumer that was busy would see all results of one producer, and after them all
/// of the next.
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    order: Order,
    /// One for each producer; the last is the feeder's own, for what comes from the input itself.
    lanes: Vec<Results<T>>,
    /// Results that were in front of others and not yet in their turn.
    early: Reorder<Outcome<T>>,
    /// The lane that the next results come from, and how many.
    current: usize,
    left: usize,
}

impl<T> Outlet<T> {
    pub(crate) fn new(order: Order, lanes: Vec<Results<T>>) -> Self {
        Outlet { order, lanes, early: Reorder::new(), current: 0, left: 0 }
    }

    /// The next result, when it is here.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Outcome<T>)> {
        if self.left == 0 {
            return self.pop_elsewhere();
        }
        self.left -= 1;
        Some(self.lanes[self.current].pop())
    }

    /// How many results are held back for order. To be asked when [`pop`](Outlet::pop) found nothing.
    pub(crate) fn held(&self) -> usize {
        self.early.held()
    }

    /// Whether something has come since [`pop`](Outlet::pop) found nothing. Never `false` when
    /// something has.
    pub(crate) fn has_some(&mut self) -> bool {
        self.lanes.iter_mut().any(Results::has_some)
    }

    /// As [`has_some`](Outlet::has_some), but about so many outputs of one producer; errors do not
    /// count.
    pub(crate) fn has_many(&mut self, outputs: usize) -> bool {
        self.lanes.iter_mut().any(|lane| lane.has_many(outputs))
    }

    /// How many results each producer's lane has given so far.
    pub(crate) fn collected(&self) -> impl Iterator<Item = u64> + '_ {
        self.lanes.iter().map(Results::collected)
    }

    /// What is held back for order, and the lanes, in which there may be more.
    pub(crate) fn into_parts(self) -> (Vec<Outcome<T>>, Vec<Results<T>>) {
        let Outlet { mut early, lanes, .. } = self;
        (early.drain().collect(), lanes)
    }

    fn pop_elsewhere(&mut self) -> Option<(u64, Outcome<T>)> {
        loop {
            if let Some(next) = self.early.pop() {
                return Some(next);
            }
            if self.choose() {
                self.left -= 1;
                return Some(self.lanes[self.current].pop());
            }
            if !self.look() {
                return None;
            }
        }
    }

    /// Finds the lane that the next results come from.
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
        // In order of the input no other lane has an index from among those that follow each other.
        self.left = self.lanes[lane].in_a_row().min((second - head) as usize);
        self.early.pass(self.left);
        self.current = lane;
        true
    }

    /// Looks for new results, and moves what is in the way aside. `false` when there was nothing.
    fn look(&mut self) -> bool {
        let has_new = |lane: &mut Results<T>| lane.head().is_none() && lane.look();
        if self.lanes.iter_mut().filter_map(|lane| has_new(lane).then_some(())).count() > 0 {
            return true;
        }
        let before = self.early.held();
        for lane in &mut self.lanes {
            while lane.head().is_some() {
                let (seq, result) = lane.pop();
                self.early.insert(seq, result);
            }
        }
        self.early.held() > before
    }
}
