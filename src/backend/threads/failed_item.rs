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
    /// The same, in an earlier stage, where it is accounted and told.
    EndEarlier,
    /// Its item is left out.
    Skip,
    /// The same, in an earlier stage, where it is accounted.
    SkipEarlier,
    /// Its item did not fail: an earlier run was done with it. Nobody looks at the error.
    LeftOut,
}

impl Fate {
    pub(crate) fn ends_run(self) -> bool {
        matches!(self, Fate::End | Fate::EndEarlier)
    }
}

impl Fault {
    pub(crate) fn ending(error: Error) -> Box<Self> {
        Box::new(Fault { error, fate: Fate::End })
    }

    pub(crate) fn skipped(error: Error) -> Box<Self> {
        Box::new(Fault { error, fate: Fate::Skip })
    }

    pub(crate) fn left_out() -> Box<Self> {
        Box::new(Fault { error: Error::Cancelled {}, fate: Fate::LeftOut })
    }

    /// How many items of this stage it fails.
    pub(crate) fn items(&self) -> u64 {
        match self.fate {
            Fate::End => self.error.failed_items(),
            Fate::Skip => 1,
            Fate::EndEarlier | Fate::SkipEarlier | Fate::LeftOut => 0,
        }
    }
}
