//! An input that is read only when a job is wanted.

use std::sync::Arc;

use crate::plan::gate::Gate;
use crate::plan::input_error::InputError;
use crate::plan::job::Job;
use crate::plan::jobs::Jobs;

/// The jobs of a lane, until its gate closes.
pub(crate) struct Gated {
    jobs: Jobs,
    gate: Arc<Gate>,
}

impl Gated {
    pub(crate) fn new(jobs: Jobs, gate: Arc<Gate>) -> Gated {
        Gated { jobs, gate }
    }
}

impl Iterator for Gated {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let turn = self.gate.next_turn()?;
        match self.jobs.next()? {
            Ok(job) => Some(Ok(Job { turn: Some(turn), ..job })),
            // A read error ends the run, and outputs without an order are dropped. A run that is ending
            // ignores the error: its input was cut off in the middle.
            Err(error) => self.gate.drain().then_some(Err(error)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.jobs.size_hint()
    }
}
