//! What the consumer has taken of a run.

use crate::concurrency::{Mutex, lock};
use crate::error::Error;

/// What became of the results that were taken out of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) ok: u64,
    /// How many failed and were left out.
    pub(crate) skipped: u64,
    /// How many an earlier run was done with.
    pub(crate) left_out: u64,
    /// What ended it.
    pub(crate) failure: Option<Failure>,
}

/// A failure that was met in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) seq: u64,
    /// How many items failed together.
    pub(crate) items: u64,
}

impl Failure {
    /// Of a run that ended with that error, which is not met in its turn.
    pub(crate) fn ending(taken: &Taken, error: &Error) -> Self {
        let seq = taken.items() + taken.left_out;
        Failure { seq, items: error.items().len() as u64 }
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

/// What the consumer has taken, for whoever does not wait until it says so.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Taken>);

impl Tally {
    pub(crate) fn set(&self, taken: Taken) {
        *lock(&self.0) = taken;
    }

    pub(crate) fn get(&self) -> Taken {
        *lock(&self.0)
    }
}
