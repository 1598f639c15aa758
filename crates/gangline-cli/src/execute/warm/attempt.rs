//! Attempts at jobs, with the worker of a slot or with another.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;

use crate::error::CliError;
use crate::execute::commands;
use crate::execute::job_runner::{Tried, Worked};
use crate::execute::list_failure::ListFailure;
use crate::execute::process::ProcessEnd;
use crate::execute::protocol::MessageForm;
use crate::execute::retries::DEATHS_OF_ITEM;
use crate::execute::start_history::StartVerdict;
use crate::execute::warm::Warm;
use crate::execute::warm::asked::{Asked, Broken};
use crate::execute::warm::conversing::Message;
use crate::execute::worker_slots::{Fate, SlotWorker};
use crate::exit;
use crate::output::capture::Captured;
use crate::output::outcome::{JobOutcome, JobResult, Printed, ShownOnTerminal, short};
use crate::plain::Plain;
use crate::plan::rules::Announced;

/// What came of asking a worker.
enum Asking {
    /// At least one job has ended.
    Answered,
    /// The worker did not get ready.
    Unready(JobResult),
    /// It got ready, and left these jobs without an answer.
    Broken(Broken, Vec<usize>),
}

impl Warm {
    /// Makes an attempt at each job with the worker of a slot. If the worker does not get ready, or is given up, the
    /// jobs move to another worker if there is one. Such a move does not count as an attempt.
    pub(super) fn try_workers(&self, slot: usize, list: &[Tried<'_>]) -> Vec<Worked> {
        let mut asked: Vec<_> = list.iter().map(Asked::new).collect();
        let mut avoided = None;
        while asked.iter().any(Asked::is_open) {
            let Some((index, mut worker)) = self.workers.take(slot, avoided) else {
                self.end_open(slot, &mut asked, JobResult::NoWorkerLeft);
                break;
            };
            let asking = self.ask(index, &mut worker, &mut asked);
            let verdict = worker.verdict;
            let failed = match &asking {
                Asking::Answered => None,
                Asking::Unready(result) => {
                    asked.iter().find(|asked| asked.is_open()).zip(Some(result))
                }
                Asking::Broken(broken, left) => {
                    left.first().map(|at| (&asked[*at], &broken.result))
                }
            };
            let fate = match failed.filter(|_| self.is_to_be_given_up(&worker)) {
                Some((asked, result)) => self.give_up(index, verdict, asked, result),
                None => self.workers.give_back(index, worker),
            };
            match asking {
                Asking::Unready(result) | Asking::Broken(Broken { result, .. }, _)
                    if fate == Fate::GivenUp && result.blames_worker() => {}
                Asking::Answered => {}
                Asking::Broken(broken, left) => self.leave(index, &mut asked, broken, &left),
                Asking::Unready(result) => {
                    let may_go_on = result.blames_worker()
                        && self.lane.gate.pause(self.lanes.shared.rules.retry_delay);
                    if !may_go_on {
                        self.end_open(index, &mut asked, result);
                        continue;
                    }
                    if !verdict.is_told {
                        self.tell_of_move(index, &asked, &result);
                    }
                    avoided = Some(index);
                }
            }
        }
        let worked = asked.into_iter().map(|asked| asked.worked);
        worked.map(|worked| worked.expect("the loop ends when no job is open")).collect()
    }

    /// Asks a worker for the first job that is open, or for all if it takes lists.
    fn ask(&self, slot: usize, worker: &mut SlotWorker, asked: &mut [Asked<'_>]) -> Asking {
        let Some(first) = asked.iter().position(Asked::is_open) else { return Asking::Answered };
        let (started, clock) = (SystemTime::now(), Instant::now());
        let Some(input) = self.prepare(slot, &mut asked[first]) else { return Asking::Answered };
        let mut said = Captured::default();
        if let Err(result) = self.start(slot, worker, &asked[first].job.command, &mut said) {
            // A `load` that raises says the same at each start.
            if worker.verdict.is_told {
                asked[first].printed.stderr_on_terminal = ShownOnTerminal::Already;
            }
            asked[first].printed.stderr = said;
            (asked[first].started, asked[first].took) = (started, clock.elapsed());
            return Asking::Unready(self.fail_to_start(result));
        }
        let mut inputs = vec![(first, input)];
        if worker.takes == MessageForm::Lists {
            for (at, asked) in asked.iter_mut().enumerate().skip(first + 1) {
                if asked.is_open()
                    && let Some(input) = self.prepare(slot, asked)
                {
                    inputs.push((at, input));
                }
            }
            self.lane.lists.sent(inputs.len());
        }
        let sent: Vec<usize> = inputs.iter().map(|(at, _)| *at).collect();
        let message = Message { inputs, started, clock };
        let Err(broken) = self.converse(slot, worker, asked, message, &mut said) else {
            return Asking::Answered;
        };
        let mut left = sent;
        left.retain(|at| asked[*at].is_open());
        for at in &left {
            (asked[*at].started, asked[*at].took) = (started, clock.elapsed());
        }
        asked[left[0]].printed.stderr = said;
        Asking::Broken(broken, left)
    }

    /// Makes a job ready to be sent, and returns its input. If it cannot be sent, it has ended.
    fn prepare(&self, slot: usize, asked: &mut Asked<'_>) -> Option<Box<RawValue>> {
        let (job, shared) = (asked.job, &self.lanes.shared);
        if shared.rules.commands == Announced::Yes {
            commands::announce(shared, &self.typed(slot, &self.key(job)));
        }
        (asked.started, asked.took) = (SystemTime::now(), Duration::ZERO);
        asked.printed = Printed::default();
        let on_slot = self.on_slot(slot, job, asked.attempt);
        match self.lanes.place_results(&self.lane, job, on_slot) {
            Ok(results) => asked.results = results,
            Err(result) => {
                self.end_one(slot, asked, result);
                return None;
            }
        }
        let input = self.inputs.shape.value(&job.fields);
        if input.is_none() {
            let why = "the input is not UTF-8, which JSON requires";
            self.end_one(slot, asked, JobResult::Refused(why.into()));
        }
        input
    }

    /// Ends the jobs that a worker has left without an answer. Several are tried again in smaller lists.
    fn leave(&self, slot: usize, asked: &mut [Asked<'_>], broken: Broken, left: &[usize]) {
        let Broken { result, whole } = broken;
        let is_fault = matches!(
            result,
            JobResult::WorkerFailed(_)
                | JobResult::Refused(_)
                | JobResult::Ended(ProcessEnd::TimedOut(_))
        );
        // A single job that is left is the guilty one, unless the list was too large.
        let is_split = is_fault
            && match whole {
                ListFailure::OutOfMemory => asked.len() > 1,
                ListFailure::Died | ListFailure::Rejected => left.len() > 1,
            };
        let mut result = result;
        for at in left {
            let next = repeated(&result);
            let result = std::mem::replace(&mut result, next);
            let outcome = self.outcome(slot, &mut asked[*at], result);
            asked[*at].worked = Some(match is_split {
                true => Worked::Left(outcome, whole),
                false => Worked::Ended(outcome),
            });
        }
    }

    fn end_open(&self, slot: usize, asked: &mut [Asked<'_>], mut result: JobResult) {
        for asked in asked.iter_mut().filter(|asked| asked.is_open()) {
            let on_slot = self.on_slot(slot, asked.job, asked.attempt);
            let results = self.lanes.place_results(&self.lane, asked.job, on_slot);
            asked.results = results.ok().flatten();
            let next = repeated(&result);
            self.end_one(slot, asked, std::mem::replace(&mut result, next));
        }
    }

    pub(super) fn end_one(&self, slot: usize, asked: &mut Asked<'_>, result: JobResult) {
        asked.worked = Some(Worked::Ended(self.outcome(slot, asked, result)));
    }

    fn outcome(&self, slot: usize, asked: &mut Asked<'_>, result: JobResult) -> JobOutcome {
        let Asked { job, attempt, started, took, .. } = *asked;
        let on_slot = self.on_slot(slot, job, attempt);
        let key = self.key(job);
        JobOutcome {
            number: job.number,
            command: self.typed(slot, &key),
            key,
            fields: Arc::clone(&job.fields),
            attempts: attempt,
            host: None,
            slot: on_slot.worker,
            gpus: Arc::clone(&self.slots[slot].gpus),
            tag: self.lane.texts.tag(job, on_slot),
            results: asked.results.take(),
            result,
            started,
            took,
            printed: Mutex::new(std::mem::take(&mut asked.printed)),
            commit: Arc::default(),
        }
    }

    fn tell_of_move(&self, slot: usize, asked: &[Asked<'_>], result: &JobResult) {
        let Some(first) = asked.iter().find(|asked| asked.is_open()) else { return };
        let number = first.job.number;
        let command = self.typed(slot, &self.key(first.job));
        let command = short(&command);
        let text = format!("job {number} {result}, and is tried again: {command}");
        self.lanes.shared.terminal.tell_failure(&text);
    }

    pub(super) fn is_to_be_given_up(&self, worker: &SlotWorker) -> bool {
        let deaths = self.max_restarts.saturating_mul(DEATHS_OF_ITEM);
        worker.verdict.is_final || worker.unready > self.max_restarts || worker.deaths > deaths
    }

    /// The slot starts no worker any more. If no slot does, the run is over.
    fn give_up(
        &self,
        index: usize,
        verdict: StartVerdict,
        asked: &Asked<'_>,
        result: &JobResult,
    ) -> Fate {
        let said = match last_lines(&asked.printed.stderr).trim() {
            "" => String::new(),
            said => format!("; it said: {}", Plain(said)),
        };
        let job = asked.job.number;
        self.give_up_slot(index, verdict, result, &format!("job {job} {result}{said}"));
        Fate::GivenUp
    }

    /// Starts no worker on a slot any more. If another slot has shown that the command is no worker, a message has said so.
    pub(super) fn give_up_slot(
        &self,
        index: usize,
        verdict: StartVerdict,
        result: &JobResult,
        why: &str,
    ) {
        if !verdict.is_hopeless {
            let number = self.number(index);
            let text = match self.history.gives_up(&result.to_string()) {
                true => format!("slot {number} is given up: {why}"),
                false => format!("slot {number} is given up: the same"),
            };
            self.lanes.shared.terminal.tell(&text);
        }
        if self.workers.give_up(index) < self.least {
            let text = match self.least {
                1 => NONE_LEFT.to_owned(),
                least => format!("fewer than {least} workers are left that could be started"),
            };
            self.lanes.shared.fail(CliError::new(exit::DEVICES, text));
            self.lanes.close();
        }
    }

    /// Returns the result of jobs whose worker could not be started. If its program does not exist, the run ends.
    pub(super) fn fail_to_start(&self, result: JobResult) -> JobResult {
        match result {
            JobResult::NotStarted(error) => {
                self.lanes.shared.fail(CliError::new(exit::DEVICES, NONE_LEFT));
                self.lanes.end_without(self.inputs.command.program(), error)
            }
            result => result,
        }
    }
}

const NONE_LEFT: &str = "no worker is left that could be started";

/// The last lines that a worker said, in at most 200 bytes: whole ones, or the end of the last.
fn last_lines(said: &Captured) -> String {
    let tail = said.tail(200);
    let text = String::from_utf8_lossy(&tail);
    let is_cut = said.len() > tail.len() as u64;
    match text.trim_end().split_once('\n').filter(|_| is_cut) {
        Some((_, whole)) => whole.to_owned(),
        None => text.into_owned(),
    }
}

/// Repeats a result for another job.
fn repeated(result: &JobResult) -> JobResult {
    let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    match result {
        JobResult::Ended(end) => JobResult::Ended(*end),
        // The first has a message.
        JobResult::NotStarted(error) | JobResult::NoProgram(error) => {
            JobResult::NoProgram(copy(error))
        }
        JobResult::NotKept(error) => JobResult::NotKept(copy(error)),
        JobResult::Refused(why) => JobResult::Refused(why.clone()),
        JobResult::BadInput(why) => JobResult::BadInput(why.clone()),
        JobResult::WorkerFailed(why) => JobResult::WorkerFailed(why.clone()),
        JobResult::NoWorkerLeft => JobResult::NoWorkerLeft,
        JobResult::Misplaced(error) => JobResult::WorkerFailed(error.to_string()),
    }
}
