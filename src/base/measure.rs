//! What is measured of items.

use std::fmt;

/// What is measured of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Measure {
    /// What it adds to a batch: [`Builder::max_batch_cost`](crate::Builder::max_batch_cost).
    Cost,
    /// What the items of a batch are padded to: [`Builder::max_padded_size`](crate::Builder::max_padded_size).
    Padded,
    /// What it adds to the window: [`Builder::window_weight`](crate::Builder::window_weight).
    Weight,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::Cost => "cost",
            Measure::Padded => "padded size",
            Measure::Weight => "weight",
        })
    }
}
