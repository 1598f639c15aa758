//! Why a list of jobs failed as a whole.

use gangline::BoxError;
use gangline::error::{OutOfMemory, Untried};

use crate::output::outcome::JobResult;

/// Why a list failed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListFailure {
    /// The worker was ended with the list in hand, which costs each job that is left an attempt.
    Died,
    /// The worker rejected it.
    Rejected,
    /// The device has no memory for a list of this size.
    OutOfMemory,
}

impl ListFailure {
    /// The error of a job in such a list that comes again in a smaller one.
    pub(crate) fn error(self, result: &JobResult) -> BoxError {
        let why = result.error().unwrap_or_default();
        match self {
            ListFailure::OutOfMemory => Untried::new(OutOfMemory::new(why)).into(),
            ListFailure::Died | ListFailure::Rejected => Untried::new(why).into(),
        }
    }
}
