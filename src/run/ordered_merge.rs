//! Merges the results of all producers into the runner's order.

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use gangline_scheduler::reorder::Reorder;

use crate::base::Order;
use crate::run::outbox::{OutboxReader, Outcome};

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
    lanes: Vec<OutboxReader<T>>,
    /// Results in front of others that wait for their turn.
    early: Reorder<Outcome<T>>,
    /// The lanes with results, but for the current one, by the item of their oldest. A look at the lanes is then due
    /// once for all results that have arrived, not once for each: there may be hundreds of lanes with one result each.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// The lane of the next results, and their number in `left`.
    current: usize,
    left: usize,
}

impl<T> OrderedMerge<T> {
    pub(crate) fn new(order: Order, lanes: Vec<OutboxReader<T>>) -> Self {
        let heads = BinaryHeap::with_capacity(lanes.len());
        OrderedMerge { order, lanes, early: Reorder::default(), heads, current: 0, left: 0 }
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
        self.early.held() > 0 || !self.heads.is_empty() || self.lanes[self.current].holds_back()
    }

    /// The missing item that others are held back for, if any. Valid after [`pop`](OrderedMerge::pop) found
    /// nothing.
    pub(crate) fn awaited(&self) -> Option<u64> {
        (self.order == Order::Input && self.holds_back()).then(|| self.early.next())
    }

    /// Whether a result may have arrived since [`pop`](OrderedMerge::pop) found nothing. `true` whenever
    /// `pop` would find one.
    pub(crate) fn has_new(&mut self) -> bool {
        self.lanes.iter_mut().any(OutboxReader::has_new)
    }

    /// Whether about `outputs` outputs of one producer have arrived; errors do not count.
    pub(crate) fn has_many_new(&mut self, outputs: usize) -> bool {
        self.lanes.iter_mut().any(|lane| lane.has_many_new(outputs))
    }

    /// For each lane, the number of results seen so far, taken or not.
    pub(crate) fn seen(&self) -> impl Iterator<Item = u64> + '_ {
        self.lanes.iter().map(OutboxReader::seen)
    }

    /// The results held back for order, and the lanes, which may hold more.
    pub(crate) fn into_parts(self) -> (Vec<Outcome<T>>, Vec<OutboxReader<T>>) {
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
        for (lane, results) in self.lanes.iter_mut().enumerate() {
            let has_head = lane == self.current || results.holds_back();
            found |= results.look();
            if !has_head && let Some(head) = results.head() {
                self.heads.push(Reverse((head, lane)));
            }
        }
        found
    }

    fn clear_the_way(&mut self) {
        if self.order == Order::Completion {
            return;
        }
        let OrderedMerge { lanes, early, heads, current, .. } = self;
        let mut clear = |lane: usize| {
            let lane = &mut lanes[lane];
            let is_in_the_way = lane.is_in_the_way();
            while is_in_the_way && lane.head().is_some() {
                let (seq, result) = lane.pop();
                early.insert(seq, result);
            }
            is_in_the_way
        };
        clear(*current);
        heads.retain(|&Reverse((_, lane))| !clear(lane));
    }

    /// Makes the lane of the next results the current one. Returns whether they are here.
    fn choose(&mut self) -> bool {
        let mut first = self.lanes[self.current].head();
        if let Some(mut least) = self.heads.peek_mut() {
            let Reverse((head, lane)) = *least;
            if first.is_none_or(|first| head < first) {
                match first {
                    Some(first) => *least = Reverse((first, self.current)),
                    None => _ = PeekMut::pop(least),
                }
                (first, self.current) = (Some(head), lane);
            }
        }
        let is_next = |&head: &u64| self.order == Order::Completion || head == self.early.next();
        if first.filter(is_next).is_none() {
            return false;
        }
        // Each index is in one lane only, so no other lane holds one within this run of consecutive ones.
        self.left = self.lanes[self.current].in_a_row();
        self.early.pass(self.left);
        true
    }
}
