//! The sizes of the lists that warm workers got.

use std::sync::{Mutex, MutexGuard};

use gangline::RunReport;

/// Counts the lists of a lane.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<Sizes>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sizes {
    lists: u64,
    jobs: u64,
    largest: u64,
}

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
        let Sizes { lists, jobs, largest } = *self.sizes();
        (lists, jobs, largest)
    }

    /// Says in a report how large they were. It also counts those that were split, as batches.
    pub(crate) fn describe(&self, report: &mut RunReport) {
        let Sizes { lists, jobs, largest } = *self.sizes();
        if lists > 0 {
            let mean = jobs as f64 / lists as f64;
            let text = format!(
                " Workers got {lists} lists, of {mean:.1} jobs on average and {largest} at most."
            );
            report.conclusion.push_str(&text);
        }
    }

    fn sizes(&self) -> MutexGuard<'_, Sizes> {
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
        assert_eq!(*lists.sizes(), Sizes { lists: 3, jobs: 15, largest: 8 });
    }
}
