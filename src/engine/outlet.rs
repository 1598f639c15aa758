//! The collector's end of all outboxes: results in the runner's order.

use super::outbox::{Outcome, Results};
use crate::order::{Order, Reorder};

/// Where the results of all producers come out.
///
/// In order of the input, results are handed out of the lane that has the one whose turn it is, as
/// many as follow each other there. A lane ascends but for what its producer stole, which may be older
/// than what it delivered before. When no lane has the result whose turn it is in front, it may be
/// behind in one that goes back: what is here of that one moves into a buffer.
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

    /// Whether results are held back for order. To be asked when [`pop`](Outlet::pop) found nothing.
    pub(crate) fn holds_back(&self) -> bool {
        self.early.held() > 0 || self.lanes.iter().any(|lane| lane.here() > 0)
    }

    /// Whether something has come since [`pop`](Outlet::pop) found nothing. Never `false` when
    /// something has that `pop` can find.
    pub(crate) fn has_new(&mut self) -> bool {
        self.lanes.iter_mut().any(Results::has_new)
    }

    /// As [`has_new`](Outlet::has_new), but about so many outputs of one producer; errors do not
    /// count.
    pub(crate) fn has_many_new(&mut self, outputs: usize) -> bool {
        self.lanes.iter_mut().any(|lane| lane.has_many_new(outputs))
    }

    /// How many results of each producer have been seen here so far, whether they were handed out or
    /// not.
    pub(crate) fn seen(&self) -> impl Iterator<Item = u64> + '_ {
        self.lanes.iter().map(|lane| lane.collected() + lane.here() as u64)
    }

    /// What is held back for order, and the lanes, in which there may be more.
    pub(crate) fn into_parts(self) -> (Vec<Outcome<T>>, Vec<Results<T>>) {
        let Outlet { mut early, lanes, .. } = self;
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
        self.clear_lanes_that_go_back();
        self.early.pop()
    }

    /// Looks for new results. Whether any are here.
    fn look(&mut self) -> bool {
        let mut found = false;
        for lane in &mut self.lanes {
            found |= lane.look();
        }
        found
    }

    fn clear_lanes_that_go_back(&mut self) {
        if self.order == Order::Completion {
            return;
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.goes_back()) {
            while lane.head().is_some() {
                let (seq, result) = lane.pop();
                self.early.insert(seq, result);
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
}
