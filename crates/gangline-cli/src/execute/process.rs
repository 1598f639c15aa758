//! One process in a group of its own: started, read until it ends, and ended early if necessary.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};

use crate::args::running::TermSequence;
use crate::execute::exit_watch::ExitWatch;
use crate::execute::groups::{Groups, Member, Occupant, ProcessPlace, Wish};
use crate::execute::readiness::ready;
use crate::execute::running_time::RunningTime;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Exited(i32),
    Signalled(i32),
    /// It was ended because it exceeded this time.
    TimedOut(Duration),
    /// It was ended because it printed more than this.
    PrintedTooMuch(u64),
    /// It was ended because memory was scarce, to run again later.
    Recalled,
    /// It was ended with the run.
    Halted,
}

/// The stream that a process printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

/// The state that a slot uses for all of its processes.
pub(crate) struct Nursery<'a> {
    pub(crate) groups: &'a Arc<Groups>,
    pub(crate) worker: usize,
    /// The number of the job.
    pub(crate) job: u64,
    /// How a process is ended.
    pub(crate) ending: &'a TermSequence,
    pub(crate) streams: Streams,
    pub(crate) buffer: &'a mut Vec<u8>,
}

/// Where a process prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// To this process, which passes it on.
    Piped,
    /// Where this process prints.
    Inherited,
}

/// The limits that end a process early.
pub(crate) struct ProcessLimits<'a> {
    /// Evaluated again whenever the slot's bell rings.
    pub(crate) time: &'a dyn Fn() -> Option<Duration>,
    pub(crate) output: Option<u64>,
}

impl ProcessLimits<'_> {
    fn passed_by(&self, printed: u64) -> Option<ProcessEnd> {
        self.output.filter(|most| printed > *most).map(ProcessEnd::PrintedTooMuch)
    }
}

/// How long streams are read after the job ended: a grandchild may still hold them.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// More than the capacity of a pipe.
const BUFFER: usize = 64 * 1_024;

/// An empty standard input. An empty container may lack `/dev/null`; there it is a pipe without a writer.
pub(crate) fn no_input() -> Stdio {
    let pipe = || io::pipe().map(|(reader, _)| Stdio::from(reader));
    // If both fail, starting the process returns the error of `/dev/null`.
    let null = File::open("/dev/null").map(Stdio::from);
    null.or_else(|_| pipe()).unwrap_or_else(|_| Stdio::null())
}

/// Starts a process and passes its output to `sink`. Returns when the process and its whole group have ended.
///
/// The outer error is one of starting; an error of `sink` ends the process.
pub(crate) fn run(
    nursery: Nursery<'_>,
    mut command: Command,
    limits: &ProcessLimits<'_>,
    sink: &mut dyn FnMut(OutputStream, &[u8]) -> io::Result<()>,
) -> io::Result<(ProcessEnd, io::Result<()>)> {
    let Nursery { groups, worker, job, ending: sequence, streams, buffer } = nursery;
    buffer.resize(BUFFER, 0);
    command.stdin(no_input()).process_group(0);
    if streams == Streams::Piped {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let place = groups.place(worker, Occupant::Job(job));
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut leader = Leader::new(place, child)?;
    let (member, process) = leader.running().expect("it has not been waited for");
    let mut watch = ProcessWatch {
        time: RunningTime::begin(groups),
        groups,
        worker,
        process,
        stdout: stdout.map(|pipe| Box::new(pipe) as Box<dyn Pipe>),
        stderr: stderr.map(|pipe| Box::new(pipe) as Box<dyn Pipe>),
        exited: None,
        ending: None,
        printed: 0,
        sequence,
    };
    let read = watch.attend(member, limits, buffer, sink);
    let (ending, printed) = (watch.ending, watch.printed);
    drop(watch);
    let end = match (ending, end_of(leader.end()?)) {
        (Some(ending), _) => ending.why,
        // It ended before it could be killed.
        (None, end) => limits.passed_by(printed).unwrap_or(match end {
            ProcessEnd::Signalled(_) if groups.wish() == Wish::Kill => ProcessEnd::Halted,
            end => end,
        }),
    };
    Ok((end, read))
}

/// The leader of a group. Dropping it kills the rest of the group.
pub(crate) struct Leader {
    child: Child,
    /// `None` once it has been reaped.
    member: Option<Member>,
    /// Set while there is a member, unless the start has failed.
    exit: Option<ExitWatch>,
}

impl Leader {
    pub(crate) fn new(place: ProcessPlace, child: Child) -> io::Result<Leader> {
        let pid = Pid::from_child(&child);
        let mut leader = Leader { child, member: Some(place.enter(pid)), exit: None };
        leader.exit = Some(ExitWatch::new(pid)?);
        Ok(leader)
    }

    /// The group, and a descriptor that is readable once the leader has ended. `None` once it has been reaped.
    pub(crate) fn running(&self) -> Option<(&Member, BorrowedFd<'_>)> {
        Some((self.member.as_ref()?, self.exit.as_ref()?.as_fd()))
    }

    /// Kills the rest of the group, and reaps the leader.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(member) = self.member.take() {
            // The process number is not reused before it is reaped.
            member.send(Signal::KILL);
        }
        if let Some(exit) = self.exit.take() {
            exit.close();
        }
        self.child.wait()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.member.is_some() {
            let _ = self.end();
        }
    }
}

pub(crate) fn end_of(status: ExitStatus) -> ProcessEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Exited(code),
        (None, signal) => ProcessEnd::Signalled(signal.unwrap_or_default()),
    }
}

trait Pipe: Read + AsFd {}

impl<P: Read + AsFd> Pipe for P {}

struct ProcessWatch<'a> {
    time: RunningTime,
    groups: &'a Arc<Groups>,
    worker: usize,
    process: BorrowedFd<'a>,
    stdout: Option<Box<dyn Pipe>>,
    stderr: Option<Box<dyn Pipe>>,
    exited: Option<Instant>,
    ending: Option<EndRequest>,
    printed: u64,
    sequence: &'a TermSequence,
}

/// The process was asked to end.
#[derive(Debug, Clone, Copy)]
struct EndRequest {
    why: ProcessEnd,
    /// The number of signals sent.
    step: usize,
    /// When the next one is sent; `None` once it was killed.
    next_at: Option<Instant>,
}

impl EndRequest {
    fn signal(&mut self, sequence: &TermSequence, member: &Member) {
        let (signal, pause) = sequence.step(self.step);
        self.step += 1;
        member.send(signal);
        self.next_at = (signal != Signal::KILL).then(|| Instant::now() + pause);
    }
}

/// The descriptors to watch.
#[derive(Debug, Clone, Copy, Default)]
struct ReadyDescriptors {
    process: bool,
    stdout: bool,
    stderr: bool,
    bell: bool,
}

impl ProcessWatch<'_> {
    fn attend(
        &mut self,
        member: &Member,
        limits: &ProcessLimits<'_>,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(OutputStream, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut told = Ok(());
        while !self.is_over() {
            self.judge(member, limits, told.is_err());
            let ready = self.wait_until(self.next_look(limits))?;
            if ready.bell {
                self.groups.bell(self.worker).silence();
                // What it has printed may be wanted now.
                told = told.and_then(|()| sink(OutputStream::Stdout, &[]));
                told = told.and_then(|()| sink(OutputStream::Stderr, &[]));
            }
            if ready.process {
                self.exited.get_or_insert_with(Instant::now);
            }
            for (is_ready, channel) in
                [(ready.stdout, OutputStream::Stdout), (ready.stderr, OutputStream::Stderr)]
            {
                if is_ready {
                    let room = limits.output.map(|most| most.saturating_sub(self.printed));
                    let read = self.read(channel, buffer)?;
                    let wanted =
                        room.map_or(read, |room| read.min(usize::try_from(room).unwrap_or(read)));
                    // After the first failure, no more output is passed on.
                    told = told.and_then(|()| sink(channel, &buffer[..wanted]));
                }
            }
        }
        told
    }

    /// Whether it has ended and its streams are closed.
    fn is_over(&self) -> bool {
        let silent = self.stdout.is_none() && self.stderr.is_none();
        self.exited.is_some_and(|exited| silent || exited.elapsed() >= LAST_WORDS)
    }

    /// Asks it to end, or kills it, if that is due.
    fn judge(&mut self, member: &Member, limits: &ProcessLimits<'_>, untold: bool) {
        if self.exited.is_some() {
            return;
        }
        if let Some(ending) = &mut self.ending {
            if ending.next_at.is_some_and(|at| at <= Instant::now()) {
                ending.signal(self.sequence, member);
            }
            return;
        }
        let why = match (self.groups.wish_for(self.worker), (limits.time)()) {
            (Wish::End | Wish::Kill, _) => ProcessEnd::Halted,
            (Wish::GoOn, Some(limit)) if self.time.so_far(self.groups) >= limit => {
                ProcessEnd::TimedOut(limit)
            }
            _ => match limits.passed_by(self.printed) {
                Some(end) => end,
                None if self.groups.is_recalled(self.worker) => ProcessEnd::Recalled,
                None if untold => ProcessEnd::Halted,
                None => return,
            },
        };
        let mut ending = EndRequest { why, step: 0, next_at: None };
        ending.signal(self.sequence, member);
        self.ending = Some(ending);
        // A stopped process cannot react to a signal.
        member.send(Signal::CONT);
    }

    /// The time until the next deadline.
    fn next_look(&self, limits: &ProcessLimits<'_>) -> Option<Duration> {
        if let Some(exited) = self.exited {
            return Some(LAST_WORDS.saturating_sub(exited.elapsed()));
        }
        match &self.ending {
            Some(ending) => ending.next_at.map(|at| at.saturating_duration_since(Instant::now())),
            None => (limits.time)().map(|limit| self.time.longest_wait(self.groups, limit)),
        }
    }

    /// Waits, and leaves the time out for which this process was stopped meanwhile.
    fn wait_until(&mut self, longest: Option<Duration>) -> io::Result<ReadyDescriptors> {
        let wait = RunningTime::begin(self.groups);
        let ready = self.wait(longest)?;
        if let Some(longest) = longest {
            self.time.leave_out(self.groups, wait, longest);
        }
        Ok(ready)
    }

    fn wait(&self, longest: Option<Duration>) -> io::Result<ReadyDescriptors> {
        let watched = [
            Some(self.groups.bell(self.worker).as_fd()),
            Some(self.process).filter(|_| self.exited.is_none()),
            self.stdout.as_ref().map(|pipe| pipe.as_fd()),
            self.stderr.as_ref().map(|pipe| pipe.as_fd()),
        ];
        let watched = watched.map(|fd| fd.map(|fd| (fd, PollFlags::IN)));
        let [bell, process, stdout, stderr] = ready(watched, longest)?;
        Ok(ReadyDescriptors { process, stdout, stderr, bell })
    }

    /// Reads the available bytes; none means the end of the stream.
    fn read(&mut self, channel: OutputStream, buffer: &mut [u8]) -> io::Result<usize> {
        let pipe = match channel {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let Some(stream) = pipe else { return Ok(0) };
        let read = match stream.read(buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error),
        };
        if read == 0 {
            *pipe = None;
        }
        self.printed += read as u64;
        Ok(read)
    }
}
