//! Items that wait to be tried again.

use std::collections::BTreeMap;
use std::time::Instant;

use super::roster::{Fault, Roster};

/// Items that failed and wait for another attempt, by their index.
#[derive(Debug)]
pub(crate) struct Retries<I> {
    waiting: BTreeMap<u64, Retry<I>>,
}

/// An item that waits for another attempt.
#[derive(Debug)]
pub(crate) struct Retry<I> {
    pub(crate) input: I,
    /// Not before this.
    pub(crate) due: Instant,
    pub(crate) trial: Box<Trial>,
}

/// What is known of an item that is not tried for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trial {
    /// Which attempt this is.
    pub(crate) attempt: u32,
    /// The producers that are not to try it while there are others: those that failed it, of several
    /// attempts by the same one the last; where that is all that matters, the last alone.
    pub(crate) tried: Vec<usize>,
    /// Whose fault that was.
    pub(crate) fault: Fault,
}

/// Before an item is tried for the first time.
impl Default for Trial {
    fn default() -> Self {
        Trial { attempt: 1, tried: vec![], fault: Fault::Open }
    }
}

impl Trial {
    /// `producer` has failed it.
    pub(crate) fn note(&mut self, producer: usize) {
        self.tried.retain(|&other| other != producer);
        self.tried.push(producer);
    }

    /// The attempt after this one, on whoever is not `producer`.
    pub(crate) fn next(mut self: Box<Self>, producer: usize) -> Box<Self> {
        self.attempt = self.attempt.saturating_add(1);
        if self.fault == Fault::Item {
            self.tried.clear();
        }
        self.note(producer);
        self
    }
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

impl Turn {
    /// What comes first.
    pub(crate) fn or_before(self, other: Turn) -> Turn {
        match (self, other) {
            (Turn::Now(seq), _) | (_, Turn::Now(seq)) => Turn::Now(seq),
            (Turn::At(one), Turn::At(other)) => Turn::At(one.min(other)),
            (Turn::Nothing, turn) | (turn, Turn::Nothing) => turn,
        }
    }
}

impl<I> Retries<I> {
    pub(crate) fn new() -> Self {
        Retries { waiting: BTreeMap::new() }
    }

    /// What was there for that item before, which two producers may have been at.
    #[must_use]
    pub(crate) fn put(&mut self, seq: u64, retry: Retry<I>) -> Option<Retry<I>> {
        self.waiting.insert(seq, retry)
    }

    /// What `producer` may try again: of what is due the first in order. An item goes to another producer
    /// than those that failed it, unless there is no other.
    pub(crate) fn turn(&self, roster: &Roster, producer: usize, now: Instant) -> Turn {
        let mut next = Turn::Nothing;
        for (&seq, retry) in &self.waiting {
            let tried = &retry.trial.tried;
            if !roster.may_try(producer, tried) {
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

    fn retry(due: Instant, producer: usize) -> Retry<()> {
        Retry { input: (), due, trial: Box::<Trial>::default().next(producer) }
    }

    #[test]
    fn the_first_in_order_of_what_is_due_goes_to_another_producer() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut roster = Roster::new(3, None, []);
        let mut retries = Retries::new();
        assert_eq!(retries.turn(&roster, 0, now), Turn::Nothing);
        assert!(retries.put(7, retry(now, 1)).is_none());
        assert!(retries.put(3, retry(later, 1)).is_none());
        assert!(retries.put(5, retry(now, 0)).is_none());
        assert_eq!(retries.turn(&roster, 2, now), Turn::Now(5));
        assert_eq!(retries.turn(&roster, 0, now), Turn::Now(7));
        assert_eq!(retries.turn(&roster, 0, later), Turn::Now(3));
        retries.take(7);
        assert_eq!(retries.turn(&roster, 0, now), Turn::At(later));
        assert_eq!(retries.turn(&roster, 1, now), Turn::Now(5));
        retries.take(5);
        assert_eq!(retries.turn(&roster, 1, now), Turn::Nothing, "it failed there");
        roster.remove(0);
        roster.remove(2);
        assert_eq!(retries.turn(&roster, 1, later), Turn::Now(3), "there is no other");
    }

    #[test]
    fn an_item_that_is_to_blame_may_come_back_to_who_failed_it_before_the_last() {
        let open = Box::<Trial>::default().next(0).next(1).next(0);
        assert_eq!(*open, Trial { attempt: 4, tried: vec![1, 0], fault: Fault::Open });
        let blamed = Box::new(Trial { fault: Fault::Item, ..*open });
        assert_eq!(blamed.next(1).tried, [1]);
    }
}
