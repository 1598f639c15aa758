//! Counts the results that the consumer has taken.

use crate::concurrency::{Mutex, lock};
use crate::error::Error;

/// The outcomes of the results taken so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) ok: u64,
    /// The number of failed items that were skipped.
    pub(crate) skipped: u64,
    /// The number of items that an earlier run has done.
    pub(crate) already_done: u64,
    /// The failure that ended the run.
    pub(crate) failure: Option<RunFailure>,
}

/// The failure that ended the run, met in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunFailure {
    pub(crate) seq: u64,
    /// The number of items that failed together.
    pub(crate) items: u64,
}

impl RunFailure {
    /// For a run that ended with an error that was not met in its turn.
    pub(crate) fn ending(taken: &Taken, error: &Error) -> Self {
        let seq = taken.items() + taken.already_done;
        RunFailure { seq, items: error.items().len() as u64 }
    }
}

impl Taken {
    pub(crate) fn failed(&self) -> u64 {
        self.skipped + self.failure.map_or(0, |failure| failure.items)
    }

    pub(crate) fn items(&self) -> u64 {
        self.ok + self.skipped
    }
}

/// The consumer's counts, readable while the consumer still runs.
#[derive(Debug, Default)]
pub(crate) struct ConsumerTally(Mutex<Taken>);

impl ConsumerTally {
    pub(crate) fn set(&self, taken: Taken) {
        *lock(&self.0) = taken;
    }

    pub(crate) fn get(&self) -> Taken {
        *lock(&self.0)
    }
}
