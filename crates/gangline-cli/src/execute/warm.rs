//! Jobs for warm workers: one process per slot, which receives one input after the other.

mod end;

use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::args::{Run, WarmArgs};
use crate::error::CliError;
use crate::execute::commands;
use crate::execute::conversation::{Aside, Conversation, Silence};
use crate::execute::job_runner::Work;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::process::End;
use crate::execute::protocol::{self, Answer, Hello, Item, VERSION};
use crate::execute::retries::DEATHS_OF_ITEM;
use crate::execute::shared::Announced;
use crate::execute::threads::Threads;
use crate::execute::worker_slots::{Fate, Worker, WorkerSlots};
use crate::exit;
use crate::output::outcome::{JobResult, Outcome, Printed};
use crate::plain::Plain;
use crate::plan::WarmInputs;
use crate::plan::job::Job;
use crate::plan::slot::{Given, Slot};
use crate::plan::template::{Template, Values};
use crate::plan::texts::OnSlot;
use gangline::report::HumanDuration;

/// The warm workers on the slots of one lane.
pub(crate) struct Warm {
    lanes: Lanes,
    lane: Lane,
    slots: Vec<Slot>,
    command: Arc<Template>,
    /// The number of workers that are started before there are jobs.
    preloaded: usize,
    /// The names of a job's inputs, if they have any.
    names: Vec<OsString>,
    start_timeout: Duration,
    max_restarts: u32,
    workers: WorkerSlots,
    threads: Threads,
    end_timeout: Duration,
    /// Whether a slow start has been reported.
    has_told_of_wait: AtomicBool,
    /// Whether a slow end has been reported.
    has_told_of_end: AtomicBool,
}

/// Whether the worker of a slot has been started for the first time, successfully or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    NotBegun,
    Tried,
}

/// When a slow start is reported.
const LONG_WAIT: Duration = Duration::from_secs(15);

impl Warm {
    pub(crate) fn new(
        lanes: Lanes,
        lane: Lane,
        slots: Vec<Slot>,
        inputs: WarmInputs,
        args: &Run,
    ) -> Warm {
        let WarmInputs { command, names, most } = inputs;
        let &WarmArgs { start_timeout, end_timeout, max_restarts, preload, .. } = &args.warm;
        // There may be fewer jobs than slots.
        let preloaded = if preload { most.unwrap_or(usize::MAX) } else { 0 };
        let threads = Threads::new(args, slots.len());
        let workers = WorkerSlots::new(slots.len());
        let (has_told_of_wait, has_told_of_end) = Default::default();
        Warm {
            lanes,
            lane,
            slots,
            command,
            preloaded,
            names,
            start_timeout,
            max_restarts,
            workers,
            threads,
            end_timeout,
            has_told_of_wait,
            has_told_of_end,
        }
    }
}

impl Work for Warm {
    /// Workers are stored by slot, since other threads may borrow them.
    type State = Loading;

    fn begin(&self, slot: usize) -> Loading {
        commands::be_nice(self.lanes.shared.rules.nice);
        match slot < self.preloaded {
            true => self.load(slot),
            false => Loading::NotBegun,
        }
    }

    fn work(&self, slot: usize, loading: &mut Loading, job: &Job, attempt: u32) -> Outcome {
        if *loading == Loading::NotBegun {
            *loading = self.load(slot);
        }
        self.try_workers(slot, job, attempt)
    }

    fn end(&self, slot: usize, _: Loading) {
        if let Some(worker) = self.workers.leave(slot) {
            self.dismiss(slot, worker);
        }
    }
}

impl Warm {
    /// Starts the worker of a slot before its first job. If that fails, the first job tries again.
    fn load(&self, slot: usize) -> Loading {
        let Some((index, mut worker)) = self.workers.take(slot, None) else {
            return Loading::Tried;
        };
        let mut printed = Printed::default();
        let started = self.start(index, &mut worker, &self.command, &mut printed);
        let shown =
            self.lanes.shared.terminal.write_captured(None, &printed.stdout, &printed.stderr);
        if let Err(error) = shown {
            self.lanes.shared.fail_output("the messages of workers cannot be written", error);
        }
        // A program that is not there fails the first job.
        if let Err(result) = started
            && result.blames_worker()
            && self.lane.gate.is_wanted()
        {
            let number = self.number(slot);
            self.lanes.shared.terminal.tell(&format!("the start of slot {number} {result}"));
        }
        self.workers.give_back(index, worker);
        Loading::Tried
    }

    /// Makes an attempt at a job with the worker of a slot. If the worker does not get ready, or is given up, the
    /// job moves to another worker if there is one. Such a move does not count as an attempt.
    fn try_workers(&self, slot: usize, job: &Job, attempt: u32) -> Outcome {
        let mut avoided = None;
        loop {
            let Some((index, mut worker)) = self.workers.take(slot, avoided) else {
                let results =
                    self.lanes.place_results(&self.lane, job, self.on_slot(slot, job, attempt));
                let result = JobResult::WorkerFailed(GIVEN_UP.into());
                let outcome = self.outcome(slot, job, attempt, result);
                return Outcome { results: results.ok().flatten(), ..outcome };
            };
            let outcome = self.attempt(index, &mut worker, job, attempt);
            let was_ready = worker.unready == 0;
            let fate = match self.is_to_be_given_up(&worker) {
                true => self.give_up(index, &outcome),
                false => self.workers.give_back(index, worker),
            };
            match fate {
                _ if !outcome.result.blames_worker() => return outcome,
                Fate::GivenUp => {}
                Fate::GoesOn if was_ready => return outcome,
                Fate::GoesOn => {
                    if !self.lane.gate.pause(self.lanes.shared.rules.retry_delay) {
                        return outcome;
                    }
                    let (number, command) = (outcome.number, outcome.short_command());
                    let text =
                        format!("job {number} {}, and is tried again: {command}", outcome.result);
                    self.lanes.shared.terminal.tell(&text);
                    avoided = Some(index);
                }
            }
        }
    }

    fn attempt(&self, slot: usize, worker: &mut Worker, job: &Job, attempt: u32) -> Outcome {
        let shared = &self.lanes.shared;
        if shared.rules.commands == Announced::Yes {
            let words = job.words(&self.given(&job.command, slot).ids, self.number(slot), 1);
            commands::announce(shared, &format!("{} < {}", words.quoted(), job.key()));
        }
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut printed = Printed::default();
        let results = self.lanes.place_results(&self.lane, job, self.on_slot(slot, job, attempt));
        let (result, results) = match results {
            Ok(results) => {
                let answer = self.answer(slot, worker, job, attempt, &mut printed);
                (answer.unwrap_or_else(|end| end), results)
            }
            Err(result) => (result, None),
        };
        if matches!(result, JobResult::Ended(End::Exited(_)) | JobResult::Refused(_)) {
            worker.deaths = 0;
        }
        let took = clock.elapsed();
        Outcome {
            started,
            took,
            printed: Mutex::new(printed),
            results,
            ..self.outcome(slot, job, attempt, result)
        }
    }

    fn outcome(&self, slot: usize, job: &Job, attempts: u32, result: JobResult) -> Outcome {
        let on_slot = self.on_slot(slot, job, attempts);
        let words = job.words(on_slot.gpus, on_slot.worker, 1);
        Outcome {
            number: job.number,
            key: job.key(),
            fields: Arc::clone(&job.fields),
            command: format!("{} < {}", words.quoted(), job.key()),
            attempts,
            slot: on_slot.worker,
            gpus: Arc::clone(&self.slots[slot].gpus),
            tag: self.lane.texts.tag(job, on_slot),
            results: None,
            result,
            started: SystemTime::now(),
            took: Duration::ZERO,
            printed: Mutex::default(),
        }
    }

    /// The worker's answer for a job; the error is what came instead.
    fn answer(
        &self,
        slot: usize,
        worker: &mut Worker,
        job: &Job,
        attempt: u32,
        printed: &mut Printed,
    ) -> Result<JobResult, JobResult> {
        let Some(input) = protocol::input(&job.fields, &self.names) else {
            return Ok(JobResult::Refused("the input is not UTF-8, which JSON requires".into()));
        };
        self.start(slot, worker, &job.command, printed).map_err(|result| match result {
            JobResult::NotStarted(error) => {
                self.lanes.shared.fail(CliError::new(exit::DEVICES, NONE_LEFT));
                self.lanes.end_without(self.command.program(), error)
            }
            result => result,
        })?;
        let item = protocol::line(&Item { item: job.number, attempt, input });
        let limit = || self.lanes.shared.limit();
        let answer = self.ask(worker, &item, &limit, printed).inspect_err(|result| {
            worker.deaths += u32::from(result.blames_worker());
        })?;
        match protocol::read_answer(&answer, job.number) {
            Ok(Answer::Output(output)) => {
                let text = protocol::printed(&output);
                printed.received = text.len() as u64;
                printed.stdout.push(&worker.spill, &text).map_err(JobResult::NotKept)?;
                Ok(JobResult::Ended(End::Exited(0)))
            }
            Ok(Answer::Error(error)) => Ok(JobResult::Refused(error)),
            Ok(Answer::Unreadable(why)) => {
                Ok(JobResult::Refused(format!("its answer cannot be read: {why}")))
            }
            Err(violation) => {
                worker.deaths += 1;
                Err(self.fail(worker, violation.to_string(), printed))
            }
        }
    }

    /// Makes sure that a worker is ready.
    fn start(
        &self,
        slot: usize,
        worker: &mut Worker,
        command: &Arc<Template>,
        printed: &mut Printed,
    ) -> Result<(), JobResult> {
        match worker.conversation.take_if(|conversation| !conversation.is_fit()) {
            // It has ended since its answer, or has written more: not the fault of this item.
            Some(conversation) => {
                let kill_after = self.lanes.shared.rules.ending.lasts();
                let said = conversation.end(kill_after);
                printed.stderr.append(&worker.spill, &said).map_err(JobResult::NotKept)?;
                let number = self.number(slot);
                self.lanes.shared.terminal.tell(&format!(
                    "the worker of slot {number} ended, closed its input, or wrote an unexpected line \
                     between two items: it is restarted"
                ));
            }
            None if worker.conversation.is_some() => return Ok(()),
            None => {}
        }
        worker.unready += 1;
        let given = self.given(command, slot);
        let values = Values {
            fields: &[],
            number: 0,
            gpus: &given.ids,
            worker: self.number(slot),
            attempt: 1,
        };
        let mut command = commands::command(command.fill(&values), given);
        let threads = self.threads.limit(&mut command);
        let started = Conversation::start(&self.lanes.shared.groups, self.number(slot), command);
        worker.conversation = Some(started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                // The slot is not at fault: no other finds the program.
                worker.unready = 0;
                JobResult::NotStarted(error)
            }
            _ => JobResult::WorkerFailed(format!("could not be started: {error}")),
        })?);
        let worker_number = self.number(slot);
        let hello = Hello { gangline: VERSION, worker: worker_number, gpus: &given.ids, threads };
        let ready = self.greet(worker, &protocol::line(&hello), printed);
        let ready = ready.map_err(|result| unready(result, self.start_timeout))?;
        protocol::read_ready(&ready)
            .map_err(|violation| self.fail(worker, violation.to_string(), printed))?;
        worker.unready = 0;
        Ok(())
    }

    /// Sends the first line and waits for the answer. A slow start is announced on the terminal: a program
    /// that is not a worker never answers.
    fn greet(
        &self,
        worker: &mut Worker,
        line: &[u8],
        printed: &mut Printed,
    ) -> Result<Vec<u8>, JobResult> {
        let soon = LONG_WAIT.min(self.start_timeout / 4);
        let conversation = worker.conversation.as_mut().expect("the worker was started above");
        let aside = Aside { stderr: &mut printed.stderr, spill: &worker.spill };
        match conversation.ask(line, &|| Some(soon), aside) {
            Err(Silence::TimedOut(_)) => {}
            Ok(line) => return Ok(line),
            Err(silence) => return Err(self.end_worker(worker, result_of(silence), printed)),
        }
        let left = self.start_timeout.saturating_sub(soon);
        let (soon, all) = (HumanDuration(soon), HumanDuration(self.start_timeout));
        let text = format!(
            "still no worker after {soon:#}: with --warm a command must answer its first line with \
             {{\"gangline\":1}}, for which it has {all:#} (--start-timeout)"
        );
        self.tell_once(&self.has_told_of_wait, &text);
        // The line was printed.
        self.ask(worker, b"", &|| Some(left), printed)
    }

    fn ask(
        &self,
        worker: &mut Worker,
        line: &[u8],
        limit: &dyn Fn() -> Option<Duration>,
        printed: &mut Printed,
    ) -> Result<Vec<u8>, JobResult> {
        let aside = Aside { stderr: &mut printed.stderr, spill: &worker.spill };
        let conversation = worker.conversation.as_mut().expect("the worker was started above");
        match conversation.ask(line, limit, aside) {
            Ok(line) => Ok(line),
            Err(silence) => Err(self.end_worker(worker, result_of(silence), printed)),
        }
    }

    /// The worker cannot continue.
    fn fail(&self, worker: &mut Worker, why: String, printed: &mut Printed) -> JobResult {
        self.end_worker(worker, JobResult::WorkerFailed(why), printed)
    }

    fn end_worker(
        &self,
        worker: &mut Worker,
        result: JobResult,
        printed: &mut Printed,
    ) -> JobResult {
        let Some(conversation) = worker.conversation.take() else { return result };
        let said = conversation.end(self.lanes.shared.rules.ending.lasts());
        match printed.stderr.append(&worker.spill, &said) {
            Ok(()) => result,
            Err(error) => JobResult::NotKept(error),
        }
    }

    fn is_to_be_given_up(&self, worker: &Worker) -> bool {
        let deaths = self.max_restarts.saturating_mul(DEATHS_OF_ITEM);
        worker.unready > self.max_restarts || worker.deaths > deaths
    }

    /// The slot starts no worker any more. If no slot does, the run is over.
    fn give_up(&self, index: usize, outcome: &Outcome) -> Fate {
        let printed = outcome.printed.lock().expect("nothing panics with the lock held");
        let said = match String::from_utf8_lossy(&printed.stderr.tail(200)).trim() {
            "" => String::new(),
            said => format!("; it said: {}", Plain(said)),
        };
        drop(printed);
        let number = self.number(index);
        let text =
            format!("slot {number} is given up: job {} {}{said}", outcome.number, outcome.result);
        self.lanes.shared.terminal.tell(&text);
        if self.workers.give_up(index) == 0 {
            self.lanes.shared.fail(CliError::new(exit::DEVICES, NONE_LEFT));
            self.lanes.close();
        }
        Fate::GivenUp
    }

    fn tell_once(&self, has_told: &AtomicBool, text: &str) {
        if !has_told.swap(true, Ordering::Relaxed) {
            self.lanes.shared.terminal.tell(text);
        }
    }

    fn given(&self, command: &Template, slot: usize) -> &Given {
        self.slots[slot].given(command)
    }

    fn on_slot<'a>(&'a self, slot: usize, job: &Job, attempt: u32) -> OnSlot<'a> {
        let gpus = &self.given(&job.command, slot).ids;
        OnSlot { gpus, worker: self.number(slot), attempt }
    }

    /// The number of a slot among those of all lanes.
    fn number(&self, slot: usize) -> usize {
        self.lane.first_worker + slot
    }
}

const NONE_LEFT: &str = "no worker is left that could be started";
const GIVEN_UP: &str = "was given up, like all others";

/// The result of a job if its worker gave no answer.
fn result_of(silence: Silence) -> JobResult {
    JobResult::WorkerFailed(match silence {
        Silence::Halted => return JobResult::Ended(End::Halted),
        Silence::TimedOut(limit) => return JobResult::Ended(End::TimedOut(limit)),
        Silence::Ended(end) => format!("{end} before it answered"),
        Silence::Closed => "closed its standard output".into(),
        Silence::Deaf => "closed its standard input".into(),
        Silence::TooLong => "printed a line that is too long".into(),
        Silence::Failed(error) => format!("could not be reached: {error}"),
    })
}

/// Replaces an exceeded time limit of a job by that of the start.
fn unready(result: JobResult, limit: Duration) -> JobResult {
    match result {
        JobResult::Ended(End::TimedOut(_)) => {
            let limit = HumanDuration(limit);
            JobResult::WorkerFailed(format!("was not ready within {limit:#}"))
        }
        other => other,
    }
}
