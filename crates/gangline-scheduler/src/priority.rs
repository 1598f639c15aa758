//! The priorities of items, and the share of the background while normal items wait.

/// The bound of the balance, in largest batches: what the background is owed, or has had beyond its share.
///
/// In gaps between calls, the background gets more than its share. If the balance forgot that, the next burst of calls
/// would wait for background items. In a simulation, calls at random took 85 % of the producers' time. The table says
/// by how many batches the 99th percentile of calls exceeded that of calls alone:
///
/// | bound | 1 producer | 2 producers | 4 producers |
/// |---|---|---|---|
/// | 10 | 17 | 9 | 5 |
/// | 30 | 2.0 | 1.2 | 1.0 |
/// | 100 | at most 0.6 | at most 0.6 | at most 0.6 |
///
/// A large bound also has a price. With 100 and a share of a tenth, calls that begin to take all producers can hold the
/// background back for 900 batches.
const REMEMBERED: i64 = 100;
/// One item, in the unit of the balance; also the whole of a share, in percent.
const ALL: i64 = 100;

/// The priority of an item that waits for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Goes first: a call of a service, or an item of a run.
    #[default]
    Normal,
    /// Goes if no normal item waits, or if the [`Share`] of the background is due: an item of a stream beside calls.
    Background,
}

/// The percentage of background items among those that are leased while normal items wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    percent: u8,
}

/// The difference between the share of the background and what it has had.
#[derive(Debug)]
pub(super) struct ShareBalance {
    percent: i64,
    /// The largest number of items in a batch.
    largest: i64,
    /// In hundredths of an item. A positive balance is owed to the background.
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
    /// Makes a balance for the default share. `largest` is the largest number of items in a batch.
    pub(super) fn new(largest: u64) -> Self {
        let largest = i64::try_from(largest).unwrap_or(i64::MAX);
        ShareBalance { percent: Share::default().percent.into(), largest, balance: 0 }
    }

    /// Sets the share, and begins a new balance.
    pub(super) fn set(&mut self, share: Share) {
        *self = ShareBalance { percent: share.percent.into(), balance: 0, ..*self };
    }

    /// The number of background items that go before normal ones.
    pub(super) fn due(&self) -> u64 {
        u64::try_from(self.balance / (ALL - self.percent)).unwrap_or(0)
    }

    /// Counts an item that was leased: one of the background, or a normal one while background items waited.
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
