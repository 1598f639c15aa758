//! The identity of items, from one run to the next.

use std::sync::Arc;

/// The identity of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JournalKey {
    /// Its position in the input.
    Position(u64),
    /// Its position, with a hash of the item.
    HashedPosition { position: u64, hash: u64 },
    /// Its name; the first of several items with one name has the occurrence 1.
    Name { name: Arc<str>, occurrence: u32 },
}

/// The outcome of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalOutcome {
    /// The consumer has consumed it.
    Done,
    /// It failed for good, and was skipped.
    Failed,
}

/// An item with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalRecord {
    pub(crate) key: JournalKey,
    pub(crate) outcome: JournalOutcome,
}
