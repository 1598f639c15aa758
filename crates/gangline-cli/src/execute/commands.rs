//! Jobs that are commands: a process for each attempt.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use rustix::process::{getpriority_process, setpriority_process};

use crate::execute::job_runner::{JobWork, Tried, Worked};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::process::{self, Nursery, OutputStream, ProcessEnd, ProcessLimits, Streams};
use crate::execute::shared::SharedRun;
use crate::output::capture::Spill;
use crate::output::lines::LineBuffer;
use crate::output::outcome::{JobOutcome, JobResult, Printed};
use crate::plan::job::Job;
use crate::plan::rules::{Announced, Output};
use crate::plan::slot::{Given, JobSlot};
use crate::plan::template::{CommandWords, quoted};
use crate::plan::texts::{self, OnSlot};

/// Commands on the slots of one lane.
pub(crate) struct Commands {
    pub(crate) lanes: Lanes,
    pub(crate) lane: Lane,
    pub(crate) slots: Vec<JobSlot>,
    /// The program of all jobs. Each line of a job file has its own.
    pub(crate) program: Option<OsString>,
}

/// The state that one slot keeps between jobs.
pub(crate) struct SlotBuffers {
    buffer: Vec<u8>,
    /// One file per stream: two streams that take turns in a file would be many pieces.
    spills: [Arc<Spill>; 2],
}

impl JobWork for Commands {
    type State = SlotBuffers;

    fn begin(&self, _: usize) -> SlotBuffers {
        be_nice(self.lanes.shared.rules.nice);
        SlotBuffers { buffer: Vec::new(), spills: Default::default() }
    }

    fn work(&self, slot: usize, worker: &mut SlotBuffers, list: &[Tried<'_>]) -> Vec<Worked> {
        let run = |tried: &Tried<'_>| self.run(slot, worker, tried.job, tried.attempt);
        list.iter().map(run).map(Worked::Ended).collect()
    }

    fn end(&self, _: usize, _: SlotBuffers) {}
}

impl Commands {
    /// A job that is ended for lack of memory runs again on its slot, in the same attempt.
    fn run(&self, slot: usize, worker: &mut SlotBuffers, job: &Job, attempt: u32) -> JobOutcome {
        loop {
            let outcome = self.attempt(slot, worker, job, attempt);
            if !matches!(outcome.result, JobResult::Ended(ProcessEnd::Recalled)) {
                return outcome;
            }
            let (number, command) = (outcome.number, outcome.short_command());
            let text =
                format!("job {number} {}, and it runs again later: {command}", outcome.result);
            self.lanes.shared.terminal.tell(&text);
            self.lanes.finish();
            if !self.lanes.start_again(&self.lane) {
                return JobOutcome { result: JobResult::Ended(ProcessEnd::Halted), ..outcome };
            }
        }
    }

    fn attempt(
        &self,
        slot: usize,
        worker: &mut SlotBuffers,
        job: &Job,
        attempt: u32,
    ) -> JobOutcome {
        let shared = &self.lanes.shared;
        let place = self.slots[slot].given(&job.command);
        let number = self.lane.first_worker + slot;
        let words = job.words(&place.ids, number, attempt);
        let command = words.quoted();
        let on_slot = OnSlot { gpus: &place.ids, worker: number, attempt };
        let texts = &self.lane.texts;
        let tag = texts.tag(job, on_slot);
        let results = self.lanes.place_results(&self.lane, job, on_slot);
        if results.is_ok() && shared.rules.commands == Announced::Yes {
            announce(shared, &command);
        }
        let workdir = texts.workdir.as_ref().map(|text| texts::fill(text, job, on_slot));
        let (started, clock) = (SystemTime::now(), Instant::now());
        let prepared = results.and_then(|results| {
            let command = prepared(self::command(words, place), workdir);
            Ok((command.map_err(JobResult::NotStarted)?, results))
        });
        let mut sink = StreamSink::new(self, &worker.spills, job.number, tag.as_deref());
        if attempt > 1 {
            sink.printed.unshown = self.lane.retries.take_unshown(job.number);
        }
        let (result, printed, results) = match prepared {
            Ok((command, results)) => {
                let (result, printed) = self.start(number, &mut worker.buffer, command, sink);
                let result = match result {
                    JobResult::NotStarted(error) => self.not_started(job, error),
                    result => result,
                };
                (result, printed, results)
            }
            Err(result) => (result, Printed::default(), None),
        };
        JobOutcome {
            number: job.number,
            key: job.key(),
            fields: Arc::clone(&job.fields),
            command,
            attempts: attempt,
            host: None,
            slot: number,
            gpus: Arc::clone(&self.slots[slot].gpus),
            tag,
            results,
            result,
            started,
            took: clock.elapsed(),
            printed: Mutex::new(printed),
            commit: Arc::default(),
        }
    }

    /// Returns the result of a job that could not be started. If the program of all jobs does not exist, the
    /// first such job ends the run. Other jobs that were starting print no message.
    fn not_started(&self, job: &Job, error: io::Error) -> JobResult {
        let is_missing = error.kind() == io::ErrorKind::NotFound && !self.finds_by_job(job);
        let program = self.program.as_ref().filter(|_| is_missing);
        let Some(program) = program else { return JobResult::NotStarted(error) };
        self.lanes.end_without(program.clone(), error)
    }

    /// Whether each job may find another program: in its own working directory, or by its own `PATH`.
    fn finds_by_job(&self, job: &Job) -> bool {
        let workdir = self.lane.texts.workdir.as_ref();
        let is_relative = |program: &OsString| {
            !program.as_bytes().starts_with(b"/") && program.as_bytes().contains(&b'/')
        };
        job.command.varies(OsStr::new("PATH"))
            || workdir.is_some_and(|text| text.has_marks())
                && self.program.as_ref().is_some_and(is_relative)
    }

    fn start(
        &self,
        worker: usize,
        buffer: &mut Vec<u8>,
        command: Command,
        mut sink: StreamSink<'_>,
    ) -> (JobResult, Printed) {
        let shared = &self.lanes.shared;
        let streams = match shared.rules.showing {
            Output::Direct => Streams::Inherited,
            _ => Streams::Piped,
        };
        let ending = &shared.rules.ending;
        let (groups, job) = (&shared.groups, sink.number);
        let nursery = Nursery { groups, worker, job, ending, streams, buffer };
        let limits = ProcessLimits { time: &|| shared.limit(), output: shared.rules.max_output };
        let mut tell = |channel, bytes: &[u8]| sink.push(channel, bytes);
        let ended = process::run(nursery, command, &limits, &mut tell);
        let printed = sink.finish();
        let result = match (ended, &printed) {
            (Err(error), _) => JobResult::NotStarted(error),
            (Ok((_, Err(error))), _) => JobResult::NotKept(error),
            (Ok((ProcessEnd::Exited(0), Ok(()))), Err(_)) => {
                JobResult::Ended(ProcessEnd::Exited(0))
            }
            (Ok((end, Ok(()))), _) => JobResult::Ended(end),
        };
        (result, printed.unwrap_or_default())
    }
}

/// Prints the command of a job that starts.
pub(crate) fn announce(shared: &SharedRun, command: &str) {
    // If standard error is gone, no other way to report remains.
    let _ = shared.terminal.write(None, OutputStream::Stderr, format!("{command}\n").as_bytes());
}

/// Gives this thread a niceness, which the processes that it starts inherit. It never lowers it.
pub(crate) fn be_nice(nice: Option<i32>) {
    let current = getpriority_process(None).unwrap_or_default();
    if let Some(nice) = nice.filter(|nice| *nice > current) {
        // A process may always be nicer.
        let _ = setpriority_process(None, nice);
    }
}

/// Gives a command its directory, which is made if it is missing.
fn prepared(mut command: Command, workdir: Option<OsString>) -> io::Result<Command> {
    if let Some(workdir) = workdir {
        fs::create_dir_all(&workdir).map_err(|error| {
            let what = format!("its directory {} cannot be made: {error}", quoted(&workdir));
            io::Error::other(what)
        })?;
        command.current_dir(workdir);
    }
    Ok(command)
}

pub(crate) fn command(words: CommandWords, slot: &Given) -> Command {
    let mut command = Command::new(words.program);
    command.args(words.arguments);
    command.envs(slot.variables.iter().map(|(name, value)| (name, value)));
    command.envs(words.variables);
    command
}

/// The destination of a job's streams while it runs.
struct StreamSink<'a> {
    commands: &'a Commands,
    spills: &'a [Arc<Spill>; 2],
    number: u64,
    tag: Option<&'a [u8]>,
    printed: Printed,
    lines: [LineBuffer; 2],
}

impl<'a> StreamSink<'a> {
    fn new(
        commands: &'a Commands,
        spills: &'a [Arc<Spill>; 2],
        number: u64,
        tag: Option<&'a [u8]>,
    ) -> StreamSink<'a> {
        let (printed, lines) = Default::default();
        StreamSink { commands, spills, number, tag, printed, lines }
    }

    fn push(&mut self, channel: OutputStream, bytes: &[u8]) -> io::Result<()> {
        let shared = &self.commands.lanes.shared;
        if channel == OutputStream::Stdout {
            self.printed.received += bytes.len() as u64;
        }
        match shared.rules.showing {
            Output::Whole | Output::Direct => {}
            Output::Lines => self.print(channel, bytes)?,
            Output::Relayed => {
                self.commands.shown(shared.terminal.write(None, channel, bytes))?;
            }
            Output::LinesInOrder if self.is_first() => {
                self.print_unshown(channel)?;
                self.print(channel, bytes)?;
            }
            Output::LinesInOrder => {
                let spill = &self.spills[channel as usize];
                self.printed.unshown[channel as usize].push(spill, bytes)?;
            }
        }
        if shared.rules.showing.is_early() && shared.results.is_none() {
            return Ok(());
        }
        let spill = &self.spills[channel as usize];
        match channel {
            OutputStream::Stdout => self.printed.stdout.push(spill, bytes),
            OutputStream::Stderr => self.printed.stderr.push(spill, bytes),
        }
    }

    fn finish(mut self) -> io::Result<Printed> {
        for channel in [OutputStream::Stdout, OutputStream::Stderr] {
            // The rest of a line, or what may be printed now.
            if self.is_first() {
                self.print_unshown(channel)?;
            }
            let (tag, terminal) = (self.tag, &self.commands.lanes.shared.terminal);
            let rest =
                self.lines[channel as usize].finish(|line| terminal.write(tag, channel, line));
            self.commands.shown(rest)?;
        }
        Ok(self.printed)
    }

    fn is_first(&self) -> bool {
        let heads = self.commands.lane.gate.heads();
        heads.is_some_and(|heads| heads.is_first(self.number))
    }

    /// Prints the lines that are complete.
    fn print(&mut self, channel: OutputStream, bytes: &[u8]) -> io::Result<()> {
        let (tag, terminal) = (self.tag, &self.commands.lanes.shared.terminal);
        let write = |line: &[u8]| terminal.write(tag, channel, line);
        self.commands.shown(self.lines[channel as usize].push(bytes, write))
    }

    /// Prints what had to wait for the outputs of other jobs.
    fn print_unshown(&mut self, channel: OutputStream) -> io::Result<()> {
        let unshown = std::mem::take(&mut self.printed.unshown[channel as usize]);
        match unshown.is_empty() {
            true => Ok(()),
            false => unshown.write_to(&mut LinePrinter { sink: self, channel }),
        }
    }
}

/// Prints complete lines of a stream.
struct LinePrinter<'a, 'b> {
    sink: &'a mut StreamSink<'b>,
    channel: OutputStream,
}

impl Write for LinePrinter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.print(self.channel, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
