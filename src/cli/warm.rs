//! Jobs for warm workers: one process for each slot, which is sent one input after the other.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use super::args::WarmArgs;
use super::capture::{Captured, Spill};
use super::commands;
use super::conversation::{Aside, Conversation, Ending, Silence};
use super::error::CliError;
use super::exit;
use super::job::Job;
use super::job_runner::Work;
use super::lane::{Lane, Lanes};
use super::outcome::{JobResult, Outcome, Printed};
use super::process::End;
use super::protocol::{self, Answer, Hello, Item, VERSION};
use super::slot::{Given, Slot};
use crate::base::plain::Plain;

/// Warm workers on the slots of one lane.
pub(super) struct Warm {
    lanes: Lanes,
    lane: Lane,
    slots: Vec<Slot>,
    /// Of a table; none where an input is a text.
    columns: Vec<OsString>,
    start_timeout: Duration,
    max_restarts: u32,
    bench: Bench,
    /// Whether it was told that one is slow to get ready.
    has_told_of_wait: AtomicBool,
}

/// The workers, each with its slot. One that is given up takes no more jobs, and whoever had it takes turns with
/// another.
struct Bench {
    seats: Mutex<Vec<Seat>>,
    changed: Condvar,
}

enum Seat {
    Free(Worker),
    Taken,
    GivenUp,
}

/// What one slot keeps.
#[derive(Default)]
struct Worker {
    conversation: Option<Conversation>,
    spill: Arc<Spill>,
    /// How often it was started in a row and did not get ready.
    unready: u32,
    /// How often it ended at an item, without a result in between.
    deaths: u32,
}

/// After so long it is told that a worker is not ready.
const LONG_WAIT: Duration = Duration::from_secs(15);

/// An item that so many workers ended at is itself at fault.
const DEATHS_OF_ITEM: u32 = 3;

impl Warm {
    pub(super) fn new(
        lanes: Lanes,
        lane: Lane,
        slots: Vec<Slot>,
        columns: Vec<OsString>,
        args: &WarmArgs,
    ) -> Warm {
        let &WarmArgs { start_timeout, max_restarts, .. } = args;
        let bench = Bench::new(slots.len());
        let has_told_of_wait = AtomicBool::new(false);
        Warm { lanes, lane, slots, columns, start_timeout, max_restarts, bench, has_told_of_wait }
    }
}

impl Work for Warm {
    /// Workers are with the slots, since they are lent to other threads.
    type State = ();

    fn begin(&self) {}

    fn work(&self, slot: usize, (): &mut (), job: &Job) -> Outcome {
        self.attempts(slot, job)
    }

    fn end(&self, slot: usize, (): ()) {
        if let Some(worker) = self.bench.leave(slot) {
            self.dismiss(slot, worker);
        }
    }
}

impl Warm {
    /// Tries a job until it goes well or has failed as often as is allowed: on its slot, but on another one, if
    /// there is one, after its worker has ended at it. That the slot is given up meanwhile counts for nothing.
    fn attempts(&self, slot: usize, job: &Job) -> Outcome {
        let rules = &self.lanes.shared.rules;
        let (mut attempt, mut deaths, mut delay) = (1, 0, rules.retry_delay);
        let mut ended_at = None;
        loop {
            let Some((seat, mut worker)) = self.bench.take(slot, ended_at) else {
                return self.outcome(slot, job, attempt, JobResult::WorkerFailed(GIVEN_UP.into()));
            };
            let outcome = self.attempt(seat, &mut worker, job, attempt);
            let was_ready = worker.unready == 0;
            let fate = match self.is_to_be_given_up(&worker) {
                true => self.give_up(seat, &outcome),
                false => self.bench.give_back(seat, worker),
            };
            match (&outcome.result, fate) {
                (JobResult::WorkerFailed(_), Fate::GivenUp) => continue,
                // It has not seen the item.
                (JobResult::WorkerFailed(_), Fate::GoesOn) if !was_ready => {
                    if !self.lane.gate.pause(delay) {
                        return outcome;
                    }
                    commands::tell_of_retry(&self.lanes, &outcome);
                    ended_at = Some(seat);
                    continue;
                }
                (JobResult::WorkerFailed(_), Fate::GoesOn) => {
                    deaths += 1;
                    ended_at = Some(seat);
                }
                _ => {}
            }
            let most = match outcome.result.blames_worker() {
                true => deaths < DEATHS_OF_ITEM || attempt <= rules.retries,
                false => attempt <= rules.retries,
            };
            let is_last = !most
                || outcome.result.is_ok()
                || matches!(outcome.result, JobResult::Ended(End::Halted))
                || !self.lane.gate.pause(delay);
            if is_last {
                return outcome;
            }
            commands::tell_of_retry(&self.lanes, &outcome);
            attempt += 1;
            delay = delay.saturating_mul(2).min(commands::LONGEST_DELAY.max(rules.retry_delay));
        }
    }

    fn attempt(&self, slot: usize, worker: &mut Worker, job: &Job, attempt: u32) -> Outcome {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut printed = Printed::default();
        let result =
            self.answer(slot, worker, job, attempt, &mut printed).unwrap_or_else(|end| end);
        if matches!(result, JobResult::Ended(End::Exited(_)) | JobResult::Refused(_)) {
            worker.deaths = 0;
        }
        let took = clock.elapsed();
        Outcome {
            started,
            took,
            printed: Mutex::new(printed),
            ..self.outcome(slot, job, attempt, result)
        }
    }

    fn outcome(&self, slot: usize, job: &Job, attempts: u32, result: JobResult) -> Outcome {
        let words = job.words(&self.given(slot, job).ids, self.number(slot), 1);
        Outcome {
            number: job.number,
            key: job.key(),
            command: format!("{} < {}", words.quoted(), job.key()),
            attempts,
            result,
            started: SystemTime::now(),
            took: Duration::ZERO,
            printed: Mutex::default(),
        }
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
            Err(violation) => {
                worker.deaths += 1;
                Err(self.fail(worker, violation.to_string(), printed))
            }
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
        match worker.conversation.take_if(|conversation| !conversation.is_fit()) {
            // It has ended since it answered, or has said more than its answer: no fault of this item.
            Some(conversation) => {
                let kill_after = self.lanes.shared.rules.kill_after;
                let (_, said) = conversation.end(Ending::Asked, kill_after);
                printed.stderr.append(&worker.spill, &said).map_err(JobResult::NotKept)?;
                let number = self.number(slot);
                self.lanes.shared.terminal.tell(&format!(
                    "the worker of slot {number} ended, closed its input, or said something that nobody had \
                     asked, between two items: it is started again"
                ));
            }
            None if worker.conversation.is_some() => return Ok(()),
            None => {}
        }
        worker.unready += 1;
        let given = self.given(slot, job);
        let command = commands::command(job.words(&given.ids, self.number(slot), 1), given);
        let started = Conversation::start(&self.lanes.shared.groups, self.number(slot), command);
        worker.conversation =
            Some(started.map_err(|error| {
                JobResult::WorkerFailed(format!("could not be started: {error}"))
            })?);
        let hello = Hello { gangline: VERSION, worker: self.number(slot), gpus: &given.ids };
        let ready = self.greet(worker, &protocol::line(&hello), printed);
        let ready = ready.map_err(|result| unready(result, self.start_timeout))?;
        protocol::read_ready(&ready)
            .map_err(|violation| self.fail(worker, violation.to_string(), printed))?;
        worker.unready = 0;
        Ok(())
    }

    /// Says the first line and waits for an answer. Who waits at the terminal is told for what: a program that is no
    /// worker never answers.
    fn greet(
        &self,
        worker: &mut Worker,
        line: &[u8],
        printed: &mut Printed,
    ) -> Result<Vec<u8>, JobResult> {
        let soon = LONG_WAIT.min(self.start_timeout / 4);
        let conversation = worker.conversation.as_mut().expect("it was started before it is asked");
        let aside = Aside { stderr: &mut printed.stderr, spill: &worker.spill };
        match conversation.ask(line, &|| Some(soon), aside) {
            Err(Silence::TimedOut(_)) => {}
            Ok(line) => return Ok(line),
            Err(silence) => return Err(self.end_worker(worker, result_of(silence), printed)),
        }
        if !self.has_told_of_wait.swap(true, Ordering::Relaxed) {
            let (soon, all) =
                (humantime::format_duration(soon), humantime::format_duration(self.start_timeout));
            self.lanes.shared.terminal.tell(&format!(
                "still no worker after {soon}: with --warm a command has to answer its first line with \
                 {{\"gangline\":1}}, for which it has {all} (--start-timeout)"
            ));
        }
        let left = self.start_timeout.saturating_sub(soon);
        // The line was said.
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
        let conversation = worker.conversation.as_mut().expect("it was started before it is asked");
        match conversation.ask(line, limit, aside) {
            Ok(line) => Ok(line),
            Err(silence) => Err(self.end_worker(worker, result_of(silence), printed)),
        }
    }

    /// The worker is not fit to go on.
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
        let (_, said) = conversation.end(Ending::Asked, self.lanes.shared.rules.kill_after);
        match printed.stderr.append(&worker.spill, &said) {
            Ok(()) => result,
            Err(error) => JobResult::NotKept(error),
        }
    }

    fn is_to_be_given_up(&self, worker: &Worker) -> bool {
        let deaths = self.max_restarts.saturating_mul(DEATHS_OF_ITEM);
        worker.unready > self.max_restarts || worker.deaths > deaths
    }

    /// The slot starts no worker any more. When none does, the run is over.
    fn give_up(&self, seat: usize, outcome: &Outcome) -> Fate {
        let printed = outcome.printed.lock().expect("nothing panics with the lock held");
        let said = match String::from_utf8_lossy(&printed.stderr.tail(200)).trim() {
            "" => String::new(),
            said => format!("; it said: {}", Plain(said)),
        };
        drop(printed);
        let number = self.number(seat);
        let text =
            format!("slot {number} is given up: job {} {}{said}", outcome.number, outcome.result);
        self.lanes.shared.terminal.tell(&text);
        if self.bench.give_up(seat) == 0 {
            self.lanes.shared.fail(CliError::new(exit::DEVICES, NONE_LEFT));
            self.lanes.close();
        }
        Fate::GivenUp
    }

    /// Has a worker end that is not needed any more, and tells what it says of that.
    fn dismiss(&self, slot: usize, worker: Worker) {
        let Some(conversation) = worker.conversation else { return };
        let shared = &self.lanes.shared;
        let (end, said) = conversation.end(Ending::OfInput, shared.rules.kill_after);
        if let Err(error) = shared.terminal.write_captured(&Captured::default(), &said) {
            shared.fail_output("what workers say cannot be written", error);
        }
        let slot = self.number(slot);
        match end {
            Some(End::Exited(0)) => {}
            Some(end) => {
                shared.terminal.tell(&format!("the worker of slot {slot} {end} at its end"));
            }
            None => {
                shared.terminal.tell(&format!("the worker of slot {slot} did not end by itself"));
            }
        }
    }

    fn given(&self, slot: usize, job: &Job) -> &Given {
        self.slots[slot].given(&job.command)
    }

    /// Of a slot, among those of all lanes.
    fn number(&self, slot: usize) -> usize {
        self.lane.first_worker + slot
    }
}

const NONE_LEFT: &str = "no worker is left that could be started";
const GIVEN_UP: &str = "was given up, as all others were";

/// What became of a worker that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    GoesOn,
    GivenUp,
}

impl Bench {
    fn new(slots: usize) -> Bench {
        let seats = (0..slots).map(|_| Seat::Free(Worker::default())).collect();
        Bench { seats: Mutex::new(seats), changed: Condvar::new() }
    }

    /// Waits for the worker of a slot, or, where that is given up or to be avoided, for any other; `None` when
    /// there is none.
    fn take(&self, slot: usize, avoided: Option<usize>) -> Option<(usize, Worker)> {
        let mut seats = self.seats();
        loop {
            let is_here = |seat: usize| !matches!(seats[seat], Seat::GivenUp);
            let has_other = (0..seats.len()).any(|seat| Some(seat) != avoided && is_here(seat));
            let avoided = avoided.filter(|_| has_other);
            let only_own = is_here(slot) && avoided.is_none();
            let wanted = |seat: &usize| {
                matches!(seats[*seat], Seat::Free(_))
                    && Some(*seat) != avoided
                    && (!only_own || *seat == slot)
            };
            let free = (0..seats.len()).find(wanted);
            if let Some(seat) = free
                && let Seat::Free(worker) = std::mem::replace(&mut seats[seat], Seat::Taken)
            {
                return Some((seat, worker));
            }
            if seats.iter().all(|seat| matches!(seat, Seat::GivenUp)) {
                return None;
            }
            seats = self.changed.wait(seats).expect("nothing panics with the lock held");
        }
    }

    fn give_back(&self, seat: usize, worker: Worker) -> Fate {
        self.seats()[seat] = Seat::Free(worker);
        self.changed.notify_all();
        Fate::GoesOn
    }

    /// How many are left.
    fn give_up(&self, seat: usize) -> usize {
        let mut seats = self.seats();
        seats[seat] = Seat::GivenUp;
        self.changed.notify_all();
        seats.iter().filter(|seat| !matches!(seat, Seat::GivenUp)).count()
    }

    /// The worker of a slot that nobody will use any more.
    fn leave(&self, slot: usize) -> Option<Worker> {
        match std::mem::replace(&mut self.seats()[slot], Seat::GivenUp) {
            Seat::Free(worker) => Some(worker),
            Seat::Taken | Seat::GivenUp => None,
        }
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().expect("nothing panics with the lock held")
    }
}

/// What it is for a job that its worker gave no answer.
fn result_of(silence: Silence) -> JobResult {
    JobResult::WorkerFailed(match silence {
        Silence::Halted => return JobResult::Ended(End::Halted),
        Silence::TimedOut(limit) => return JobResult::Ended(End::TimedOut(limit)),
        Silence::Ended(end) => format!("{end} before it answered"),
        Silence::Closed => "closed its standard output".into(),
        Silence::Deaf => "closed its standard input".into(),
        Silence::TooLong => "printed a line that does not end".into(),
        Silence::Failed(error) => format!("could not be talked to: {error}"),
    })
}

/// The time that ran out was that for getting ready.
fn unready(result: JobResult, limit: Duration) -> JobResult {
    match result {
        JobResult::Ended(End::TimedOut(_)) => {
            let limit = humantime::format_duration(limit);
            JobResult::WorkerFailed(format!("was not ready within {limit}"))
        }
        other => other,
    }
}
