//! Batches that the caller forms: for inputs that are lists already.

use std::iter::FusedIterator;

/// Groups the items of an iterator into lists, which are handed over as one input each.
///
/// For runners with a `Vec` as `Input`. A runner that works on single items is better given a
/// [`Batch`](crate::Batch): then a failure is that of one item, and the consumer sees single outputs.
pub trait Batches: Iterator + Sized {
    /// Groups the items into lists of `items`, in order; the last may be shorter, none is empty. A list is
    /// read when it is asked for.
    ///
    /// ```
    /// use gangline::input::Batches;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let sums = map(|_| Ok(()), |_, _, xs: Vec<u64>| Ok(xs.iter().sum::<u64>()));
    /// let mut runner = OrderedRunner::new(sums, 2)?;
    /// assert_eq!(runner.run((0..10).batches(4))?, [6, 22, 17]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `items` is 0.
    fn batches(self, items: usize) -> InBatches<Self> {
        assert!(items > 0, "a batch must have at least 1 item, got 0");
        InBatches { iter: self.fuse(), items }
    }
}

impl<I: Iterator> Batches for I {}

/// The iterator of [`Batches::batches`].
#[derive(Debug, Clone)]
pub struct InBatches<I> {
    iter: std::iter::Fuse<I>,
    items: usize,
}

impl<I: Iterator> Iterator for InBatches<I> {
    type Item = Vec<I::Item>;

    fn next(&mut self) -> Option<Vec<I::Item>> {
        let batch: Vec<_> = self.iter.by_ref().take(self.items).collect();
        (!batch.is_empty()).then_some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.iter.size_hint();
        (least.div_ceil(self.items), most.map(|most| most.div_ceil(self.items)))
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for InBatches<I> {}

impl<I: Iterator> FusedIterator for InBatches<I> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_may_be_short_and_none_is_empty() {
        let batches = |items: u64, size| (0..items).batches(size).collect::<Vec<_>>();
        assert_eq!(batches(5, 2), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(batches(4, 2), [[0, 1], [2, 3]]);
        assert!(batches(0, 2).is_empty());
        assert_eq!((0..10).batches(4).len(), 3);
    }

    #[test]
    #[should_panic(expected = "at least 1 item")]
    fn batches_of_nothing_are_refused() {
        (0..3).batches(0);
    }
}
