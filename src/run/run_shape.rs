//! The parameters of a run.

use std::sync::Arc;

use gangline_scheduler::batch::{Batching, DeviceBatches};

use crate::base::Order;
use crate::concurrency::driver_bell::DriverBell;
use crate::runner::RunControl;

/// The parameters of a run that do not depend on its item types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunShape {
    pub(crate) order: Order,
    pub(crate) producers: usize,
    /// The initial window.
    pub(crate) window: usize,
    pub(crate) batching: Option<Batching>,
    pub(crate) kind: RunKind,
}

/// The place of a run in a line of stages.
#[derive(Default)]
pub(crate) struct InLine {
    /// The number of its stage, from 0.
    pub(crate) stage: usize,
    /// Whether a stage before it passes items on in another order, so that their indices are not those of the input.
    pub(crate) is_reordered: bool,
    /// The previous stage, which works for this run only. `None` in the first.
    pub(crate) upstream: Option<Arc<dyn RunControl>>,
    /// Wakes the driver of the whole line.
    pub(crate) driver: Arc<DriverBell>,
}

impl InLine {
    /// The number of the stage in which an item failed that this many stages have passed on, from 1.
    pub(crate) fn failed_stage(&self, passed_on: usize) -> usize {
        (self.stage + 1).saturating_sub(passed_on)
    }
}

/// Where the items of a run come from, and where their results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RunKind {
    /// From one input to one consumer. A failure may end the run.
    #[default]
    Stream,
    /// From one input to one consumer, with a task as the collector.
    Task,
    /// From calls; each result goes back to its caller, and so does each failure.
    Service,
}

/// When producers rebuild the states that panics have cost them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    /// Before the run begins. A failure keeps it from beginning.
    Before,
    /// While the run goes on, since the thread that begins it must not block. A failure ends the run.
    Later,
}

impl Rebuilt {
    /// Whether a run waits for producers, if this many have lost their states.
    pub(crate) fn awaits(self, stateless: usize) -> bool {
        self == Rebuilt::Before && stateless > 0
    }
}

/// What the pool carries over from earlier runs.
#[derive(Debug)]
pub(crate) struct CarriedOver {
    /// What was learned about the batches of each producer's device.
    pub(crate) learned: Vec<DeviceBatches>,
    /// The producers that take no part in this run.
    pub(crate) lost: Vec<usize>,
    /// The producers that are still in a hook of an earlier run. They join when it returns.
    pub(crate) away: Vec<usize>,
    /// The producers that replace others and have no state yet. They join when they have one.
    pub(crate) starting: Vec<usize>,
}

impl CarriedOver {
    /// For producers without an earlier run.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn nothing(producers: usize) -> Self {
        let learned = vec![DeviceBatches::default(); producers];
        CarriedOver { learned, lost: vec![], away: vec![], starting: vec![] }
    }
}
