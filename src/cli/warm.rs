//! The runner of warm workers: one process for each slot, which is sent one input after the other.

use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::args::WarmArgs;
use super::capture::{Captured, Spill};
use super::commands::{self, Hold, NOT_STARTED};
use super::conversation::{Aside, Conversation, Silence};
use super::error::CliError;
use super::exit;
use super::gate::Admission;
use super::job::Job;
use super::lane::{Lane, Lanes};
use super::outcome::{JobResult, Outcome, Printed};
use super::process::End;
use super::protocol::{self, Answer, Hello, Item, VERSION};
use super::slot::Slot;
use crate::error::{Error, Result};
use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// Warm workers on the slots of one lane.
pub(super) struct Warm {
    lanes: Lanes,
    lane: Lane,
    slots: Vec<Slot>,
    /// Of a table; none where an input is a text.
    columns: Vec<OsString>,
    start_timeout: Duration,
    max_restarts: u32,
    /// How many slots have given up.
    lost: AtomicUsize,
}

/// What one slot keeps.
pub(super) struct Worker {
    conversation: Option<Conversation>,
    spill: Arc<Spill>,
    /// How often it was started without a result since.
    fruitless: u32,
    lost: bool,
    patience: Duration,
}

impl Warm {
    pub(super) fn new(
        lanes: Lanes,
        lane: Lane,
        slots: Vec<Slot>,
        columns: Vec<OsString>,
        args: &WarmArgs,
    ) -> Warm {
        let &WarmArgs { start_timeout, max_restarts, .. } = args;
        Warm { lanes, lane, slots, columns, start_timeout, max_restarts, lost: AtomicUsize::new(0) }
    }
}

impl Runner for Warm {
    type Input = Job;
    type Output = Arc<Outcome>;
    type ProducerState = Worker;
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Worker> {
        Ok(Worker {
            conversation: None,
            spill: Arc::default(),
            fruitless: 0,
            lost: false,
            patience: self.lanes.shared.rules.kill_after,
        })
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        worker: &mut Worker,
        job: Job,
    ) -> Result<Arc<Outcome>> {
        let _hold = Hold(&self.lanes);
        if job.start() == Admission::Refused {
            return Err(NOT_STARTED.into());
        }
        let outcome = Arc::new(self.attempts(cx.worker(), worker, &job));
        commands::end(&self.lanes, outcome)
    }

    fn producer_end(&self, _: &ProducerContext<'_>, mut worker: Worker) -> Result<()> {
        if let Some(conversation) = &mut worker.conversation {
            conversation.end(worker.patience);
        }
        Ok(())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        (): &mut (),
        outcome: Arc<Outcome>,
    ) -> Result<()> {
        commands::write(&self.lanes, &self.lane, &outcome)
    }

    fn consumer_skipped(&self, _: &ConsumerContext<'_>, (): &mut (), error: &Error) -> Result<()> {
        commands::write_failed(&self.lanes, &self.lane, error)
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

impl Warm {
    fn attempts(&self, slot: usize, worker: &mut Worker, job: &Job) -> Outcome {
        let rules = &self.lanes.shared.rules;
        let mut attempt = 1;
        let mut delay = rules.retry_delay;
        loop {
            let outcome = self.attempt(slot, worker, job, attempt);
            let is_last = attempt > rules.retries
                || outcome.result.is_ok()
                || worker.lost
                || matches!(outcome.result, JobResult::Ended(End::Halted))
                || !self.lane.gate.pause(delay);
            if is_last {
                return outcome;
            }
            attempt += 1;
            delay = delay.saturating_mul(2).min(commands::LONGEST_DELAY.max(rules.retry_delay));
        }
    }

    fn attempt(&self, slot: usize, worker: &mut Worker, job: &Job, attempt: u32) -> Outcome {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut printed = Printed::default();
        let result =
            self.answer(slot, worker, job, attempt, &mut printed).unwrap_or_else(|end| end);
        if result.is_ok() {
            worker.fruitless = 0;
        }
        let (took, printed) = (clock.elapsed(), Mutex::new(printed));
        let command =
            format!("{} < {}", job.words(&self.slots[slot].ids, slot, 1).quoted(), job.key());
        Outcome { number: job.number, command, attempts: attempt, result, started, took, printed }
    }

    /// What the worker says of a job; the error is what came instead.
    fn answer(
        &self,
        slot: usize,
        worker: &mut Worker,
        job: &Job,
        attempt: u32,
        printed: &mut Printed,
    ) -> Result<JobResult, JobResult> {
        let Some(input) = protocol::input(&job.fields, &self.columns) else {
            return Ok(JobResult::Refused("the input is not UTF-8, as JSON needs".into()));
        };
        self.start(slot, worker, job, printed)?;
        let item = protocol::line(&Item { item: job.number, attempt, input });
        let shared = &self.lanes.shared;
        let answer = worker.ask(&item, &|| shared.limit(), printed)?;
        match protocol::read_answer(&answer, job.number) {
            Ok(Answer::Output(output)) => {
                let text = protocol::printed(&output);
                printed.received = text.len() as u64;
                printed.stdout = Captured::of(text);
                Ok(JobResult::Ended(End::Exited(0)))
            }
            Ok(Answer::Error(error)) => {
                worker.fruitless = 0;
                Ok(JobResult::Refused(error))
            }
            Err(violation) => Err(worker.fail(violation.to_string())),
        }
    }

    /// Has a worker be there that is ready.
    fn start(
        &self,
        slot: usize,
        worker: &mut Worker,
        job: &Job,
        printed: &mut Printed,
    ) -> Result<(), JobResult> {
        if worker.conversation.is_some() {
            return Ok(());
        }
        if worker.fruitless > self.max_restarts {
            return Err(self.lose(worker));
        }
        worker.fruitless += 1;
        let place = &self.slots[slot];
        let command = commands::command(job.words(&place.ids, slot, 1), place);
        let number = self.lane.first_worker + slot;
        let started = Conversation::start(&self.lanes.shared.groups, number, command);
        worker.conversation =
            Some(started.map_err(|error| {
                JobResult::WorkerFailed(format!("could not be started: {error}"))
            })?);
        let hello = Hello { gangline: VERSION, worker: slot, gpus: &place.ids };
        let limit = || Some(self.start_timeout);
        let ready = worker.ask(&protocol::line(&hello), &limit, printed)?;
        protocol::read_ready(&ready).map_err(|violation| worker.fail(violation.to_string()))
    }

    /// The slot starts no worker any more. When none does, the run is over.
    fn lose(&self, worker: &mut Worker) -> JobResult {
        let times = self.max_restarts;
        let why =
            format!("was started anew {times} times without a result, and is not started again");
        if !std::mem::replace(&mut worker.lost, true) {
            let lost = 1 + self.lost.fetch_add(1, Ordering::SeqCst);
            if lost == self.slots.len() {
                let text = format!("no worker is left: the last {why}");
                self.lanes.shared.fail(CliError::new(exit::DEVICES, text));
                self.lanes.close();
            }
        }
        JobResult::WorkerFailed(why)
    }
}

impl Worker {
    fn ask(
        &mut self,
        line: &[u8],
        limit: &dyn Fn() -> Option<Duration>,
        printed: &mut Printed,
    ) -> Result<Vec<u8>, JobResult> {
        let aside = Aside { stderr: &mut printed.stderr, spill: &self.spill };
        let conversation = self.conversation.as_mut().expect("it was started before it is asked");
        conversation.ask(line, limit, aside).map_err(|silence| self.silence(silence))
    }

    /// The worker is not fit to go on.
    fn fail(&mut self, why: String) -> JobResult {
        self.conversation = None;
        JobResult::WorkerFailed(why)
    }

    fn silence(&mut self, silence: Silence) -> JobResult {
        self.conversation = None;
        match silence {
            Silence::Halted => JobResult::Ended(End::Halted),
            Silence::TimedOut(limit) => JobResult::Ended(End::TimedOut(limit)),
            Silence::Ended(end) => JobResult::WorkerFailed(format!("{end} before it answered")),
            Silence::Closed => JobResult::WorkerFailed("closed its standard output".into()),
            Silence::TooLong => JobResult::WorkerFailed("printed a line that does not end".into()),
            Silence::Failed(error) => {
                JobResult::WorkerFailed(format!("could not be talked to: {error}"))
            }
        }
    }
}
