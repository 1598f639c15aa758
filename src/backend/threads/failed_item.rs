//! The failure of one item, on its way to the collector.

use std::ops::Range;

use crate::error::Error;

/// Why an item has no output.
#[derive(Debug)]
pub(crate) struct FailedItem {
    pub(crate) error: Error,
    pub(crate) disposition: Disposition,
    /// The number of stages of a pipeline that passed it on: 0 in the stage where it failed.
    pub(crate) passed_on: usize,
    /// The numbers of its failures in the report of the stage where it failed. Empty if it has none there yet.
    pub(crate) numbers: Range<u64>,
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
    /// As `AlreadyDone`; the first stage counts it.
    AlreadyDoneEarlier,
    /// The part did not fail: its parent has, so it was not worked on. The error is never read.
    Withdrawn,
    /// It is no part: all parts of a parent are before it. The error is never read.
    PartsEnd,
    /// It is no part: no more come until an open parent is gathered. So parts before `below`, which the
    /// oldest open parent waits for, need not wait for a batch to fill. `all` counts all indices up to this
    /// one. The error is never read.
    PartsPause { below: u64, all: u64 },
}

impl Disposition {
    /// Whether it stands for no item, and holds no permit.
    pub(crate) fn is_mark(self) -> bool {
        matches!(self, Disposition::PartsEnd | Disposition::PartsPause { .. })
    }

    pub(crate) fn ends_run(self) -> bool {
        matches!(self, Disposition::End | Disposition::EndEarlier)
    }

    pub(crate) fn is_already_done(self) -> bool {
        matches!(self, Disposition::AlreadyDone | Disposition::AlreadyDoneEarlier)
    }

    fn in_next_stage(self) -> Self {
        match self {
            Disposition::End | Disposition::EndEarlier => Disposition::EndEarlier,
            Disposition::Skip | Disposition::SkipEarlier => Disposition::SkipEarlier,
            Disposition::AlreadyDone | Disposition::AlreadyDoneEarlier => {
                Disposition::AlreadyDoneEarlier
            }
            Disposition::Withdrawn | Disposition::PartsEnd | Disposition::PartsPause { .. } => self,
        }
    }
}

impl FailedItem {
    pub(crate) fn ending(error: Error) -> Box<Self> {
        FailedItem::new(error, Disposition::End)
    }

    pub(crate) fn skipped(error: Error) -> Box<Self> {
        FailedItem::new(error, Disposition::Skip)
    }

    pub(crate) fn already_done() -> Box<Self> {
        FailedItem::without_error(Disposition::AlreadyDone)
    }

    /// For an index without a failure.
    pub(crate) fn without_error(disposition: Disposition) -> Box<Self> {
        FailedItem::new(Error::Cancelled {}, disposition)
    }

    fn new(error: Error, disposition: Disposition) -> Box<Self> {
        Box::new(FailedItem { error, disposition, passed_on: 0, numbers: 0..0 })
    }

    /// Sets the numbers of the failures in the report.
    pub(crate) fn numbered(mut self: Box<Self>, numbers: Range<u64>) -> Box<Self> {
        self.numbers = numbers;
        self
    }

    /// The failure as the next stage of a pipeline sees it.
    pub(crate) fn in_next_stage(self) -> Box<Self> {
        let disposition = self.disposition.in_next_stage();
        Box::new(FailedItem { disposition, passed_on: self.passed_on + 1, ..self })
    }

    /// The number of items that this stage counts as already done.
    pub(crate) fn done_items(&self) -> u64 {
        u64::from(self.disposition == Disposition::AlreadyDone)
    }

    /// The number of failed items that count for this stage.
    pub(crate) fn items(&self) -> u64 {
        match self.disposition {
            Disposition::End => self.error.failed_items(),
            Disposition::Skip => 1,
            Disposition::EndEarlier
            | Disposition::SkipEarlier
            | Disposition::AlreadyDone
            | Disposition::AlreadyDoneEarlier
            | Disposition::Withdrawn
            | Disposition::PartsEnd
            | Disposition::PartsPause { .. } => 0,
        }
    }
}
