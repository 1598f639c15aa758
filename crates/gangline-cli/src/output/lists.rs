//! The sizes of the lists that warm workers got.

use std::sync::{Mutex, MutexGuard};

use gangline::report::conclusion::ListSizes;

/// Counts the lists of a lane.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<ListSizes>);

impl Lists {
    /// A list of that many jobs was sent.
    pub(crate) fn sent(&self, jobs: usize) {
        let mut sizes = self.sizes();
        sizes.lists += 1;
        sizes.jobs += jobs as u64;
        sizes.largest = sizes.largest.max(jobs as u64);
    }

    /// Returns the number of lists, the number of jobs in all of them, and the number of jobs in the largest.
    pub(crate) fn so_far(&self) -> (u64, u64, u64) {
        let ListSizes { lists, jobs, largest } = *self.sizes();
        (lists, jobs, largest)
    }

    /// Returns how large they were, if there were any. The library counts those that were split, as batches.
    pub(crate) fn described(&self) -> Option<ListSizes> {
        Some(*self.sizes()).filter(|sizes| sizes.lists > 0)
    }

    fn sizes(&self) -> MutexGuard<'_, ListSizes> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        let lists = Lists::default();
        [8, 4, 3].into_iter().for_each(|jobs| lists.sent(jobs));
        assert_eq!(*lists.sizes(), ListSizes { lists: 3, jobs: 15, largest: 8 });
    }
}
