//! The order in which running jobs may print their lines.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::locking::lock;

/// The jobs that were read and are not completely printed, by number. The first prints while it runs.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<BTreeMap<u64, Option<usize>>>);

impl Heads {
    /// A job was read. Jobs are added in the order of their numbers.
    pub(crate) fn add(&self, number: u64) {
        lock(&self.0).insert(number, None);
    }

    /// A job runs on this slot.
    pub(crate) fn starts(&self, number: u64, worker: usize) {
        if let Some(slot) = lock(&self.0).get_mut(&number) {
            *slot = Some(worker);
        }
    }

    pub(crate) fn is_first(&self, number: u64) -> bool {
        lock(&self.0).first_key_value().is_some_and(|(first, _)| *first == number)
    }

    /// The output of a job is complete, or will never come. Returns the slot of the job that is first now, if
    /// it runs.
    pub(crate) fn remove(&self, number: u64) -> Option<usize> {
        let mut jobs = lock(&self.0);
        jobs.remove(&number);
        jobs.first_key_value().and_then(|(_, worker)| *worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_is_first_when_the_one_before_is_complete() {
        let heads = Heads::default();
        heads.add(1);
        heads.add(2);
        heads.add(3);
        heads.starts(3, 7);
        assert!(heads.is_first(1) && !heads.is_first(2));
        assert_eq!(heads.remove(1), None, "the second does not run yet");
        assert!(heads.is_first(2));
        assert_eq!(heads.remove(2), Some(7));
    }
}
