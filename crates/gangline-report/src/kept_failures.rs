//! The final failures of a run, in bounded memory.

use std::ops::Range;
use std::sync::Arc;

use crate::failure::Failure;

/// The numbers of failures and of bytes are bounded, since the text of one failure alone may have a hundred thousand bytes.
pub(super) const MOST: usize = 10_000;
const MOST_TEXT: usize = 16 * 1_024 * 1_024;

/// The first failures that were reported. They are numbered from 0, in the order of the reports.
#[derive(Debug, Default)]
pub(super) struct Failures {
    kept: Vec<KeptFailure>,
    text: usize,
    counted: u64,
    delivered: u64,
}

#[derive(Debug)]
struct KeptFailure {
    failure: Arc<Failure>,
    is_delivered: bool,
}

impl Failures {
    /// Adds a failure that the consumer has yet to come to.
    pub(super) fn keep(&mut self, failure: &Arc<Failure>) {
        let text = self.text + text_of(failure);
        // After the first that does not fit, none is kept, so that only the end of the list is missing.
        let is_whole = self.kept.len() as u64 == self.counted;
        if is_whole && self.kept.len() < MOST && text <= MOST_TEXT {
            self.text = text;
            self.kept.push(KeptFailure { failure: Arc::clone(failure), is_delivered: false });
        }
        self.counted += 1;
    }

    /// Notes that the consumer has come to the failures of these numbers.
    pub(super) fn deliver(&mut self, numbers: Range<u64>) {
        self.delivered += numbers.end - numbers.start;
        let kept = self.kept.len() as u64;
        let kept = numbers.start.min(kept) as usize..numbers.end.min(kept) as usize;
        self.kept[kept].iter_mut().for_each(|kept| kept.is_delivered = true);
    }

    /// Notes that the consumer comes to the last failure at once.
    pub(super) fn deliver_last(&mut self) {
        self.deliver(self.counted - 1..self.counted);
    }

    /// The number of failures so far, kept or not.
    pub(super) fn count(&self) -> u64 {
        self.counted
    }

    /// All failures so far, and how many are not in the list.
    pub(super) fn all(&self) -> (Vec<Failure>, u64) {
        let all = self.in_order(|_| true);
        let left_out = self.counted - all.len() as u64;
        (all, left_out)
    }

    /// The failures that the consumer has come to, and how many are not in the list.
    pub(super) fn delivered(&self) -> (Vec<Failure>, u64) {
        let delivered = self.in_order(|kept| kept.is_delivered);
        let left_out = self.delivered - delivered.len() as u64;
        (delivered, left_out)
    }

    /// The failures that the consumer has not come to.
    pub(super) fn undelivered(&self) -> Vec<Failure> {
        self.in_order(|kept| !kept.is_delivered)
    }

    /// Returns failures in input order; those without an item come last.
    fn in_order(&self, is_in: impl Fn(&KeptFailure) -> bool) -> Vec<Failure> {
        let kept = self.kept.iter().filter(|kept| is_in(kept));
        let mut failures: Vec<&Arc<Failure>> = kept.map(|kept| &kept.failure).collect();
        failures.sort_by_key(|failure| (failure.item.is_none(), failure.item));
        failures.into_iter().map(|failure| Failure::clone(failure)).collect()
    }

    /// The key of a failed item, if that failure is kept.
    pub(super) fn key(&self, item: u64) -> Option<&str> {
        let kept = self.kept.iter().find(|kept| kept.failure.item == Some(item))?;
        kept.failure.key.as_deref()
    }
}

fn text_of(failure: &Failure) -> usize {
    let causes: usize = failure.causes.iter().map(String::len).sum();
    let others = [&failure.key, &failure.reason].into_iter().flatten().map(String::len);
    failure.error.len() + causes + others.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(item: Option<u64>, error: &str) -> Arc<Failure> {
        Arc::new(Failure { item, error: error.to_owned(), ..Failure::default() })
    }

    fn items(failures: &[Failure]) -> Vec<Option<u64>> {
        failures.iter().map(|failure| failure.item).collect()
    }

    #[test]
    fn they_are_in_the_order_of_the_input() {
        let mut failures = Failures::default();
        [Some(3), None, Some(1)].into_iter().for_each(|item| failures.keep(&failure(item, "e")));
        assert_eq!(items(&failures.all().0), [Some(1), Some(3), None]);
    }

    #[test]
    fn those_that_the_consumer_has_come_to_are_told_from_the_others() {
        let mut failures = Failures::default();
        (0..4).for_each(|item| failures.keep(&failure(Some(item), "e")));
        failures.deliver(1..3);
        assert_eq!(items(&failures.delivered().0), [Some(1), Some(2)]);
        assert_eq!(items(&failures.undelivered()), [Some(0), Some(3)]);
    }

    #[test]
    fn neither_many_nor_long_ones_exceed_the_bound() {
        let mut many = Failures::default();
        (0..MOST as u64 + 3).for_each(|item| many.keep(&failure(Some(item), "e")));
        assert_eq!((many.kept.len(), many.all().1, many.count()), (MOST, 3, MOST as u64 + 3));
        many.deliver(MOST as u64 - 1..MOST as u64 + 2);
        let (delivered, left_out) = many.delivered();
        assert_eq!((delivered.len(), left_out), (1, 2));

        let mut long = Failures::default();
        let text = "e".repeat(MOST_TEXT / 2);
        (0..3).for_each(|item| long.keep(&failure(Some(item), &text)));
        long.keep(&failure(Some(3), "short"));
        assert_eq!((long.kept.len(), long.all().1), (2, 2));
    }
}
