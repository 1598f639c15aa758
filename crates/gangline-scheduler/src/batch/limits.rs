//! The limits of a batch, and the sizes that they apply to.

/// The size of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What it adds to a batch.
    pub cost: u64,
    /// The minimum size that all items of its batch are padded to.
    pub padded: u64,
}

/// The size of several items together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) items: u64,
    /// Wide enough for the sum of 2^64 costs.
    cost: u128,
    largest: u64,
}

/// The limits of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) items: u64,
    /// The sum of the costs.
    pub(crate) cost: Option<u64>,
    /// The largest size times the number of items.
    pub(crate) padded: Option<u64>,
}

impl Size {
    /// The size of an item that is not measured.
    pub const ONE: Size = Size { cost: 1, padded: 1 };
}

impl Load {
    pub(crate) fn of(sizes: impl IntoIterator<Item = Size>) -> Self {
        sizes.into_iter().fold(Load::default(), Load::with)
    }

    /// This load with one more item.
    pub(crate) fn with(self, size: Size) -> Self {
        Load {
            items: self.items + 1,
            cost: self.cost + u128::from(size.cost),
            largest: self.largest.max(size.padded),
        }
    }

    /// This load with one item less. Another item of the largest size must remain.
    pub(crate) fn without(self, size: Size) -> Self {
        Load { items: self.items - 1, cost: self.cost - u128::from(size.cost), ..self }
    }

    /// The size that all items are padded to.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    fn padded(&self) -> u128 {
        u128::from(self.items) * u128::from(self.largest)
    }

    /// This load with one more item of no cost, no larger than the others.
    fn with_the_least(self) -> Self {
        self.with(Size { cost: 0, padded: 0 })
    }
}

impl Limits {
    /// Limits batches to `most` items.
    pub(crate) fn items(most: usize) -> Self {
        Limits { items: most as u64, cost: None, padded: None }
    }

    pub(crate) fn allow(&self, load: Load) -> bool {
        load.items <= self.items
            && self.cost.is_none_or(|most| load.cost <= most.into())
            && self.padded.is_none_or(|most| load.padded() <= most.into())
    }

    /// Whether batches are limited by more than their number of items.
    pub(crate) fn has_measures(&self) -> bool {
        self.cost.is_some() || self.padded.is_some()
    }

    /// Whether only items without cost could still fit.
    pub(crate) fn are_reached_by(&self, load: Load) -> bool {
        let is_spent = self.cost.is_some_and(|most| load.cost >= most.into());
        is_spent || !self.allow(load.with_the_least())
    }

    /// Whether the load exceeds only the limit of the cost.
    pub(crate) fn refuse_for_cost(&self, load: Load) -> bool {
        !self.allow(load) && Limits { cost: None, ..*self }.allow(load)
    }

    /// The number that stands for the memory of a batch: its padded size if that is limited, else its cost if
    /// that is limited, else its number of items.
    pub(crate) fn extent(&self, load: Load) -> u64 {
        let extent = match *self {
            Limits { padded: Some(_), .. } => load.padded(),
            Limits { cost: Some(_), .. } => load.cost,
            Limits { .. } => load.items.into(),
        };
        u64::try_from(extent).unwrap_or(u64::MAX)
    }

    /// The largest [`extent`](Limits::extent).
    pub(crate) fn most_extent(&self) -> u64 {
        self.padded.or(self.cost).unwrap_or(self.items)
    }

    /// These limits, with no [`extent`](Limits::extent) above `ceiling`.
    pub(crate) fn below(self, ceiling: u64) -> Self {
        let lower = |most: u64| most.min(ceiling);
        match self {
            Limits { padded: Some(most), .. } => Limits { padded: Some(lower(most)), ..self },
            Limits { cost: Some(most), .. } => Limits { cost: Some(lower(most)), ..self },
            Limits { items, .. } => Limits { items: lower(items), ..self },
        }
    }

    /// The number of first items that fit into one batch, at least one, and their load.
    pub(crate) fn prefix(&self, sizes: impl IntoIterator<Item = Size>) -> (usize, Load) {
        let mut sizes = sizes.into_iter();
        let mut load = Load::of(sizes.next());
        for size in sizes {
            let more = load.with(size);
            if !self.allow(more) {
                break;
            }
            load = more;
        }
        (load.items as usize, load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes<const N: usize>(costs: [u64; N]) -> [Size; N] {
        costs.map(|cost| Size { cost, padded: cost })
    }

    #[test]
    fn each_limit_by_itself() {
        let any = Limits::items(4);
        assert_eq!(any.prefix([Size::ONE; 9]).0, 4);
        assert_eq!(Limits { cost: Some(10), ..any }.prefix(sizes([3, 3, 4, 1])).0, 3);
        assert_eq!(Limits { padded: Some(12), ..any }.prefix(sizes([3, 3, 4, 1])).0, 3);
        assert_eq!(Limits { padded: Some(11), ..any }.prefix(sizes([3, 3, 4, 1])).0, 2);
    }

    #[test]
    fn the_first_goes_even_if_it_is_too_large() {
        assert_eq!(Limits { cost: Some(2), ..Limits::items(4) }.prefix(sizes([3, 1])).0, 1);
    }

    #[test]
    fn limits_are_reached_when_not_even_the_smallest_fits() {
        let limits = Limits { items: 4, cost: Some(10), padded: Some(12) };
        let reached = |sizes: &[Size]| limits.are_reached_by(Load::of(sizes.iter().copied()));
        assert!(!reached(&sizes([3, 3, 3])));
        assert!(reached(&sizes([3, 3, 3, 0])), "items");
        assert!(reached(&sizes([5, 5])), "cost");
        assert!(reached(&sizes([6, 1])), "padded");
    }

    #[test]
    fn a_ceiling_lowers_what_is_limited() {
        let items = Limits::items(32);
        let cost = Limits { cost: Some(100), ..items };
        let padded = Limits { padded: Some(100), ..cost };
        let load = Load::of(sizes([3, 5]));
        assert_eq!([items, cost, padded].map(|limits| limits.extent(load)), [2, 8, 10]);
        assert_eq!(items.below(7), Limits { items: 7, ..items });
        assert_eq!(cost.below(7), Limits { cost: Some(7), ..cost });
        assert_eq!(padded.below(7), Limits { padded: Some(7), ..padded });
        assert_eq!(items.below(64), items);
    }

    #[test]
    fn sums_and_products_do_not_overflow() {
        let load = Load::of([Size { cost: u64::MAX, padded: u64::MAX }; 3]);
        assert!(!Limits { items: 9, cost: Some(9), padded: Some(9) }.allow(load));
    }
}
