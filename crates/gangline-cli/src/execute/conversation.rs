//! The pipe to a warm worker: lines to it, lines from it.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};

use crate::execute::groups::{Groups, Occupant, Wish};
use crate::execute::process::{Leader, ProcessEnd, end_of};
use crate::execute::readiness::ready;
use crate::execute::running_time::RunningTime;
use crate::output::capture::{Captured, Spill};

/// A worker. Dropping it kills the worker's whole process group.
pub(crate) struct Conversation {
    groups: Arc<Groups>,
    worker: usize,
    leader: Leader,
    /// Whether the worker is known to have ended.
    has_ended: bool,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// A line that is being sent, and how much of it was. A worker may log before it has read all of a line.
    line: Vec<u8>,
    sent: usize,
    /// Bytes after the last complete line, and how many of them are known to have no line end.
    read: Vec<u8>,
    searched: usize,
}

/// Why no line was received.
#[derive(Debug)]
pub(crate) enum Silence {
    /// The worker ended.
    Ended(ProcessEnd),
    /// The worker closed its standard output and did not end.
    Closed,
    /// The worker closed its standard input before it had read its line, and did not end.
    Deaf,
    /// The worker exceeded this time.
    TimedOut(Duration),
    /// The line exceeded the allowed length.
    TooLong,
    /// The run is ending.
    Halted,
    Failed(io::Error),
}

/// The destination of what the worker prints outside the protocol.
pub(crate) struct Aside<'a> {
    pub(crate) stderr: &'a mut Captured,
    pub(crate) spill: &'a Arc<Spill>,
}

/// The maximum size of a result in bytes.
pub(crate) const LONGEST: usize = 64 << 20;

/// How long standard error is read after the worker has ended: its last messages arrive late.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Conversation {
    pub(crate) fn start(
        groups: &Arc<Groups>,
        worker: usize,
        mut command: Command,
    ) -> io::Result<Conversation> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let place = groups.place(worker, Occupant::Worker(worker));
        let mut child = command.process_group(0).spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = Leader::new(place, child)?;
        let conversation = Conversation {
            groups: Arc::clone(groups),
            worker,
            leader,
            has_ended: false,
            stdin,
            stdout,
            stderr,
            line: Vec::new(),
            sent: 0,
            read: Vec::new(),
            searched: 0,
        };
        // A worker that writes before it has read would deadlock with a blocking write.
        let unblocked =
            conversation.stdin.as_ref().map(|stdin| rustix::io::ioctl_fionbio(stdin, true));
        unblocked.transpose()?;
        Ok(conversation)
    }

    pub(crate) fn sent_now(&self) -> RunningTime {
        RunningTime::begin(&self.groups)
    }

    /// Begins to send a line, of which [`hear_line`](Self::hear_line) sends the rest.
    pub(crate) fn send(&mut self, line: Vec<u8>) -> Result<(), Silence> {
        (self.line, self.sent) = (line, 0);
        // The pipe mostly has room, so it is not asked first.
        self.say().map_err(Silence::Failed)
    }

    /// Waits for a line. The limit counts from `sent`.
    pub(crate) fn hear_line(
        &mut self,
        sent: &mut RunningTime,
        limit: &dyn Fn() -> Option<Duration>,
        aside: Aside<'_>,
    ) -> Result<Vec<u8>, Silence> {
        let Aside { stderr, spill } = aside;
        let mut deaf_at = None;
        loop {
            if let Some(line) = self.line() {
                return Ok(line);
            }
            if self.read.len() > LONGEST {
                return Err(Silence::TooLong);
            }
            if self.groups.wish_for(self.worker) != Wish::GoOn {
                return Err(Silence::Halted);
            }
            let left = match limit() {
                Some(limit) if sent.so_far(&self.groups) >= limit => {
                    return Err(Silence::TimedOut(limit));
                }
                limit => limit.map(|limit| sent.longest_wait(&self.groups, limit)),
            };
            if self.is_sending() && self.stdin.is_none() {
                deaf_at.get_or_insert_with(Instant::now);
            }
            // The worker may be about to end and to say why.
            let patience = deaf_at.map(|since: Instant| LAST_WORDS.saturating_sub(since.elapsed()));
            if patience.is_some_and(|patience| patience.is_zero()) {
                return Err(Silence::Deaf);
            }
            let left = left.into_iter().chain(patience).min();
            let wait = RunningTime::begin(&self.groups);
            let ready = self.wait(self.is_sending(), left).map_err(Silence::Failed)?;
            if let Some(left) = left {
                sent.leave_out(&self.groups, wait, left);
            }
            if ready.bell {
                self.groups.bell(self.worker).silence();
            }
            if ready.stderr {
                self.listen(stderr, spill).map_err(Silence::Failed)?;
            }
            if ready.stdin {
                self.say().map_err(Silence::Failed)?;
            }
            let read =
                if ready.stdout { self.hear().map_err(Silence::Failed)? } else { Heard::Some };
            // Its remaining output is read to the end.
            let is_over = read == Heard::End || ready.process && !ready.stdout;
            if is_over && !self.read[self.searched..].contains(&b'\n') {
                return Err(self.last_words(stderr, spill));
            }
        }
    }

    /// Whether it can take an item: it has not ended, reads, and has not written anything unasked.
    pub(crate) fn is_fit(&self) -> bool {
        let Some(stdin) = self.stdin.as_ref().filter(|_| self.read.is_empty()) else {
            return false;
        };
        let watched = [
            self.leader.running().map(|(_, process)| (process, PollFlags::IN)),
            self.stdout.as_ref().map(|stdout| (stdout.as_fd(), PollFlags::IN)),
            // With no events requested, `poll` reports only that the reader of a pipe is gone.
            Some((stdin.as_fd(), PollFlags::empty())),
        ];
        ready(watched, Some(Duration::ZERO)).is_ok_and(|ready| ready == [false; 3])
    }

    /// Closes the worker's input, and waits at most `longest` for its end. Returns its status if it has ended.
    pub(crate) fn finish(
        &mut self,
        longest: Duration,
        aside: &mut Aside<'_>,
    ) -> Option<ProcessEnd> {
        self.stdin = None;
        let is_stuck = |groups: &Groups, worker| groups.is_stuck(worker);
        let has_ended = self.watch_for(longest, is_stuck, aside);
        has_ended.then(|| self.leader.end().ok().map(end_of)).flatten()
    }

    /// The worker, unless it has ended. It leads a group of its own.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.leader.running().map(|(member, _)| member.pid())
    }

    /// Whether the worker has stopped, and is to end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.groups.is_stuck(self.worker)
    }

    /// Signals the worker, and kills it after `kill_after`. Returns its standard error until then.
    pub(crate) fn end(mut self, kill_after: Duration) -> Captured {
        self.stdin = None;
        let (mut stderr, spill) = (Captured::default(), Arc::new(Spill::default()));
        if let Some((member, _)) = self.leader.running() {
            member.send(Signal::TERM);
            // A stopped process cannot react to a signal.
            member.send(Signal::CONT);
            let aside = &mut Aside { stderr: &mut stderr, spill: &spill };
            self.watch_for(kill_after, |_, _| false, aside);
        }
        stderr
    }

    /// Reads the worker's output, so that a full pipe does not keep it from ending. Returns whether it has ended
    /// within `patience`, and before `is_given_up`.
    fn watch_for(
        &mut self,
        patience: Duration,
        is_given_up: fn(&Groups, usize) -> bool,
        aside: &mut Aside<'_>,
    ) -> bool {
        let until = Instant::now() + patience;
        while let Some(left) = until.checked_duration_since(Instant::now())
            && !is_given_up(&self.groups, self.worker)
        {
            let Ok(ready) = self.wait(false, Some(left)) else { return false };
            if ready.bell {
                self.groups.bell(self.worker).silence();
            }
            if ready.stdout && !self.hear().is_ok_and(|heard| heard == Heard::Some) {
                self.stdout = None;
            }
            if ready.stderr && self.listen(aside.stderr, aside.spill).is_err() {
                self.stderr = None;
            }
            self.read.clear();
            if ready.process {
                return true;
            }
            if self.groups.wish() == Wish::Kill {
                return false;
            }
        }
        false
    }

    /// Takes a line if a complete one has arrived.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.read[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.read.len();
            return None;
        };
        let rest = self.read.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.read, rest))
    }

    fn is_sending(&self) -> bool {
        self.sent < self.line.len()
    }

    fn say(&mut self) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        match stdin.write(&self.line[self.sent..]) {
            Ok(written) => self.sent += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It no longer reads. The exit is detected elsewhere.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn hear(&mut self) -> io::Result<Heard> {
        let Some(stdout) = &mut self.stdout else { return Ok(Heard::End) };
        let mut buffer = [0; 16 * 1_024];
        let read = stdout.read(&mut buffer)?;
        self.read.extend_from_slice(&buffer[..read]);
        Ok(if read == 0 { Heard::End } else { Heard::Some })
    }

    fn listen(&mut self, captured: &mut Captured, spill: &Arc<Spill>) -> io::Result<()> {
        let Some(stderr) = &mut self.stderr else { return Ok(()) };
        let mut buffer = [0; 16 * 1_024];
        let read = stderr.read(&mut buffer)?;
        if read == 0 {
            self.stderr = None;
        }
        captured.push(spill, &buffer[..read])
    }

    /// Standard output has ended. Returns why, with what standard error has.
    fn last_words(&mut self, captured: &mut Captured, spill: &Arc<Spill>) -> Silence {
        self.stdout = None;
        let until = Instant::now() + LAST_WORDS;
        let mut ended = false;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let ready = match self.wait(false, Some(left)) {
                Ok(ready) => ready,
                Err(error) => return Silence::Failed(error),
            };
            if ready.bell {
                self.groups.bell(self.worker).silence();
            }
            if ready.stderr && self.listen(captured, spill).is_err() {
                break;
            }
            ended |= ready.process;
            if ended && self.stderr.is_none() {
                break;
            }
            if ended {
                // Otherwise it would be readable from now on, and the wait would spin.
                self.has_ended = true;
            }
        }
        if !ended {
            return Silence::Closed;
        }
        match self.leader.end() {
            Ok(status) => Silence::Ended(end_of(status)),
            Err(error) => Silence::Failed(error),
        }
    }

    fn wait(&self, speaking: bool, longest: Option<Duration>) -> io::Result<ReadyPipes> {
        let reads = |fd| (fd, PollFlags::IN);
        let stdin = self.stdin.as_ref().filter(|_| speaking);
        let process = self.leader.running().filter(|_| !self.has_ended);
        let watched = [
            Some(reads(self.groups.bell(self.worker).as_fd())),
            process.map(|(_, fd)| reads(fd)),
            stdin.map(|fd| (fd.as_fd(), PollFlags::OUT)),
            self.stdout.as_ref().map(|fd| reads(fd.as_fd())),
            self.stderr.as_ref().map(|fd| reads(fd.as_fd())),
        ];
        let [bell, process, stdin, stdout, stderr] = ready(watched, longest)?;
        Ok(ReadyPipes { bell, process, stdin, stdout, stderr })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Some,
    End,
}

#[derive(Debug, Clone, Copy, Default)]
struct ReadyPipes {
    bell: bool,
    process: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}
