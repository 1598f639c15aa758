//! A worker that was started once: lines to it, lines from it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::capture::{Captured, Spill};
use super::groups::{Groups, Wish};
use super::process::{End, Leader, end_of};
use super::readiness::ready;

/// A worker, which is killed, with all of its group, when this is dropped.
pub(super) struct Conversation {
    groups: Arc<Groups>,
    worker: usize,
    leader: Leader,
    /// `None` once it is known that it has ended.
    process: Option<OwnedFd>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// What came behind the last line, and how much of that is known to have no line end.
    read: Vec<u8>,
    searched: usize,
}

/// Why there is no line.
#[derive(Debug)]
pub(super) enum Silence {
    /// It ended.
    Ended(End),
    /// It closed its standard output, and did not end.
    Closed,
    /// It closed its standard input before it had read its line, and did not end.
    Deaf,
    /// It took longer than this.
    TimedOut(Duration),
    /// The line was longer than is allowed.
    TooLong,
    /// The run is being ended.
    Halted,
    Failed(io::Error),
}

/// How a worker is had end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is no more input.
    OfInput,
    /// It is asked to.
    Asked,
}

/// Where what it says beside the protocol goes.
pub(super) struct Aside<'a> {
    pub(super) stderr: &'a mut Captured,
    pub(super) spill: &'a Arc<Spill>,
}

/// A result may have so many bytes.
const LONGEST: usize = 64 << 20;

/// What it says on standard error beside an answer arrives within this after it has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Conversation {
    pub(super) fn start(
        groups: &Arc<Groups>,
        worker: usize,
        mut command: Command,
    ) -> io::Result<Conversation> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let place = groups.place(worker);
        let mut child = command.process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = Leader::new(place, child);
        let conversation = Conversation {
            groups: Arc::clone(groups),
            worker,
            leader,
            process: Some(pidfd_open(pid, PidfdFlags::empty())?),
            stdin,
            stdout,
            stderr,
            read: Vec::new(),
            searched: 0,
        };
        // A worker that writes before it has read would have both wait for ever.
        let unblocked =
            conversation.stdin.as_ref().map(|stdin| rustix::io::ioctl_fionbio(stdin, true));
        unblocked.transpose()?;
        Ok(conversation)
    }

    /// Says a line and waits for one.
    pub(super) fn ask(
        &mut self,
        line: &[u8],
        limit: &dyn Fn() -> Option<Duration>,
        aside: Aside<'_>,
    ) -> Result<Vec<u8>, Silence> {
        let Aside { stderr, spill } = aside;
        let (started, stopped) = (Instant::now(), self.groups.stopped());
        let mut unsaid = line;
        let mut deaf_at = None;
        loop {
            if let Some(line) = self.line() {
                return Ok(line);
            }
            if self.read.len() > LONGEST {
                return Err(Silence::TooLong);
            }
            if self.groups.wish() != Wish::GoOn {
                return Err(Silence::Halted);
            }
            let running = started.elapsed().saturating_sub(self.groups.stopped() - stopped);
            let left = match limit() {
                Some(limit) if running >= limit => return Err(Silence::TimedOut(limit)),
                limit => limit.map(|limit| limit - running),
            };
            // It may be about to end, and to say why.
            let patience = deaf_at.map(|since: Instant| LAST_WORDS.saturating_sub(since.elapsed()));
            if patience.is_some_and(|patience| patience.is_zero()) {
                return Err(Silence::Deaf);
            }
            let left = left.into_iter().chain(patience).min();
            let ready = self.wait(!unsaid.is_empty(), left).map_err(Silence::Failed)?;
            if ready.bell {
                self.groups.bell(self.worker).silence();
            }
            if ready.stderr {
                self.listen(stderr, spill).map_err(Silence::Failed)?;
            }
            if ready.stdin {
                unsaid = self.say(unsaid).map_err(Silence::Failed)?;
                if self.stdin.is_none() {
                    deaf_at.get_or_insert_with(Instant::now);
                }
            }
            let read =
                if ready.stdout { self.hear().map_err(Silence::Failed)? } else { Heard::Some };
            // What it had said when it ended is read to the end.
            let is_over = read == Heard::End || ready.process && !ready.stdout;
            if is_over && !self.read[self.searched..].contains(&b'\n') {
                return Err(self.last_words(stderr, spill));
            }
        }
    }

    /// Whether it can be asked: it has not ended, and has said nothing that nobody asked for.
    pub(super) fn is_fit(&self) -> bool {
        let ready = self.wait(false, Some(Duration::ZERO));
        let is_silent = ready.is_ok_and(|ready| !ready.process && !ready.stdout);
        self.read.is_empty() && is_silent && self.is_heard()
    }

    /// Whether it has not closed its standard input.
    fn is_heard(&self) -> bool {
        // Asked for nothing, a pipe says only that nobody reads it any more.
        let stdin = self.stdin.as_ref().map(|stdin| (stdin.as_fd(), PollFlags::empty()));
        stdin.is_some() && ready([stdin], Some(Duration::ZERO)).is_ok_and(|[deaf]| !deaf)
    }

    /// Has it end: by itself if its input has come to an end, else when it is asked to, and after so long by
    /// force. What it ends with, and what it says until then.
    pub(super) fn end(mut self, how: Ending, patience: Duration) -> (Option<End>, Captured) {
        self.stdin = None;
        let (mut said, spill) = (Captured::default(), Arc::new(Spill::default()));
        let ended = match how {
            Ending::OfInput => {
                self.watch_for(patience, &mut said, &spill)
                    || self.terminate(patience, &mut said, &spill)
            }
            Ending::Asked => self.terminate(patience, &mut said, &spill),
        };
        let status = self.leader.end().ok().map(end_of).filter(|_| ended);
        (status, said)
    }

    fn terminate(&mut self, patience: Duration, said: &mut Captured, spill: &Arc<Spill>) -> bool {
        let Some(member) = self.leader.member() else { return true };
        member.send(Signal::TERM);
        // One that was stopped cannot do as it is asked.
        member.send(Signal::CONT);
        self.watch_for(patience, said, spill)
    }

    /// Reads what it says, so that it can end: whether it does within that time.
    fn watch_for(&mut self, patience: Duration, said: &mut Captured, spill: &Arc<Spill>) -> bool {
        let until = Instant::now() + patience;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(ready) = self.wait(false, Some(left)) else { return false };
            if ready.bell {
                self.groups.bell(self.worker).silence();
            }
            if ready.stdout && !self.hear().is_ok_and(|heard| heard == Heard::Some) {
                self.stdout = None;
            }
            if ready.stderr && self.listen(said, spill).is_err() {
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

    /// A line, if one is whole.
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

    fn say<'l>(&mut self, line: &'l [u8]) -> io::Result<&'l [u8]> {
        let Some(stdin) = &mut self.stdin else { return Ok(line) };
        match stdin.write(line) {
            Ok(written) => Ok(&line[written..]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(line),
            // It reads no more. Whether it has ended is seen elsewhere.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stdin = None;
                Ok(line)
            }
            Err(error) => Err(error),
        }
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

    /// It says nothing any more on standard output: why, with what it says on standard error.
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
                // Readable from now on, which would keep the wait from being one.
                self.process = None;
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

    fn wait(&self, speaking: bool, longest: Option<Duration>) -> io::Result<Ready> {
        let reads = |fd| (fd, PollFlags::IN);
        let stdin = self.stdin.as_ref().filter(|_| speaking);
        let watched = [
            Some(reads(self.groups.bell(self.worker).as_fd())),
            self.process.as_ref().map(|fd| reads(fd.as_fd())),
            stdin.map(|fd| (fd.as_fd(), PollFlags::OUT)),
            self.stdout.as_ref().map(|fd| reads(fd.as_fd())),
            self.stderr.as_ref().map(|fd| reads(fd.as_fd())),
        ];
        let [bell, process, stdin, stdout, stderr] = ready(watched, longest)?;
        Ok(Ready { bell, process, stdin, stdout, stderr })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Some,
    End,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    bell: bool,
    process: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}
