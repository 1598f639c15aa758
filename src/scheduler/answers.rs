//! What the scheduler answers to a producer, and what a producer adds to a failure.

use super::lease::Lease;
use super::time::RunTime;

/// What a producer that asked for work does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Work(Lease),
    /// It asks again then, or when it is woken.
    WaitUntil(RunTime),
    /// It asks again when it is woken.
    Wait,
    /// It leaves the run.
    Leave,
}

/// What the failure of a batch as a whole means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Together {
    /// These items go on in parts, which are leased again.
    Split(Vec<u64>),
    /// These items have failed, and the backend calls [`decide`](super::Scheduler::decide) for them. The failures
    /// of the others are stale, or deferred to another copy.
    Failed(Vec<u64>),
}

/// Whether the error of a batch is that the device has no memory for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Sufficient,
    Short,
}

/// Whether a lease that was about to begin is still worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Work,
    /// Nothing waits for its result: the backend calls [`release`](super::Scheduler::release).
    Stale,
}

/// The run would be left with too few producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFewProducers {
    pub(crate) live: usize,
}
