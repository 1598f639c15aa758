//! The weights of items in flight.

use std::collections::HashMap;

use crate::concurrency::queue::Receiver;

/// The weights of items in flight, for the collector, which returns them.
#[derive(Debug)]
pub(crate) struct WeightQueue {
    /// In input order; each weight arrives before its item is given out.
    arriving: Receiver<u64>,
    /// By item. A slow item may stay in flight as long as the input lasts, so a queue that starts at the
    /// oldest item would be unbounded.
    out: HashMap<u64, u64>,
    /// The item that the next weight belongs to.
    next: u64,
}

impl WeightQueue {
    pub(crate) fn new(arriving: Receiver<u64>) -> Self {
        WeightQueue { arriving, out: HashMap::new(), next: 0 }
    }

    /// Removes the weight of an item whose result has arrived. 0 for an item that was never given out.
    pub(crate) fn settle(&mut self, seq: u64) -> u64 {
        while let Some(weight) = self.arriving.pop() {
            self.out.insert(self.next, weight);
            self.next += 1;
        }
        self.out.remove(&seq).unwrap_or(0)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::concurrency::queue::queue;

    #[test]
    fn each_is_settled_once_in_any_order() {
        let (mut sender, receiver) = queue(8);
        let mut weights = WeightQueue::new(receiver);
        (0..4).for_each(|seq| sender.push(10 * seq));
        assert_eq!([2, 0, 1].map(|seq| weights.settle(seq)), [20, 0, 10]);
        sender.push(40);
        assert_eq!([4, 3].map(|seq| weights.settle(seq)), [40, 30]);
        assert_eq!(weights.settle(5), 0, "an item that failed before it was given out");
        assert!(weights.out.is_empty());
    }

    #[test]
    fn one_that_is_out_for_long_keeps_no_others() {
        let (mut sender, receiver) = queue(8);
        let mut weights = WeightQueue::new(receiver);
        sender.push(7);
        for seq in 1..100 {
            sender.push(1);
            assert_eq!(weights.settle(seq), 1);
        }
        assert_eq!(weights.out.len(), 1);
        assert_eq!(weights.settle(0), 7);
    }
}
