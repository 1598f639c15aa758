//! The scheduler's answers to producers.

use super::items::Standing;
use super::lease::Lease;
use super::time::RunTime;

/// What a producer that asked for work does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It works on this lease.
    Work(Lease),
    /// It asks again at this time, or when it is woken.
    WaitUntil(RunTime),
    /// It asks again when it is woken.
    Wait,
    /// It leaves the run.
    Leave,
}

/// The consequence of a batch that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// These items are tried again in parts.
    Split(Vec<u64>),
    /// These items have failed, and the backend calls [`decide`](super::Scheduler::decide) for them. Failures
    /// of the others are stale, or deferred to another copy.
    Failed(Vec<u64>),
}

/// The consequence of a batch that was tried in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedInPart {
    /// Of each outcome; that of an item that was not tried is deferred.
    pub standings: Vec<Standing>,
    /// The items that are tried again in parts.
    pub again: Vec<u64>,
}

/// Whether a batch failed because the device ran out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The failure has another cause.
    Sufficient,
    /// The device ran out of memory.
    Short,
}

/// Whether a lease that is about to begin is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The hook is called.
    Work,
    /// Its result is no longer wanted: the backend calls [`release`](super::Scheduler::release).
    Stale,
}

/// How long a producer is excluded from a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until the hook of an earlier run returns that it is in.
    Joined,
    /// Until it has a state. It counts as a producer of the run meanwhile.
    Ready,
    /// For good.
    RunEnds,
}

/// The run would be left with too few producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFewProducers {
    /// The number of producers that would be left.
    pub live: usize,
}
