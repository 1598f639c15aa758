//! Processor time.

use std::time::Duration;

/// What all threads of this process have used. `None` where the system does not say.
#[cfg(unix)]
pub fn process_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

#[cfg(not(unix))]
pub fn process_time() -> Option<Duration> {
    None
}
