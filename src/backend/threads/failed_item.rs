//! The failure of one item, on its way to the collector.

use crate::error::Error;

/// Why an item has no output.
#[derive(Debug)]
pub(crate) struct FailedItem {
    pub(crate) error: Error,
    pub(crate) disposition: Disposition,
}

/// How the run goes on after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It ends the run.
    End,
    /// It has ended the run in an earlier stage, which counts and reports it.
    EndEarlier,
    /// It is skipped.
    Skip,
    /// It was skipped in an earlier stage, which counts it.
    SkipEarlier,
    /// The item did not fail: an earlier run has done it. The error is never read.
    AlreadyDone,
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

    pub(crate) fn already_done() -> Box<Self> {
        Box::new(FailedItem { error: Error::Cancelled {}, disposition: Disposition::AlreadyDone })
    }

    /// The number of failed items that count for this stage.
    pub(crate) fn items(&self) -> u64 {
        match self.disposition {
            Disposition::End => self.error.failed_items(),
            Disposition::Skip => 1,
            Disposition::EndEarlier | Disposition::SkipEarlier | Disposition::AlreadyDone => 0,
        }
    }
}
