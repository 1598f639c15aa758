//! Processor time.

use std::time::Duration;

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

/// The processor time of all threads of this process. `None` if the system does not report it.
pub fn process_time() -> Option<Duration> {
    #[cfg(unix)]
    return Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok();
    #[cfg(not(unix))]
    None
}

/// The processor time of this thread. `None` if the system does not report it.
pub fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    return Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok();
    #[cfg(not(unix))]
    None
}
