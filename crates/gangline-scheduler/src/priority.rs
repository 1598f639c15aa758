//! Which items go first, and what the background gets while others wait.

/// The number of largest batches that the background may be owed, or may have had before its time.
///
/// Gaps between calls often give it more than its share. If that were forgotten, the next burst of calls would wait for
/// it. Simulated with calls at random that take 85 % of 1, 2 and 4 producers, the 99th percentile of calls was 17, 9
/// and 5 batches above that of calls alone with 10, 2.0, 1.2 and 1.0 with 30, and at most 0.6 with 100. With 100 and a
/// tenth, calls that take all producers from now on can hold the background back for 900 batches.
const REMEMBERED: i64 = 100;
const ALL: i64 = 100;

/// Which of the items that wait are leased first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Before the background: a call, or an item of a run.
    #[default]
    Normal,
    /// In what is left: an item of a stream beside calls.
    Background,
}

/// How many of a hundred items are those of the background, while others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    percent: u8,
}

/// What the background has had, compared with its share.
#[derive(Debug)]
pub(super) struct ShareBalance {
    percent: i64,
    /// The largest number of items in a batch.
    largest: i64,
    /// In hundredths of an item: what it is owed if positive.
    balance: i64,
}

impl Share {
    /// The largest share, in percent.
    pub const MOST: u8 = 90;

    /// A share in percent, at most [`MOST`](Share::MOST).
    pub fn percent(percent: u8) -> Self {
        Share { percent: percent.min(Self::MOST) }
    }
}

/// One item in ten.
impl Default for Share {
    fn default() -> Self {
        Share { percent: 10 }
    }
}

impl ShareBalance {
    /// The balance for the default share. `largest`: the largest number of items in a batch.
    pub(super) fn new(largest: u64) -> Self {
        let largest = i64::try_from(largest).unwrap_or(i64::MAX);
        ShareBalance { percent: Share::default().percent.into(), largest, balance: 0 }
    }

    /// From now on, the background has another share.
    pub(super) fn set(&mut self, share: Share) {
        *self = ShareBalance { percent: share.percent.into(), balance: 0, ..*self };
    }

    /// The number of items that the background gets before others.
    pub(super) fn due(&self) -> u64 {
        u64::try_from(self.balance / (ALL - self.percent)).unwrap_or(0)
    }

    /// Notes that an item was leased while items of the background waited, or that it is one of them.
    pub(super) fn note(&mut self, priority: Priority) {
        let change = match priority {
            Priority::Normal => self.percent,
            Priority::Background => self.percent - ALL,
        };
        let most = self.largest.saturating_mul(REMEMBERED * (ALL - self.percent));
        self.balance = self.balance.saturating_add(change).clamp(-most, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases a number of items.
    fn note(balance: &mut ShareBalance, items: u32, priority: Priority) {
        (0..items).for_each(|_| balance.note(priority));
    }

    fn balance(percent: u8) -> ShareBalance {
        let mut balance = ShareBalance::new(1);
        balance.set(Share::percent(percent));
        balance
    }

    #[test]
    fn one_item_in_ten_is_due_after_nine_others() {
        let mut balance = ShareBalance::new(1);
        for _ in 0..3 {
            note(&mut balance, 8, Priority::Normal);
            assert_eq!(balance.due(), 0);
            note(&mut balance, 1, Priority::Normal);
            assert_eq!(balance.due(), 1);
            note(&mut balance, 1, Priority::Background);
        }
        assert_eq!(balance.due(), 0);
    }

    #[test]
    fn without_a_share_nothing_is_due_and_more_than_most_is_most() {
        let mut none = balance(0);
        note(&mut none, 1_000, Priority::Normal);
        assert_eq!(none.due(), 0);
        let mut most = balance(100);
        note(&mut most, 1, Priority::Normal);
        assert_eq!(most.due(), 9);
    }

    #[test]
    fn what_it_had_in_gaps_counts_and_is_forgotten_in_time() {
        let mut balance = balance(10);
        note(&mut balance, 1_000, Priority::Background);
        note(&mut balance, 900, Priority::Normal);
        assert_eq!(balance.due(), 0, "a hundred items were remembered");
        note(&mut balance, 9, Priority::Normal);
        assert_eq!(balance.due(), 1);
        note(&mut balance, 9_000, Priority::Normal);
        assert_eq!(balance.due(), 100, "no more than a hundred are owed");
    }
}
