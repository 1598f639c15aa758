//! Counts the processes that ended while they worked on one item.

use std::collections::BTreeMap;

use crate::concurrency::{Mutex, lock};

/// An item that has ended this number of processes is not tried again, whatever the number of retries.
const POISON: u32 = 3;

/// The items of a run that have ended processes and may be tried again.
#[derive(Debug, Default)]
pub(crate) struct Crashes(Mutex<BTreeMap<u64, u32>>);

impl Crashes {
    /// Counts a process that ended while it worked on this item alone. Returns whether the item has ended too many to be
    /// tried again.
    pub(crate) fn is_poison(&self, item: u64) -> bool {
        let mut counts = lock(&self.0);
        let count = counts.entry(item).or_insert(0);
        *count += 1;
        let is_poison = *count >= POISON;
        if is_poison {
            counts.remove(&item);
        }
        is_poison
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
        let are_poison = |items: [u64; 4]| items.map(|item| crashes.is_poison(item));
        assert_eq!(are_poison([3, 3, 4, 3]), [false, false, false, true]);
        assert_eq!(are_poison([3, 3, 4, 4]), [false, false, false, true]);
        crashes.forget(3);
        assert_eq!(are_poison([3, 3, 5, 5]), [false; 4]);
    }
}
