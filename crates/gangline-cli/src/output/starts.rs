//! How long jobs waited for the start of their warm worker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use gangline::RunReport;

/// The waits of jobs, by number. The library counts them as work, since the job was with its slot by then.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<HashMap<u64, Duration>>);

impl Starts {
    /// Jobs were sent to a worker that was started for them.
    pub(crate) fn waited(&self, jobs: impl Iterator<Item = u64>, wait: Duration) {
        self.waits().extend(jobs.map(|job| (job, wait)));
    }

    /// Takes the waits out of the times of jobs in a report. Otherwise the first job of each slot would be named as slow.
    pub(crate) fn remove_from(&self, report: &mut RunReport) {
        let waits = self.waits();
        // An attempt that took less was not the one that waited.
        let wait = |job: u64, took: Duration| waits.get(&job).copied().filter(|wait| *wait <= took);
        for slow in &mut report.slowest {
            slow.took -= wait(slow.item, slow.took).unwrap_or_default();
        }
        report.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        for span in &mut report.spans {
            let wait = wait(span.item, span.took).unwrap_or_default();
            span.start += wait;
            span.took -= wait;
        }
    }

    fn waits(&self) -> MutexGuard<'_, HashMap<u64, Duration>> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}
