//! Decides which failed jobs are tried again, and on which slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::execute::list_failure::ListFailure;
use crate::locking::lock;
use crate::output::capture::Captured;
use crate::output::cut_off::CutOff;
use crate::output::outcome::{JobOutcome, NextAttempt};

/// The jobs of a lane that have failed and wait for another attempt. The library decides when to make it.
#[derive(Debug)]
pub(crate) struct JobRetries {
    /// The number of attempts after the first.
    most: u32,
    /// The failed jobs, by number.
    failed: Mutex<HashMap<u64, FailedJob>>,
    cut_off: Mutex<CutOff>,
}

#[derive(Debug)]
struct FailedJob {
    outcome: Arc<JobOutcome>,
    /// The number of warm workers that ended while they worked on the job.
    deaths: u32,
    /// The number of attempts that count.
    spent: u32,
    /// The slots that may try it again, until one does.
    waits_for: Option<RetrySlot>,
}

/// The slots that may make the next attempt at a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetrySlot {
    Only(usize),
    NotThat(usize),
}

/// After this number of workers has ended at a job, the job is at fault and not the workers.
pub(crate) const DEATHS_OF_ITEM: u32 = 3;

impl JobRetries {
    pub(crate) fn new(most: u32) -> JobRetries {
        JobRetries { most, failed: Mutex::default(), cut_off: Mutex::default() }
    }

    /// Whether the job has had an attempt.
    pub(crate) fn knows(&self, number: u64) -> bool {
        lock(&self.failed).contains_key(&number)
    }

    /// Whether a job waits for another attempt that this slot may make. Then the slot must not wait for the jobs to
    /// end: if every such slot did, the job would never end.
    pub(crate) fn are_waiting_for(&self, slot: usize) -> bool {
        lock(&self.failed).values().any(|failed| match failed.waits_for {
            Some(RetrySlot::Only(only)) => only == slot,
            Some(RetrySlot::NotThat(other)) => other != slot,
            None => false,
        })
    }

    /// The number of the next attempt at a job. The library does not count the parts of a list.
    pub(crate) fn next_attempt(&self, number: u64) -> u32 {
        lock(&self.failed).get_mut(&number).map_or(1, |failed| {
            failed.waits_for = None;
            failed.spent + 1
        })
    }

    /// A job is to be tried again in a smaller list. That it was not alone does not count against it, so it has failed
    /// only when it was.
    pub(crate) fn leave(&self, outcome: JobOutcome, whole: ListFailure) {
        let spent = outcome.attempts - u32::from(whole != ListFailure::Died);
        note(&mut lock(&self.failed), &Arc::new(outcome), spent);
    }

    /// Decides what follows an attempt that failed, in a run that goes on.
    pub(crate) fn after(&self, slot: usize, outcome: &Arc<JobOutcome>) -> NextAttempt {
        let JobOutcome { attempts, result, .. } = &**outcome;
        if result.is_final() {
            return NextAttempt::Nothing;
        }
        let mut failed = lock(&self.failed);
        let job = note(&mut failed, outcome, *attempts);
        let is_allowed = *attempts <= self.most;
        let (next, waits_for) = match result.blames_worker() {
            true if is_allowed || job.deaths < DEATHS_OF_ITEM => {
                (NextAttempt::OnAnotherSlot, RetrySlot::NotThat(slot))
            }
            false if is_allowed => (NextAttempt::OnItsSlot, RetrySlot::Only(slot)),
            _ => return NextAttempt::Nothing,
        };
        job.waits_for = Some(waits_for);
        next
    }

    /// Forgets a job, since its last attempt has ended.
    pub(crate) fn forget(&self, number: u64) {
        lock(&self.failed).remove(&number);
    }

    /// Makes no further attempt at a job, since the run is ending. Returns the outcome of the last attempt.
    pub(crate) fn cut_off(&self, number: u64) -> Arc<JobOutcome> {
        let failed = lock(&self.failed).remove(&number);
        let outcome = failed.expect("a job that is tried again has failed").outcome;
        lock(&self.cut_off).insert(number, outcome.attempts);
        outcome
    }

    /// A job that was taken when the run was ending has had no attempt.
    pub(crate) fn never_started(&self, number: u64) {
        lock(&self.cut_off).insert(number, 0);
    }

    /// Takes the jobs that were cut off.
    pub(crate) fn take_cut_off(&self) -> CutOff {
        std::mem::take(&mut *lock(&self.cut_off))
    }

    /// Takes the output that earlier attempts at a job could not print before its turn.
    pub(crate) fn take_unshown(&self, number: u64) -> [Captured; 2] {
        let failed = lock(&self.failed);
        failed.get(&number).map_or_else(Default::default, |failed| {
            let mut printed = failed.outcome.printed.lock();
            std::mem::take(
                &mut printed.as_mut().expect("nothing panics with the lock held").unshown,
            )
        })
    }
}

/// Notes an attempt that failed.
fn note<'a>(
    failed: &'a mut HashMap<u64, FailedJob>,
    outcome: &Arc<JobOutcome>,
    spent: u32,
) -> &'a mut FailedJob {
    let before = failed.get(&outcome.number).map_or(0, |failed| failed.deaths);
    let deaths = before + u32::from(outcome.result.blames_worker());
    let outcome = Arc::clone(outcome);
    let noted = FailedJob { deaths, spent, waits_for: None, outcome };
    failed.entry(noted.outcome.number).insert_entry(noted).into_mut()
}
