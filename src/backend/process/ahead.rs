//! How many items a child has at a time.

use std::time::Duration;

/// About the time of a message to a child and back. While an item takes less, the child mostly waits for the next.
const ROUND_TRIP: Duration = Duration::from_micros(50);

/// The number of items that a child has at most, which adapts to how long they take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    most: usize,
    now: usize,
}

impl Ahead {
    /// `most`: the number that is not exceeded.
    pub(super) fn new(most: usize) -> Self {
        Ahead { most, now: 1 }
    }

    /// The number of items that the child may have now, with the one in its hook.
    pub(super) fn number(self) -> usize {
        self.now
    }

    /// Notes how long the child was busy with an item.
    pub(super) fn note(&mut self, took: Duration) {
        if took < ROUND_TRIP {
            self.now = (2 * self.now).min(self.most);
        } else if took > 2 * ROUND_TRIP {
            self.now = (self.now / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_items_are_sent_ahead_and_long_ones_are_not() {
        let mut ahead = Ahead::new(5);
        assert_eq!(ahead.number(), 1);
        (0..2).for_each(|_| ahead.note(Duration::from_micros(2)));
        assert_eq!(ahead.number(), 4);
        (0..9).for_each(|_| ahead.note(Duration::from_micros(2)));
        assert_eq!(ahead.number(), 5, "as many as are allowed");
        ahead.note(Duration::from_micros(70));
        assert_eq!(ahead.number(), 5);
        (0..9).for_each(|_| ahead.note(Duration::from_millis(1)));
        assert_eq!(ahead.number(), 1);
    }
}
