//! An input that is read only when a job is wanted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::plan::gate::Gate;
use crate::plan::input_error::InputError;
use crate::plan::job::Job;
use crate::plan::jobs::Jobs;

/// The jobs of a lane, until its gate closes.
pub(crate) struct Gated {
    jobs: Jobs,
    gate: Arc<Gate>,
    equals: Option<Equals>,
    watching: Option<Watching>,
}

/// Learns which jobs were read, and which of them an earlier run had done.
pub(crate) trait Watch: Send + Sync {
    /// Notes that a job was read.
    fn read(&self, number: u64);

    /// Notes that an earlier run has done the job that was read last, which is the given one of those with the same
    /// content.
    fn left_out(&self, job: &Job, occurrence: u64);

    /// Whether there is room for another such job.
    fn has_room(&self) -> bool;
}

struct Watching {
    watch: Arc<dyn Watch>,
    last: Option<LastJob>,
}

/// The job that was read last.
struct LastJob {
    job: Job,
    /// The place of its turn.
    place: u64,
    occurrence: u64,
}

/// The longest wait for room. It only bounds the harm of a lost wake-up.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Counts equal jobs.
#[derive(Default)]
struct Equals {
    hasher: RandomState,
    /// By the hash of their content: 16 bytes for each.
    counts: HashMap<u64, u64>,
}

impl Gated {
    pub(crate) fn new(jobs: Jobs, gate: Arc<Gate>) -> Gated {
        Gated { jobs, gate, equals: None, watching: None }
    }

    /// Gives each job its number among those with the same content.
    pub(crate) fn counting_equals(self) -> Gated {
        Gated { equals: Some(Equals::default()), ..self }
    }

    /// Reports the jobs that are read to `watch`.
    pub(crate) fn watched_by(self, watch: Arc<dyn Watch>) -> Gated {
        Gated { watching: Some(Watching { watch, last: None }), ..self }
    }

    /// Reports the last job if an earlier run has done it, and then waits for room.
    fn look_at_last(&mut self) {
        let Some(Watching { watch, last }) = &mut self.watching else { return };
        let Some(LastJob { job, occurrence, .. }) =
            last.take_if(|last| self.gate.has_left_out(last.place))
        else {
            return;
        };
        watch.left_out(&job, occurrence);
        loop {
            let seen = self.gate.nudges();
            if watch.has_room() || !self.gate.rest_until_nudged(seen, LONGEST_WAIT) {
                break;
            }
        }
    }
}

impl Iterator for Gated {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A full set of slots is not the input's fault.
        let turn = gangline::input::waiting(|| {
            self.look_at_last();
            self.gate.next_turn()
        })?;
        match self.jobs.next() {
            None => {
                self.gate.exhaust();
                None
            }
            Some(Ok(job)) => {
                turn.belongs_to(job.number);
                let mut occurrence = 0;
                if let Some(Equals { hasher, counts }) = &mut self.equals {
                    let count = counts.entry(hasher.hash_one(job.key())).or_default();
                    occurrence = *turn.occurrence.get_or_init(|| *count);
                    *count += 1;
                }
                if let Some(Watching { watch, last }) = &mut self.watching {
                    watch.read(job.number);
                    *last = Some(LastJob { job: job.clone(), place: turn.place, occurrence });
                }
                // The job may end the run before the reader looks for the next.
                if self.jobs.size_hint().1 == Some(0) {
                    self.gate.exhaust();
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
