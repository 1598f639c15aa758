//! The final failures of a run, in bounded memory.

use std::sync::Arc;

use crate::observe::failure::Failure;

/// Both are bounded, since the text of one failure alone may have a hundred thousand bytes.
pub(super) const MOST: usize = 10_000;
const MOST_TEXT: usize = 16 * 1_024 * 1_024;

/// The first failures that were reported.
#[derive(Debug, Default)]
pub(super) struct Failures {
    kept: Vec<Arc<Failure>>,
    text: usize,
    pub(super) left_out: u64,
}

impl Failures {
    pub(super) fn keep(&mut self, failure: &Arc<Failure>) {
        let text = self.text + text_of(failure);
        // After the first that does not fit, none is kept, so that only the end of the list is missing.
        if self.left_out == 0 && self.kept.len() < MOST && text <= MOST_TEXT {
            self.text = text;
            self.kept.push(Arc::clone(failure));
        } else {
            self.left_out += 1;
        }
    }

    /// In input order; failures without an item come last.
    pub(super) fn in_order(&self) -> Vec<Failure> {
        let mut kept: Vec<&Arc<Failure>> = self.kept.iter().collect();
        kept.sort_by_key(|failure| (failure.item.is_none(), failure.item));
        kept.into_iter().map(|failure| Failure::clone(failure)).collect()
    }

    /// The key of a failed item, if that failure is kept.
    pub(super) fn key(&self, item: u64) -> Option<&str> {
        self.kept.iter().find(|failure| failure.item == Some(item))?.key.as_deref()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.kept.len() as u64 + self.left_out
    }
}

fn text_of(failure: &Failure) -> usize {
    let causes: usize = failure.causes.iter().map(String::len).sum();
    failure.error.len() + causes + failure.key.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(item: Option<u64>, error: &str) -> Arc<Failure> {
        Arc::new(Failure { item, error: error.to_owned(), ..Failure::default() })
    }

    #[test]
    fn they_are_in_the_order_of_the_input() {
        let mut failures = Failures::default();
        [Some(3), None, Some(1)].into_iter().for_each(|item| failures.keep(&failure(item, "e")));
        let items: Vec<_> = failures.in_order().iter().map(|failure| failure.item).collect();
        assert_eq!(items, [Some(1), Some(3), None]);
    }

    #[test]
    fn neither_many_nor_long_ones_exceed_the_bound() {
        let mut many = Failures::default();
        (0..MOST as u64 + 3).for_each(|item| many.keep(&failure(Some(item), "e")));
        assert_eq!((many.kept.len(), many.left_out, many.count()), (MOST, 3, MOST as u64 + 3));

        let mut long = Failures::default();
        let text = "e".repeat(MOST_TEXT / 2);
        (0..3).for_each(|item| long.keep(&failure(Some(item), &text)));
        long.keep(&failure(Some(3), "short"));
        assert_eq!((long.kept.len(), long.left_out), (2, 2));
    }
}
