//! Items that wait to be tried again.

use std::collections::BTreeMap;
use std::time::Instant;

/// Items that failed and wait for another attempt, by their index.
#[derive(Debug)]
pub(crate) struct Retries<I> {
    waiting: BTreeMap<u64, Retry<I>>,
}

/// An item that waits for another attempt.
#[derive(Debug)]
pub(crate) struct Retry<I> {
    pub(crate) input: I,
    /// Which attempt the next one is.
    pub(crate) attempt: u32,
    /// Not before this.
    pub(crate) due: Instant,
    /// The producer that failed it.
    pub(crate) failed_on: usize,
}

/// What there is for a producer to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The item with this index.
    Now(u64),
    /// Something, but not before this.
    At(Instant),
    Nothing,
}

impl<I> Retries<I> {
    pub(crate) fn new() -> Self {
        Retries { waiting: BTreeMap::new() }
    }

    pub(crate) fn put(&mut self, seq: u64, retry: Retry<I>) {
        self.waiting.insert(seq, retry);
    }

    /// What `worker` may try again: of what is due the first in order. An item goes to another producer
    /// than the one that failed it, unless there is no other.
    pub(crate) fn turn(&self, worker: usize, is_alone: bool, now: Instant) -> Turn {
        let mut next = Turn::Nothing;
        for (&seq, retry) in &self.waiting {
            if retry.failed_on == worker && !is_alone {
                continue;
            }
            if retry.due <= now {
                return Turn::Now(seq);
            }
            next = match next {
                Turn::At(due) if due <= retry.due => next,
                _ => Turn::At(retry.due),
            };
        }
        next
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take(&mut self, seq: u64) -> Retry<I> {
        self.waiting.remove(&seq).expect("what has its turn is here")
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = I> {
        std::mem::take(&mut self.waiting).into_values().map(|retry| retry.input)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn retry(due: Instant, failed_on: usize) -> Retry<()> {
        Retry { input: (), attempt: 2, due, failed_on }
    }

    #[test]
    fn the_first_in_order_of_what_is_due_goes_to_another_producer() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut retries = Retries::new();
        assert_eq!(retries.turn(0, false, now), Turn::Nothing);
        retries.put(7, retry(now, 1));
        retries.put(3, retry(later, 1));
        retries.put(5, retry(now, 0));
        assert_eq!(retries.turn(2, false, now), Turn::Now(5));
        assert_eq!(retries.turn(0, false, now), Turn::Now(7));
        assert_eq!(retries.turn(0, false, later), Turn::Now(3));
        retries.take(7);
        assert_eq!(retries.turn(0, false, now), Turn::At(later));
        assert_eq!(retries.turn(1, false, now), Turn::Now(5));
        retries.take(5);
        assert_eq!(retries.turn(1, false, now), Turn::Nothing, "it failed there");
        assert_eq!(retries.turn(1, true, later), Turn::Now(3), "there is no other");
    }
}
