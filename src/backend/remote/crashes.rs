//! Counts the processes that ended while they worked on one item.

use std::collections::BTreeMap;

use crate::concurrency::{Mutex, lock};

/// An item that has ended this number of processes is not tried again, whatever the number of retries.
pub(crate) const POISON: u32 = 3;

/// The items of a run that have ended processes and may be tried again.
#[derive(Debug, Default)]
pub(crate) struct Crashes(Mutex<BTreeMap<u64, u32>>);

impl Crashes {
    /// Counts a process that ended while it worked on this item alone. Returns their number.
    pub(crate) fn note(&self, item: u64) -> u32 {
        let mut counts = lock(&self.0);
        let count = counts.entry(item).or_insert(0);
        *count += 1;
        *count
    }

    /// Forgets an item that is not tried again.
    pub(crate) fn forget(&self, item: u64) {
        lock(&self.0).remove(&item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_counts_for_itself() {
        let crashes = Crashes::default();
        assert_eq!([3, 3, 4, 3].map(|item| crashes.note(item)), [1, 2, 1, 3]);
        crashes.forget(3);
        assert_eq!(crashes.note(3), 1);
    }
}
