//! What items are known by from one run to the next.

use std::sync::Arc;

/// What an item is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Its place in the input.
    Position(u64),
    /// The same, with a hash of what it is.
    HashedPosition { position: u64, hash: u64 },
    /// Its name; of several with one name the first has the occurrence 1.
    Name { name: Arc<str>, occurrence: u32 },
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The consumer has consumed it.
    Done,
    /// It failed for good, and was skipped.
    Failed,
}

/// One item that a run is done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) outcome: Outcome,
}
