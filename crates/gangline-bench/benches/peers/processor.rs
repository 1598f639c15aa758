//! Processor time.

use std::time::Duration;

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

/// What all threads of this process have used. `None` where the system does not say.
pub fn process_time() -> Option<Duration> {
    #[cfg(unix)]
    return Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok();
    #[cfg(not(unix))]
    None
}

/// What this thread has used. `None` where the system does not say.
pub fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    return Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok();
    #[cfg(not(unix))]
    None
}
