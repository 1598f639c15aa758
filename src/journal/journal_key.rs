//! The identity of items, from one run to the next.

use std::collections::HashMap;
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

/// The number of items of each name so far in a run.
///
/// It holds every name, so its memory grows with the input.
#[derive(Debug, Default)]
pub(crate) struct JournalNames {
    seen: HashMap<Box<str>, u32>,
}

impl JournalNames {
    /// Returns the occurrence of this name, from 1.
    ///
    /// # Panics
    ///
    /// At the 2^32nd item of one name.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        // Not `entry`, which would copy a name that is present.
        match self.seen.get_mut(name) {
            Some(seen) => {
                *seen = seen.checked_add(1).expect("fewer than 2^32 items have one name");
                *seen
            }
            None => {
                self.seen.insert(name.into(), 1);
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_again_has_the_next_number() {
        let mut names = JournalNames::default();
        let numbers = ["a", "b", "a", "", "a", ""].map(|name| names.number(name));
        assert_eq!(numbers, [1, 1, 2, 1, 3, 2]);
    }
}
