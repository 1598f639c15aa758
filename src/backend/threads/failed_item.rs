//! The failure of one item, on its way to the collector.

use crate::error::Error;

/// Why an item has no output.
#[derive(Debug)]
pub(crate) struct FailedItem {
    pub(crate) error: Error,
    pub(crate) disposition: Disposition,
}

/// What comes of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
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

impl Disposition {
    pub(crate) fn ends_run(self) -> bool {
        matches!(self, Disposition::End | Disposition::EndEarlier)
    }
}

impl FailedItem {
    pub(crate) fn ending(error: Error) -> Box<Self> {
        Box::new(FailedItem { error, disposition: Disposition::End })
    }

    pub(crate) fn skipped(error: Error) -> Box<Self> {
        Box::new(FailedItem { error, disposition: Disposition::Skip })
    }

    pub(crate) fn left_out() -> Box<Self> {
        Box::new(FailedItem { error: Error::Cancelled {}, disposition: Disposition::LeftOut })
    }

    /// How many items of this stage it fails.
    pub(crate) fn items(&self) -> u64 {
        match self.disposition {
            Disposition::End => self.error.failed_items(),
            Disposition::Skip => 1,
            Disposition::EndEarlier | Disposition::SkipEarlier | Disposition::LeftOut => 0,
        }
    }
}
