//! Why an index of a run has no output, on its way to the collector.

use std::ops::Range;

use crate::error::Error;

/// Why the last stage of a line, and one that is expanded, have no [`Withdrawn`](NoOutput::Withdrawn) and no
/// [`Mark`](NoOutput::Mark).
pub(crate) const NO_PARTS: &str =
    "parts are gathered before a run ends and before they are expanded";

/// Why an index has no output.
#[derive(Debug)]
pub(crate) enum NoOutput {
    /// The item failed.
    Failed(FailedItem),
    /// An earlier run has done the item.
    Done { counted_by: CountingStage },
    /// The part was not worked on, since its parent has failed.
    Withdrawn,
    /// The index stands for no item, and holds no permit.
    Mark(PartMark),
}

/// An item that failed.
#[derive(Debug)]
pub(crate) struct FailedItem {
    pub(crate) error: Error,
    pub(crate) effect: Effect,
    /// The number of stages of a pipeline that passed it on: 0 in the stage where it failed.
    pub(crate) passed_on: usize,
    /// The numbers of its failures in the report of the stage where it failed. Empty if it has none there yet.
    pub(crate) numbers: Range<u64>,
}

/// How the run goes on after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The failure ends the run.
    Ends,
    /// The item is skipped.
    Skipped,
}

/// The stage that counts an item that an earlier run has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountingStage {
    This,
    /// The first.
    Earlier,
}

/// A mark among parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartMark {
    /// All parts of a parent are before it.
    End,
    /// No more parts come until an open parent is gathered. So parts before `below`, which the oldest open parent
    /// waits for, need not wait for a batch to fill. `all` counts all indices up to this one.
    Pause { below: u64, all: u64 },
}

impl NoOutput {
    /// An item whose failure ends the run.
    pub(crate) fn ending(error: Error) -> Box<Self> {
        NoOutput::failed(error, Effect::Ends)
    }

    /// An item that failed and is skipped.
    pub(crate) fn skipped(error: Error) -> Box<Self> {
        NoOutput::failed(error, Effect::Skipped)
    }

    fn failed(error: Error, effect: Effect) -> Box<Self> {
        Box::new(NoOutput::Failed(FailedItem::new(error, effect)))
    }

    /// An item that an earlier run has done, in the first stage.
    pub(crate) fn done() -> Box<Self> {
        Box::new(NoOutput::Done { counted_by: CountingStage::This })
    }

    /// Sets the numbers of the failures in the report.
    pub(crate) fn numbered(mut self: Box<Self>, numbers: Range<u64>) -> Box<Self> {
        if let NoOutput::Failed(failed) = &mut *self {
            failed.numbers = numbers;
        }
        self
    }

    pub(crate) fn ends_run(&self) -> bool {
        matches!(self, NoOutput::Failed(FailedItem { effect: Effect::Ends, .. }))
    }

    /// What the next stage of a pipeline gets in its place.
    pub(crate) fn in_next_stage(self) -> Box<Self> {
        Box::new(match self {
            NoOutput::Failed(failed) => NoOutput::Failed(failed.in_next_stage()),
            NoOutput::Done { .. } => NoOutput::Done { counted_by: CountingStage::Earlier },
            NoOutput::Withdrawn | NoOutput::Mark(_) => self,
        })
    }
}

impl FailedItem {
    /// One whose failure ends the run.
    pub(crate) fn ending(error: Error) -> Self {
        FailedItem::new(error, Effect::Ends)
    }

    fn new(error: Error, effect: Effect) -> Self {
        FailedItem { error, effect, passed_on: 0, numbers: 0..0 }
    }

    /// Whether it failed in this stage, which counts and reports it.
    pub(crate) fn is_own(&self) -> bool {
        self.passed_on == 0
    }

    /// The failure as the next stage of a pipeline sees it.
    pub(crate) fn in_next_stage(self) -> Self {
        FailedItem { passed_on: self.passed_on + 1, ..self }
    }

    /// The number of failed items that count for this stage.
    pub(crate) fn items(&self) -> u64 {
        match self.effect {
            _ if !self.is_own() => 0,
            Effect::Ends => self.error.failed_items(),
            Effect::Skipped => 1,
        }
    }
}
