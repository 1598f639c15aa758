//! A producer to be started in the place of a lost one.

use std::sync::Arc;

use crate::backend::threads::participants::Participants;
use crate::backend::threads::run::Run;
use crate::runner::Runner;

/// A producer to be started in the place of one that a run has lost.
pub(crate) struct Replacement<R: Runner> {
    pub(crate) run: Arc<Run<R>>,
    pub(crate) participants: Arc<Participants>,
    /// The lane of the lost producer.
    pub(crate) lost: usize,
    /// The lane of the new one.
    pub(crate) lane: usize,
}

impl<R: Runner> Replacement<R> {
    /// The replacement of this producer, once. `None` if it is not lost, or if the run needs no other.
    pub(crate) fn of(
        run: &Arc<Run<R>>,
        participants: &Arc<Participants>,
        lost: usize,
    ) -> Option<Self> {
        let lane = run.handover.dispatch.take_replacement(lost)?;
        Some(Replacement { run: run.clone(), participants: participants.clone(), lost, lane })
    }
}

/// Starts a producer in the place of a lost one.
pub(crate) type Replace<R> = Box<dyn Fn(Replacement<R>) + Send>;
