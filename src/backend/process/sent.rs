//! Calls that were sent to a child.

use crate::runner::Runner;
use crate::scheduler::{Copies, Lease};

/// A call that was sent, and is not answered.
pub(super) struct Sent<R: Runner> {
    /// Its number. Those of later calls are greater.
    pub(super) call: u64,
    pub(super) lease: Lease,
    /// Kept for another attempt.
    pub(super) inputs: Vec<R::Input>,
    /// Whether other producers can begin the items too.
    pub(super) copies: Copies,
    /// No result of it counts.
    pub(super) is_stale: bool,
}
