//! How many items may still be given out, and what those that are out weigh.

#[derive(Debug)]
pub(super) struct Permits {
    pub(super) free: usize,
    /// What the items that are out weigh.
    pub(super) weight: u64,
    /// What the feeder sleeps for.
    pub(super) awaited: Option<Want>,
    pub(super) halted: bool,
}

/// What a feeder waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Permits {
        least: usize,
    },
    /// For an item of so much weight, where all that are out may have so much. One that has more goes
    /// alone: else it would never go.
    Room {
        weight: u64,
        most: u64,
    },
}

impl Permits {
    pub(super) fn has(&self, want: Want) -> bool {
        match want {
            Want::Permits { least } => self.free >= least,
            Want::Room { weight, most } => {
                self.weight == 0 || self.weight.checked_add(weight).is_some_and(|sum| sum <= most)
            }
        }
    }
}
