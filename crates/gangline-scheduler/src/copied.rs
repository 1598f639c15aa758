//! What copies of slow calls came to.

use super::Scheduler;
use super::speculation::CopyCounts;

/// Returns the copies of slow calls so far.
pub fn copies(scheduler: &Scheduler) -> CopyCounts {
    scheduler.speculation.counts
}
