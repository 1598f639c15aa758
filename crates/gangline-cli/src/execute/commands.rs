//! Jobs that are commands: a process for each attempt.

use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::execute::job_runner::Work;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::process::{self, Channel, End, Limits, Nursery};
use crate::execute::shared::Output;
use crate::output::capture::{Captured, Spill};
use crate::output::lines::LineBuffer;
use crate::output::outcome::{JobResult, Outcome, Printed};
use crate::plan::job::Job;
use crate::plan::slot::{Given, Slot};
use crate::plan::template::Words;

/// Commands on the slots of one lane.
pub(crate) struct Commands {
    pub(crate) lanes: Lanes,
    pub(crate) lane: Lane,
    pub(crate) slots: Vec<Slot>,
}

/// The state that one slot keeps between jobs.
pub(crate) struct Worker {
    buffer: Vec<u8>,
    /// One file per stream: two streams that take turns in a file would be many pieces.
    spills: [Arc<Spill>; 2],
}

impl Work for Commands {
    type State = Worker;

    fn begin(&self) -> Worker {
        Worker { buffer: Vec::new(), spills: Default::default() }
    }

    fn work(&self, slot: usize, worker: &mut Worker, job: &Job) -> Outcome {
        self.attempts(slot, worker, job)
    }

    fn end(&self, _: usize, _: Worker) {}
}

impl Commands {
    /// Runs a job until it succeeds, within the allowed attempts, all on one slot.
    fn attempts(&self, slot: usize, worker: &mut Worker, job: &Job) -> Outcome {
        let rules = &self.lanes.shared.rules;
        let mut attempt = 1;
        let mut delay = rules.retry_delay;
        loop {
            let outcome = self.attempt(slot, worker, job, attempt);
            let is_last = attempt > rules.retries
                || outcome.result.is_ok()
                || matches!(outcome.result, JobResult::Ended(End::Halted))
                || !self.lane.gate.pause(delay);
            if is_last {
                return outcome;
            }
            tell_of_retry(&self.lanes, &outcome);
            attempt += 1;
            delay = delay.saturating_mul(2).min(LONGEST_DELAY.max(rules.retry_delay));
        }
    }

    fn attempt(&self, slot: usize, worker: &mut Worker, job: &Job, attempt: u32) -> Outcome {
        let place = self.slots[slot].given(&job.command);
        let words = job.words(&place.ids, self.lane.first_worker + slot, attempt);
        let command = words.quoted();
        let (started, clock) = (SystemTime::now(), Instant::now());
        let (result, printed) = self.start(slot, worker, place, words);
        let (took, printed) = (clock.elapsed(), Mutex::new(printed));
        let (number, key) = (job.number, job.key());
        Outcome { number, key, command, attempts: attempt, result, started, took, printed }
    }

    fn start(
        &self,
        slot: usize,
        worker: &mut Worker,
        place: &Given,
        words: Words,
    ) -> (JobResult, Printed) {
        let shared = &self.lanes.shared;
        let nursery = Nursery {
            groups: &shared.groups,
            worker: self.lane.first_worker + slot,
            kill_after: shared.rules.kill_after,
            buffer: &mut worker.buffer,
        };
        let limits = Limits { time: &|| shared.limit(), output: shared.rules.max_output };
        let mut sink = Sink::new(self, &worker.spills);
        let mut tell = |channel, bytes: &[u8]| sink.push(channel, bytes);
        let ended = process::run(nursery, command(words, place), &limits, &mut tell);
        let printed = sink.finish();
        let result = match (ended, &printed) {
            (Err(error), _) => JobResult::NotStarted(error),
            (Ok((_, Err(error))), _) => JobResult::NotKept(error),
            (Ok((End::Exited(0), Ok(()))), Err(_)) => JobResult::Ended(End::Exited(0)),
            (Ok((end, Ok(()))), _) => JobResult::Ended(end),
        };
        (result, printed.unwrap_or_default())
    }
}

/// Reports that a job is retried. The output of the failed attempt is not printed.
pub(crate) fn tell_of_retry(lanes: &Lanes, outcome: &Outcome) {
    let Outcome { number, attempts, result, .. } = outcome;
    let command = outcome.short_command();
    let text = format!("job {number} {result} at attempt {attempts}, and is retried: {command}");
    lanes.shared.terminal.tell(&text);
}

/// The time limit of a job is not checked more often than this.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(60);

pub(crate) fn command(words: Words, slot: &Given) -> Command {
    let mut command = Command::new(words.program);
    command.args(words.arguments);
    command.envs(slot.variables.iter().map(|(name, value)| (name, value)));
    command.envs(words.variables);
    command
}

/// The destination of a job's streams while it runs.
struct Sink<'a> {
    commands: &'a Commands,
    spills: &'a [Arc<Spill>; 2],
    printed: Printed,
    lines: [LineBuffer; 2],
}

impl<'a> Sink<'a> {
    fn new(commands: &'a Commands, spills: &'a [Arc<Spill>; 2]) -> Sink<'a> {
        Sink { commands, spills, printed: Printed::default(), lines: Default::default() }
    }

    fn push(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        let shared = &self.commands.lanes.shared;
        if channel == Channel::Stdout {
            self.printed.received += bytes.len() as u64;
        }
        if shared.rules.showing == Output::Lines {
            let lines = &mut self.lines[channel as usize];
            let write = |line: &[u8]| shared.terminal.write(channel, line);
            self.commands.shown(lines.push(bytes, write))?;
            if shared.results.is_none() {
                return Ok(());
            }
        }
        let spill = &self.spills[channel as usize];
        self.captured(channel).push(spill, bytes)
    }

    fn finish(mut self) -> io::Result<Printed> {
        let shared = &self.commands.lanes.shared;
        for channel in [Channel::Stdout, Channel::Stderr] {
            let lines = &mut self.lines[channel as usize];
            self.commands.shown(lines.finish(|line| shared.terminal.write(channel, line)))?;
        }
        Ok(self.printed)
    }

    fn captured(&mut self, channel: Channel) -> &mut Captured {
        match channel {
            Channel::Stdout => &mut self.printed.stdout,
            Channel::Stderr => &mut self.printed.stderr,
        }
    }
}

impl Commands {
    /// A line that cannot be written ends the run: later lines could not be written either.
    fn shown(&self, written: io::Result<()>) -> io::Result<()> {
        written.inspect_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            self.lanes.shared.fail_output("the outputs of jobs cannot be written", copy);
            self.lanes.close();
            self.lanes.groups().end_all();
        })
    }
}
