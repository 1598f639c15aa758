//! The runner of a check: sends lists to a worker of `gangline run --warm`, and keeps the answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::execute::job_runner::{JobWork, Tried, Worked};
use crate::execute::lane::Lanes;
use crate::execute::list_failure::ListFailure;
use crate::execute::process::ProcessEnd;
use crate::execute::warm::{Loading, Warm, WorkerFacts};
use crate::locking::lock;
use crate::output::capture::Captured;
use crate::output::json_text;
use crate::output::outcome::{JobOutcome, JobResult, ShownOnTerminal};
use crate::output::record;
use crate::plan::job::Job;
use gangline::{ProducerContext, Result, Work};

/// Sends lists to the worker of one slot. An answer is an output even if it is a failure, so no sample is tried again.
pub(super) struct ListRunner {
    pub(super) warm: Warm,
    pub(super) lanes: Lanes,
    pub(super) log: Arc<ListLog>,
    /// The last job whose standard error is shown. By then each sample has been asked once.
    pub(super) last_shown: u64,
}

/// The answer of a worker to a sample.
#[derive(Debug, Clone)]
pub(super) struct Replied {
    pub(super) answer: Result<Value, String>,
    /// The time from the sending of its list to this answer.
    pub(super) took: Duration,
}

/// The observations of the runner since the log was last taken.
#[derive(Debug, Default)]
pub(super) struct ListLog(Mutex<Seen>);

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) lists: Vec<SentList>,
    /// The deaths of the worker: the number of the first job in hand, the number of jobs in hand, and the reason.
    pub(super) deaths: Vec<(u64, usize, String)>,
    /// What the worker has said about itself, after the last list.
    pub(super) worker: WorkerFacts,
}

/// A list that was sent, and why it failed as a whole.
#[derive(Debug)]
pub(super) struct SentList {
    pub(super) size: usize,
    pub(super) failed: Option<(ListFailure, String)>,
}

impl ListLog {
    /// Takes the observations.
    pub(super) fn take(&self) -> Seen {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Work for ListRunner {
    type Input = Job;
    type Output = Replied;
    type ProducerState = Loading;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Loading> {
        Ok(self.warm.begin(0))
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        state: &mut Loading,
        job: Job,
    ) -> Result<Replied> {
        self.send(state, &[job]).remove(0)
    }

    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        state: &mut Loading,
        list: &mut Vec<Job>,
    ) -> Result<Vec<Result<Replied>>> {
        Ok(self.send(state, list))
    }

    fn producer_end(&self, _: &ProducerContext<'_>, state: Loading) -> Result<()> {
        self.warm.end(0, state);
        Ok(())
    }
}

impl ListRunner {
    /// Sends samples. Those that are left of a list come again in smaller ones.
    fn send(&self, state: &mut Loading, list: &[Job]) -> Vec<Result<Replied>> {
        let tried: Vec<_> = list.iter().map(|job| Tried { job, attempt: 1 }).collect();
        let mut failed = None;
        let mut death: Option<(u64, usize, String)> = None;
        let replied = self.warm.work(0, state, &tried).into_iter().map(|worked| {
            let (outcome, whole) = match worked {
                Worked::Ended(outcome) => (outcome, None),
                Worked::Left(outcome, whole) => (outcome, Some(whole)),
            };
            if has_died(&outcome.result) {
                let death =
                    death.get_or_insert_with(|| (outcome.number, 0, outcome.result.to_string()));
                death.1 += 1;
            }
            self.show_said(&outcome);
            let Some(whole) = whole else { return Ok(replied(&outcome)) };
            failed.get_or_insert((whole, outcome.result.error().unwrap_or_default()));
            Err(whole.error(&outcome.result))
        });
        let replied = replied.collect();
        let mut seen = lock(&self.log.0);
        seen.worker = self.warm.facts(0);
        seen.deaths.extend(death);
        seen.lists.push(SentList { size: list.len(), failed });
        replied
    }

    /// Prints the standard error of a worker at the first attempt at a sample, and at its death.
    fn show_said(&self, outcome: &JobOutcome) {
        if outcome.number > self.last_shown && !has_died(&outcome.result) {
            return;
        }
        let terminal = &self.lanes.shared.terminal;
        let said = lock(&outcome.printed);
        if said.stderr_on_terminal == ShownOnTerminal::Already {
            return;
        }
        if let Err(error) = terminal.write_captured(None, &Captured::default(), &said.stderr) {
            self.lanes.shared.fail_output("the messages of workers cannot be written", error);
        }
    }
}

fn has_died(result: &JobResult) -> bool {
    result.blames_worker() || matches!(result, JobResult::Ended(ProcessEnd::TimedOut(_)))
}

fn replied(outcome: &JobOutcome) -> Replied {
    let answer = match outcome.result.error() {
        Some(error) => Err(error),
        None => record::output(&outcome.take_printed())
            .and_then(|output| Ok(json_text::value(output.get())?))
            .map_err(|error| error.to_string()),
    };
    Replied { answer, took: outcome.took }
}
