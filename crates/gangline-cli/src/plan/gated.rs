//! An input that is read only when a job is wanted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::plan::gate::Gate;
use crate::plan::input_error::InputError;
use crate::plan::job::Job;
use crate::plan::jobs::Jobs;

/// The jobs of a lane, until its gate closes.
pub(crate) struct Gated {
    jobs: Jobs,
    gate: Arc<Gate>,
    equals: Option<Equals>,
}

/// Counts equal jobs.
#[derive(Default)]
struct Equals {
    hasher: RandomState,
    /// By the hash of their content: 16 bytes for each.
    counts: HashMap<u64, u64>,
}

impl Gated {
    pub(crate) fn new(jobs: Jobs, gate: Arc<Gate>) -> Gated {
        Gated { jobs, gate, equals: None }
    }

    /// Gives each job its number among those with the same content.
    pub(crate) fn counting_equals(self) -> Gated {
        Gated { equals: Some(Equals::default()), ..self }
    }
}

impl Iterator for Gated {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A full set of slots is not the input's fault.
        let turn = gangline::input::waiting(|| self.gate.next_turn())?;
        match self.jobs.next() {
            None => {
                self.gate.exhaust();
                None
            }
            Some(Ok(job)) => {
                turn.belongs_to(job.number);
                if let Some(Equals { hasher, counts }) = &mut self.equals {
                    let count = counts.entry(hasher.hash_one(job.key())).or_default();
                    turn.occurrence.get_or_init(|| *count);
                    *count += 1;
                }
                Some(Ok(Job { turn: Some(turn), ..job }))
            }
            // A read error ends the run, and outputs without an order are dropped. A run that is ending
            // ignores the error: its input was cut off in the middle.
            Some(Err(error)) => self.gate.drain().then_some(Err(error)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.jobs.size_hint()
    }
}
