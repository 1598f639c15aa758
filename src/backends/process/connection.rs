//! The worker's end of the connection.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit};

use super::frame::{Frame, FrameKind, FrameReader, HEADER};
use super::memory_reader::{MemoryReader, WholeFrame};
use super::memory_writer::MemoryNote;
use super::message::{self, Hello, LargeOutputs, Nonce, PROTOCOL, Refused};
use super::outgoing::receive;
use super::spare_buffers::SpareBuffers;
use crate::backends::memory::shared_bytes::Returns;
use crate::backends::memory::shared_memory::SharedMemory;
use crate::backends::remote::item_codec::Terms;
use crate::error::FrameError;

/// Set for a worker: the nonce of its coordinator.
pub(super) const VARIABLE: &str = "GANGLINE_WORKER";

/// The largest `Hello`, in bytes.
const MOST_HELLO: usize = 64 << 10;

/// The status with which a worker exits without its coordinator.
const ORPHANED: i32 = 70;

/// The worker's end of the socket.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only a sealed trait has it")]
pub struct CoordinatorConnection {
    pub(super) socket: UnixStream,
    reader: FrameReader,
    memory: MemoryReader,
    hello: Hello,
    /// Readable when the coordinator has ended. `None` if this process is not its child.
    coordinator: Option<OwnedFd>,
}

/// Where the worker's reader hands on what it reads.
pub(super) trait FrameHandler {
    /// Returns the reason if the frame is not one for a worker.
    fn take(&mut self, frame: Frame) -> Result<(), FrameError>;
    /// Takes what the coordinator says of this side's memory.
    fn heed(&mut self, note: MemoryNote);
    /// Takes what the coordinator is to know of its memory, with the next answer.
    fn answer(&mut self, notes: Vec<MemoryNote>);
    /// Tells the coordinator of its memory without an answer.
    fn tell(&mut self, notes: &[MemoryNote]);
    /// Gives pages of this side's memory back that nothing has needed for long. Returns when to call it again, if it is to be.
    fn age(&mut self, now: Instant) -> Option<Instant>;
}

impl CoordinatorConnection {
    /// Takes the socket from descriptor 0 if it begins with a `Hello` with this nonce. Otherwise leaves the
    /// descriptor as it is: a process that inherits the variable from a worker is an ordinary one.
    pub(super) fn accept(nonce: Nonce) -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let stat = rustix::fs::fstat(stdin).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return None;
        }
        // The coordinator writes its `Hello` before it starts the process.
        let mut start = [0; HEADER + 16];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (filled, _) = rustix::net::recv(stdin, &mut start[..], flags).ok()?;
        if message::nonce_of(start.get(..filled)?) != Some(nonce) {
            return None;
        }
        // Close-on-exec, so that programs that a hook starts do not hold the connection open.
        let socket = UnixStream::from(stdin.try_clone_to_owned().ok()?);
        rustix::stdio::dup2_stdin(no_input().ok()?).ok()?;
        let mut reader = FrameReader::new(MOST_HELLO);
        let frame = read_one(&socket, &mut reader)?;
        let hello = match message::protocol_of(&frame) {
            Some(PROTOCOL) => Hello::decode(&frame).map_err(|error| error.to_string()),
            other => Err(format!(
                "it speaks version {PROTOCOL} of the protocol, the coordinator version {}",
                other.unwrap_or_default()
            )),
        };
        let hello = hello.unwrap_or_else(|reason| refuse(&socket, reason));
        let reader = FrameReader::new(hello.max_frame as usize);
        let most = hello.max_frame as usize;
        let memory = MemoryReader::new(most, most_memories(), hello.spare_memory);
        let coordinator = pidfd_of_parent(hello.coordinator);
        Some(CoordinatorConnection { socket, reader, memory, hello, coordinator })
    }

    /// The name of the recipe that the coordinator asks for.
    pub(super) fn recipe(&self) -> &str {
        &self.hello.recipe
    }

    /// Tells the coordinator that this process is a worker with that recipe.
    pub(super) fn say_ready(&self) {
        let ready = message::encode(FrameKind::Ready, MOST_HELLO, &());
        send(&self.socket, &ready.expect("an empty message is short"));
    }

    /// The terms of the coordinator's recipe.
    pub(super) fn terms(&self) -> &Terms {
        &self.hello.terms
    }

    /// Where the large bytes of outputs are to be.
    pub(super) fn large_outputs(&self) -> LargeOutputs {
        self.hello.large_outputs
    }

    /// The largest frame, in bytes.
    pub(super) fn max_frame(&self) -> usize {
        self.hello.max_frame as usize
    }

    /// The buffers for frames and their bodies.
    pub(super) fn spares(&self) -> SpareBuffers {
        self.memory.spares.clone()
    }

    /// Returns a memory for what this side lends.
    pub(super) fn own_memory(&self) -> SharedMemory {
        SharedMemory::keeping(self.hello.spare_memory)
    }

    /// What this process lets go.
    pub(super) fn returns(&self) -> Arc<Returns> {
        self.memory.returns.clone()
    }

    /// Reads frames until the process ends. Without its coordinator, the process kills itself.
    pub(super) fn read(mut self, commands: &mut impl FrameHandler) -> ! {
        let mut scratch = vec![0; 256 << 10];
        loop {
            self.wait(commands);
            let length = match receive(&self.socket, &mut scratch, &mut self.memory.arrived) {
                Ok(0) => die(),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => die(),
            };
            let taken = self.cut_frames(&scratch[..length], commands);
            taken.unwrap_or_else(|error| refuse(&self.socket, error.to_string()));
        }
    }

    fn cut_frames(
        &mut self,
        mut bytes: &[u8],
        commands: &mut impl FrameHandler,
    ) -> Result<(), FrameError> {
        while let Some(frame) = self.reader.feed(&mut bytes)? {
            let whole = self.memory.take(frame)?;
            // Before the message, so that its answer carries them.
            commands.answer(self.memory.take_notes());
            match whole {
                WholeFrame::Message(frame) => commands.take(frame)?,
                WholeFrame::Note(note) => commands.heed(note),
                WholeFrame::Taken => {}
            }
        }
        Ok(())
    }

    /// Waits until there is something to read, or ends the process with its coordinator: another process may hold
    /// the coordinator's end of the socket open. Meanwhile takes care of the memory of both sides.
    fn wait(&mut self, commands: &mut impl FrameHandler) {
        loop {
            let now = Instant::now();
            let (notes, tells) = self.memory.take_late_notes(now);
            commands.tell(&notes);
            let due = [tells, commands.age(now)].into_iter().flatten().min();
            let left = due.map(|due| due.saturating_duration_since(now));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
            if let Some(coordinator) = &self.coordinator {
                fds.push(PollFd::new(coordinator, PollFlags::IN));
            }
            // Interrupted: as if nothing were ready.
            _ = poll(&mut fds, timeout.as_ref());
            let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
            let is_readable = is_ready.next().expect("it is of the socket");
            if is_ready.next() == Some(true) {
                die();
            }
            if is_readable {
                return;
            }
        }
    }
}

/// How many memories this process takes: a quarter of the descriptors that it may have.
fn most_memories() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4;
    usize::try_from(descriptors).unwrap_or(usize::MAX)
}

/// Sends a frame. A worker without its coordinator ends.
pub(super) fn send(mut socket: &UnixStream, frame: &[u8]) {
    if socket.write_all(frame).is_err() {
        die();
    }
}

/// Says why this worker cannot serve, and ends it.
pub(super) fn refuse(socket: &UnixStream, reason: String) -> ! {
    let refused = message::encode(FrameKind::Refused, MOST_HELLO, &Refused { reason });
    if let Ok(refused) = refused {
        send(socket, &refused);
    }
    process::exit(1)
}

/// Ends this process, and with it the processes of its group if they are its own.
pub(super) fn die() -> ! {
    if rustix::process::getpgrp() == rustix::process::getpid() {
        // Fails only if the group is gone.
        _ = rustix::process::kill_current_process_group(Signal::KILL);
    }
    process::exit(ORPHANED)
}

/// A descriptor that is readable when the coordinator has ended, if that has started this process or its fork server.
fn pidfd_of_parent(coordinator: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(coordinator).ok()?)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Asked afterwards: if it still is the parent, the descriptor is of no later process with its id.
    let parent = rustix::process::getppid()?;
    (parent == pid || parent_of(parent) == Some(pid)).then_some(pidfd)
}

/// The parent of another process. `None` without `/proc`.
fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything. The state and the parent follow.
    let (_, fields) = stat.rsplit_once(')')?;
    Pid::from_raw(fields.split_whitespace().nth(1)?.parse().ok()?)
}

/// An empty input. An empty container may lack `/dev/null`; there it is a pipe without a writer.
fn no_input() -> io::Result<OwnedFd> {
    let pipe = || io::pipe().map(|(reader, _)| OwnedFd::from(reader));
    File::open("/dev/null").map(OwnedFd::from).or_else(|_| pipe())
}

/// Reads the first frame, which is already there. Reads not a byte more.
fn read_one(socket: &UnixStream, reader: &mut FrameReader) -> Option<Frame> {
    let mut header = [0; HEADER];
    let mut socket = socket;
    socket.read_exact(&mut header).ok()?;
    let mut length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let mut frame = reader.feed(&mut &header[..]).ok()?;
    let mut piece = [0; 512];
    while frame.is_none() {
        let most = length.min(piece.len());
        match socket.read(&mut piece[..most]) {
            Ok(0) => return None,
            Ok(got) => {
                length -= got;
                frame = reader.feed(&mut &piece[..got]).ok()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    frame
}
