//! One child process: its descriptors, and its end.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::child_process::{ChildProcess, ChildStart};
use super::frame::{Frame, FrameKind, FrameReader};
use super::memory_reader::{MemoryReader, WholeFrame};
use super::memory_writer::{FrameWithBytes, MemoryWriter, put_note};
use super::message::Nonce;
use super::outgoing::{Outgoing, receive};
use super::printed::PrintedPipe;
use super::processes::Processes;
use super::spare_buffers::SpareBuffers;
use crate::concurrency::bell::Bell;
use crate::error::{Crash, FrameError};

/// How long a killed process may take to go; then it is left to itself. It may be in an uninterruptible sleep
/// in a driver.
const REAPED_WITHIN: Duration = Duration::from_secs(2);

/// How long a process that has closed its connection may take to end by itself.
const ENDED_WITHIN: Duration = Duration::from_millis(500);

/// How often an idle child is asked for what it has let go, while it may use something.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// How many memories a child lends from: its own.
const MOST_MEMORIES: usize = 1;

/// A running child process.
#[derive(Debug)]
pub(super) struct Child {
    process: ChildProcess,
    pid: Pid,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// Does not block.
    socket: UnixStream,
    /// What waits for room in the socket.
    outgoing: Outgoing,
    memory_writer: MemoryWriter,
    /// Cuts what was read into frames.
    reader: FrameReader,
    memory_reader: MemoryReader,
    /// Frames that were read, and not taken yet.
    frames: VecDeque<Frame>,
    printed: PrintedPipe,
    state: ChildState,
    traffic: Traffic,
    /// The buffer of each read.
    scratch: Box<[u8]>,
}

/// The bytes that went to a child, and came from it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) down: u64,
    pub(super) up: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChildState {
    Running,
    /// It has closed the connection, or has ended.
    Gone,
    /// Its bytes are no messages.
    Damaged(FrameError),
    Reaped,
}

/// What a wait for a child ends with.
#[derive(Debug)]
pub(super) enum Wake {
    Frame(Frame),
    /// The bell has rung.
    Bell,
    /// The time has come until which to wait.
    Time,
    /// The child has ended, or has closed the connection.
    Gone,
    Damaged(FrameError),
}

impl Child {
    /// Starts a process. Its `Hello` is already on its way.
    pub(super) fn start(start: &ChildStart<'_>) -> io::Result<Self> {
        let ChildStart { options, hello, producer, .. } = start;
        let nonce = nonce();
        let most = options.max_frame as usize;
        let (socket, theirs) = UnixStream::pair()?;
        // The `Hello` fits into the socket's buffer, which is empty.
        let bytes = hello.encode(nonce, most).map_err(io::Error::other)?;
        (&socket).write_all(&bytes)?;
        socket.set_nonblocking(true)?;
        let (pipe, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let process = ChildProcess::start(start, nonce, theirs, writer)?;
        let printed = PrintedPipe::new(pipe, *producer, options.printed.clone());
        let reader = MemoryReader::new(most, MOST_MEMORIES, hello.spare_memory);
        Child::of(process, socket, printed, (reader, options))
    }

    fn of(
        mut process: ChildProcess,
        socket: UnixStream,
        printed: PrintedPipe,
        (memory_reader, options): (MemoryReader, &Processes),
    ) -> io::Result<Self> {
        let pid = process.pid();
        let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let pidfd = opened.inspect_err(|_| {
            process.kill();
            _ = process.wait();
        })?;
        let memory = options.memory.clone();
        Ok(Child {
            process,
            pid,
            pidfd,
            socket,
            outgoing: Outgoing::default(),
            memory_writer: MemoryWriter::new(memory, memory_reader.spares.clone()),
            reader: FrameReader::new(options.max_frame as usize),
            memory_reader,
            frames: VecDeque::new(),
            printed,
            state: ChildState::Running,
            traffic: Traffic::default(),
            scratch: vec![0; 256 << 10].into(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The bytes since the last call of this.
    pub(super) fn take_traffic(&mut self) -> Traffic {
        let stored = std::mem::take(&mut self.memory_writer.stored);
        let fetched = std::mem::take(&mut self.memory_reader.fetched);
        let Traffic { down, up } = std::mem::take(&mut self.traffic);
        Traffic { down: down + stored, up: up + fetched }
    }

    /// The buffers for frames and their bodies.
    pub(super) fn spares(&self) -> &SpareBuffers {
        &self.memory_reader.spares
    }

    /// Whether bytes wait for room in the socket.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Has the next waits write these messages.
    pub(super) fn send(&mut self, messages: impl IntoIterator<Item = FrameWithBytes>) {
        self.memory_reader.put_notes(&mut self.outgoing);
        for message in messages {
            self.memory_writer.put(message, &mut self.outgoing);
        }
        // Mostly there is room at once.
        self.write();
    }

    /// Whether it runs, as far as can be seen without waiting.
    ///
    /// Frames that are there do not show it: a child may have answered a recall, and died. They are read later, where a frame
    /// that nothing has asked for is an error.
    pub(super) fn is_alive(&mut self) -> bool {
        let ready = self.poll(None, Some(Instant::now()));
        self.take_in(&ready);
        self.state == ChildState::Running
    }

    /// Waits for the next frame, the bell, a time or the end. Meanwhile writes what is unwritten, and logs what is
    /// printed.
    pub(super) fn wait(&mut self, bell: Option<&EventBell>, until: Option<Instant>) -> Wake {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Wake::Frame(frame);
            }
            match &self.state {
                ChildState::Running => {}
                ChildState::Damaged(error) => return Wake::Damaged(error.clone()),
                ChildState::Gone | ChildState::Reaped => return Wake::Gone,
            }
            let due = self.tidy();
            let ready = self.poll(bell, [until, due].into_iter().flatten().min());
            self.take_in(&ready);
            if ready.bell {
                return Wake::Bell;
            }
            // Also if something was ready: a process that prints without end makes it so each time.
            let is_time = until.is_some_and(|until| until <= Instant::now());
            if is_time && self.frames.is_empty() && self.state == ChildState::Running {
                return Wake::Time;
            }
        }
    }

    /// Takes care of the memory of both sides while nothing waits for the child: says what this process has let go, hears what
    /// the child has, and gives pages back. Returns when to call it again, if it is to be.
    pub(super) fn tidy_idle(&mut self) -> Option<Instant> {
        if self.memory_writer.has_lent() {
            let ready = self.poll(None, Some(Instant::now()));
            self.take_in(&ready);
        }
        let asks = self.memory_writer.has_lent().then(|| Instant::now() + ASKED_EVERY);
        [self.tidy(), asks].into_iter().flatten().min()
    }

    /// Says what this process has let go, if no message has for long, and gives pages back. Returns when to call it again, if
    /// it is to be.
    fn tidy(&mut self) -> Option<Instant> {
        // Small messages cost no look at a clock.
        if !self.memory_reader.is_used() && !self.memory_writer.is_used() {
            return None;
        }
        let now = Instant::now();
        let (notes, tells) = self.memory_reader.take_late_notes(now);
        if !notes.is_empty() {
            notes.iter().for_each(|note| put_note(FrameKind::Memory, note, &mut self.outgoing));
            self.write();
        }
        [tells, self.memory_writer.age(now)].into_iter().flatten().min()
    }

    /// Reads and writes what can be read and written without waiting, and notes the end of the process.
    fn take_in(&mut self, ready: &ChildReady) {
        if ready.printed {
            self.printed.read();
        }
        if ready.writable {
            self.write();
        }
        // A forked process may hold the socket open, so the end of the process counts too. All that it has
        // written is there by then.
        if ready.readable || ready.ended {
            self.read();
            if !self.frames.is_empty() {
                self.printed.read_before_answer();
            }
        }
        if ready.ended && self.state == ChildState::Running {
            self.state = ChildState::Gone;
        }
    }

    fn poll(&self, bell: Option<&EventBell>, until: Option<Instant>) -> ChildReady {
        let out = if self.has_unwritten() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::new(&self.socket, PollFlags::IN | out),
            PollFd::new(&self.pidfd, PollFlags::IN),
        ];
        if self.printed.is_open() {
            fds.push(PollFd::new(&self.printed.pipe, PollFlags::IN));
        }
        if let Some(bell) = bell {
            fds.push(PollFd::new(bell, PollFlags::IN));
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(timespec);
        // Interrupted: as if nothing were ready.
        _ = poll(&mut fds, timeout.as_ref());
        let seen: Vec<_> = fds.iter().map(PollFd::revents).collect();
        let more = &seen[2..];
        let (printed, more) = match self.printed.is_open() {
            true => (!more[0].is_empty(), &more[1..]),
            false => (false, more),
        };
        ChildReady {
            readable: seen[0].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            writable: seen[0].contains(PollFlags::OUT),
            ended: !seen[1].is_empty(),
            printed,
            bell: more.first().is_some_and(|flags| !flags.is_empty()),
        }
    }

    fn write(&mut self) {
        while !self.outgoing.is_empty() {
            match self.outgoing.write(&self.socket) {
                Ok(length) => self.traffic.down += length as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The end of the process tells why. What it has answered is read first.
                Err(_) => break,
            }
        }
        self.outgoing = Outgoing::default();
    }

    /// Reads all that is there.
    fn read(&mut self) {
        while self.state == ChildState::Running {
            let arrived = &mut self.memory_reader.arrived;
            let before = arrived.len();
            match receive(&self.socket, &mut self.scratch, arrived) {
                Ok(0) => {
                    self.state =
                        self.reader.end().map_or_else(ChildState::Damaged, |()| ChildState::Gone);
                }
                Ok(length) => {
                    // A read ends with a descriptor.
                    let is_cut = arrived.len() > before;
                    self.traffic.up += length as u64;
                    if let Err(error) = self.cut_frames(length) {
                        self.state = ChildState::Damaged(error);
                    }
                    // That was all: another read would only say so.
                    if length < self.scratch.len() && !is_cut {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.state = ChildState::Gone,
            }
        }
    }

    /// Cuts frames out of what was read last.
    fn cut_frames(&mut self, length: usize) -> Result<(), FrameError> {
        let mut bytes = &self.scratch[..length];
        while let Some(frame) = self.reader.feed(&mut bytes)? {
            match self.memory_reader.take(frame)? {
                WholeFrame::Message(frame) => self.frames.push_back(frame),
                WholeFrame::Note(note) => self.memory_writer.heed(&note)?,
                WholeFrame::Taken => {}
            }
        }
        Ok(())
    }

    /// Kills the process and all that it has started in its group.
    pub(super) fn kill(&self) {
        if self.state != ChildState::Reaped {
            // Not yet reaped, so its id and its group's are its own. Fails only if the group is gone.
            _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Waits for the end of a process that is about to end, and kills it after `grace`.
    pub(super) fn reap(&mut self, grace: Duration) -> Crash {
        if !self.has_ended_within(grace) {
            self.kill();
        }
        let status = self.collect();
        let (signal, status) = match status {
            Some(status) => (status.signal(), status.code()),
            None => (None, None),
        };
        Crash::new(signal, status, self.printed.tail())
    }

    /// Waits for the end of a process that has closed the connection.
    pub(super) fn reap_gone(&mut self) -> Crash {
        self.reap(ENDED_WITHIN)
    }

    /// Takes the status of a process that has ended or was killed. `None` if it does not go.
    fn collect(&mut self) -> Option<ExitStatus> {
        if self.state == ChildState::Reaped || !self.has_ended_within(REAPED_WITHIN) {
            if self.state != ChildState::Reaped {
                tracing::warn!(
                    pid = self.pid(),
                    "a killed worker does not end; it is left to itself"
                );
                self.state = ChildState::Reaped;
            }
            return None;
        }
        // Before it is reaped, while its group's id cannot be another's: what a hook has started goes too.
        self.kill();
        let status = self.process.wait();
        self.state = ChildState::Reaped;
        self.printed.read_rest();
        status.ok()
    }

    /// Meanwhile takes what it prints: a full pipe would keep it from ending.
    fn has_ended_within(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = timespec(end.saturating_duration_since(Instant::now()));
            let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
            if self.printed.is_open() {
                fds.push(PollFd::new(&self.printed.pipe, PollFlags::IN));
            }
            let count = poll(&mut fds, Some(&left));
            let has_ended = !fds[0].revents().is_empty();
            match count {
                Ok(_) if has_ended => return true,
                Ok(0) => return false,
                Ok(_) if end <= Instant::now() => return false,
                Ok(_) => self.printed.read(),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        self.collect();
    }
}

/// What a look at the descriptors has found.
#[derive(Debug)]
struct ChildReady {
    readable: bool,
    writable: bool,
    ended: bool,
    printed: bool,
    bell: bool,
}

/// Differs for each process that is started. It keeps honest processes apart; it is no secret.
fn nonce() -> Nonce {
    let half = |which: &str| u128::from(RandomState::new().hash_one(OsStr::new(which)));
    Nonce(half("high") << 64 | half("low"))
}

pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i32::MAX.into(), tv_nsec: 0 })
}

/// A bell with a descriptor that is readable while it has rung.
#[derive(Debug)]
pub(super) struct EventBell(OwnedFd);

impl EventBell {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventBell(rustix::event::eventfd(0, flags)?))
    }

    /// Silences it. What was changed before the last ring can be seen now.
    pub(super) fn silence(&self) {
        // Fails if it has not rung.
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell for EventBell {
    fn ring(&self) {
        // Fails only if it has rung 2^64 - 2 times since it was last silenced.
        _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
