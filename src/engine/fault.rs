//! The failure of one item, on its way to the collector.

use crate::error::Error;

/// Why an item has no output.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) fate: Fate,
}

/// What comes of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ends the run.
    End,
    /// Its item is left out.
    Skip,
    /// The same, in an earlier stage, where it is accounted.
    SkipEarlier,
}

impl Fault {
    pub(crate) fn ending(error: Error) -> Box<Self> {
        Box::new(Fault { error, fate: Fate::End })
    }

    pub(crate) fn skipped(error: Error) -> Box<Self> {
        Box::new(Fault { error, fate: Fate::Skip })
    }

    /// How many items of this stage it fails.
    pub(crate) fn items(&self) -> u64 {
        match self.fate {
            Fate::End => self.error.failed_items(),
            Fate::Skip => 1,
            Fate::SkipEarlier => 0,
        }
    }
}
