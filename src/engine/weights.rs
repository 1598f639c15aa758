//! What each item weighs that is out.

use std::collections::VecDeque;

use super::queue::Receiver;

/// The weights of the items that are out, for the collector, which gives them back.
#[derive(Debug)]
pub(crate) struct Weights {
    /// In the order of the input, each before its item is given out.
    arriving: Receiver<u64>,
    /// From the item `first` on; `None` for those that were settled.
    out: VecDeque<Option<u64>>,
    first: u64,
}

impl Weights {
    pub(crate) fn new(arriving: Receiver<u64>) -> Self {
        Weights { arriving, out: VecDeque::new(), first: 0 }
    }

    /// What an item weighs whose result is here. 0 for one that was never given out.
    pub(crate) fn settle(&mut self, seq: u64) -> u64 {
        self.out.extend(std::iter::from_fn(|| self.arriving.pop()).map(Some));
        let place = self.out.get_mut((seq - self.first) as usize);
        let weight = place.and_then(Option::take).unwrap_or(0);
        while let Some(None) = self.out.front() {
            self.out.pop_front();
            self.first += 1;
        }
        weight
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::engine::queue::queue;

    #[test]
    fn each_is_settled_once_in_any_order() {
        let (mut sender, receiver) = queue(8);
        let mut weights = Weights::new(receiver);
        (0..4).for_each(|seq| sender.push(10 * seq));
        assert_eq!([2, 0, 1].map(|seq| weights.settle(seq)), [20, 0, 10]);
        sender.push(40);
        assert_eq!([4, 3].map(|seq| weights.settle(seq)), [40, 30]);
        assert_eq!(weights.settle(5), 0, "an item that failed before it was given out");
        assert!(weights.out.is_empty());
    }
}
