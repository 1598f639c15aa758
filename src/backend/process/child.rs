//! One child process: its descriptors, and its end.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::connection::VARIABLE;
use super::frame::{Frame, FrameReader};
use super::message::{Hello, Nonce};
use super::printed::PrintedPipe;
use super::processes::Processes;
use crate::concurrency::bell::Bell;
use crate::error::{Crash, FrameError};

/// How long a killed process may take to go; then it is left to itself. It may be in an uninterruptible sleep
/// in a driver.
const REAPED_WITHIN: Duration = Duration::from_secs(2);

/// How long a process that has closed its connection may take to end by itself.
const ENDED_WITHIN: Duration = Duration::from_millis(500);

/// A running child process.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    pid: Pid,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// Does not block.
    socket: UnixStream,
    /// The bytes that wait for room in the socket, behind the first `written`, which have gone.
    unwritten: Vec<u8>,
    written: usize,
    /// Cuts what was read into frames.
    reader: FrameReader,
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

/// The program of a child, and what it is told at its start.
pub(super) struct ChildStart<'a> {
    pub(super) options: &'a Processes,
    pub(super) hello: &'a Hello,
    pub(super) cuda_visible: Option<&'a str>,
    /// The number of threads for rayon and candle, unless the user has set it.
    pub(super) threads: Option<(&'static str, String)>,
    pub(super) producer: usize,
}

impl Child {
    /// Starts a process. Its `Hello` is already on its way.
    pub(super) fn start(start: &ChildStart<'_>) -> io::Result<Self> {
        let ChildStart { options, hello, cuda_visible, threads, producer } = start;
        let nonce = nonce();
        let most = options.max_frame as usize;
        let (socket, theirs) = UnixStream::pair()?;
        // The `Hello` fits into the socket's buffer, which is empty.
        let bytes = hello.encode(nonce, most).map_err(io::Error::other)?;
        (&socket).write_all(&bytes)?;
        socket.set_nonblocking(true)?;
        let (pipe, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new(program(options));
        command.args(&options.args).env_remove("GANGLINE_NATS");
        if let Some(name) = env::args_os().next().filter(|_| options.program.is_none()) {
            command.arg0(name);
        }
        if let Some(cuda_visible) = cuda_visible {
            command.env("CUDA_VISIBLE_DEVICES", cuda_visible);
        }
        if let Some((name, threads)) = threads {
            command.env(name, threads);
        }
        for (name, value) in &options.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env(VARIABLE, format!("{:x}", nonce.0))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(writer.try_clone()?))
            .stderr(Stdio::from(writer))
            // A group of its own: Ctrl-C reaches the coordinator only, and a kill all that a hook has started.
            .process_group(0);
        let process = command.spawn()?;
        // The command holds the other end of the pipe, which would never reach its end.
        drop(command);
        Child::of(process, socket, PrintedPipe::new(pipe, *producer), most)
    }

    fn of(
        mut process: std::process::Child,
        socket: UnixStream,
        printed: PrintedPipe,
        most: usize,
    ) -> io::Result<Self> {
        let raw = i32::try_from(process.id()).expect("a process id is positive");
        let pid = Pid::from_raw(raw).expect("a process id is not 0");
        let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let pidfd = opened.inspect_err(|_| {
            _ = process.kill();
            _ = process.wait();
        })?;
        Ok(Child {
            process,
            pid,
            pidfd,
            socket,
            unwritten: vec![],
            written: 0,
            reader: FrameReader::new(most),
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
        std::mem::take(&mut self.traffic)
    }

    /// Whether bytes wait for room in the socket.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Has the next waits write these bytes.
    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        match self.unwritten.is_empty() {
            true => self.unwritten = bytes,
            false => self.unwritten.extend_from_slice(&bytes),
        }
        // Mostly there is room at once.
        self.write();
    }

    /// Whether it runs, as far as can be seen without waiting.
    pub(super) fn is_alive(&mut self) -> bool {
        // A frame that nothing has asked for is read later, where it is an error.
        let now = Instant::now();
        match self.wait(None, Some(now)) {
            Wake::Time => true,
            Wake::Frame(frame) => {
                self.frames.push_front(frame);
                true
            }
            Wake::Bell | Wake::Gone | Wake::Damaged(_) => false,
        }
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
            let ready = self.poll(bell, until);
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
            }
            if ready.ended && self.state == ChildState::Running {
                self.state = ChildState::Gone;
            }
            if ready.bell {
                return Wake::Bell;
            }
            if ready.is_time && self.frames.is_empty() && self.state == ChildState::Running {
                return Wake::Time;
            }
        }
    }

    fn poll(&self, bell: Option<&EventBell>, until: Option<Instant>) -> ChildReady {
        let has_unwritten = !self.unwritten.is_empty();
        let out = if has_unwritten { PollFlags::OUT } else { PollFlags::empty() };
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
        let count = poll(&mut fds, timeout.as_ref()).unwrap_or(0);
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
            is_time: count == 0 && until.is_some_and(|until| until <= Instant::now()),
        }
    }

    fn write(&mut self) {
        while self.written < self.unwritten.len() {
            match self.socket.write(&self.unwritten[self.written..]) {
                Ok(length) => {
                    self.written += length;
                    self.traffic.down += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The end of the process tells why. What it has answered is read first.
                Err(_) => break,
            }
        }
        (self.unwritten, self.written) = (vec![], 0);
    }

    /// Reads all that is there.
    fn read(&mut self) {
        while self.state == ChildState::Running {
            match self.socket.read(&mut self.scratch) {
                Ok(0) => {
                    self.state =
                        self.reader.end().map_or_else(ChildState::Damaged, |()| ChildState::Gone);
                }
                Ok(length) => {
                    self.traffic.up += length as u64;
                    let mut bytes = &self.scratch[..length];
                    loop {
                        match self.reader.feed(&mut bytes) {
                            Ok(Some(frame)) => self.frames.push_back(frame),
                            Ok(None) => break,
                            Err(error) => {
                                self.state = ChildState::Damaged(error);
                                break;
                            }
                        }
                    }
                    // That was all: another read would only say so.
                    if length < self.scratch.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.state = ChildState::Gone,
            }
        }
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
        self.printed.read();
        status.ok()
    }

    fn has_ended_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = timespec(end.saturating_duration_since(Instant::now()));
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return false,
                Ok(_) => return true,
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
    is_time: bool,
}

/// The program that a worker runs. The link leads to the file of this process, even if another has taken its
/// place.
pub(super) fn program(options: &Processes) -> &Path {
    options.program.as_deref().unwrap_or(Path::new("/proc/self/exe"))
}

/// The program, as errors name it.
pub(super) fn shown_program(options: &Processes) -> PathBuf {
    let own = || env::current_exe().unwrap_or_else(|_| program(options).to_owned());
    options.program.clone().unwrap_or_else(own)
}

/// Differs for each process that is started. It keeps honest processes apart; it is no secret.
fn nonce() -> Nonce {
    let half = |which: &str| u128::from(RandomState::new().hash_one(OsStr::new(which)));
    Nonce(half("high") << 64 | half("low"))
}

fn timespec(time: Duration) -> Timespec {
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
