//! The worker's end of the connection, for two threads that write.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use super::connection::{die, refuse, send};
use super::frame::FrameKind;
use super::memory_reader::let_go;
use super::memory_writer::{FrameWithBytes, MemoryNote, MemoryWriter, put_note};
use super::message;
use super::outgoing::Outgoing;
use crate::backends::memory::shared_bytes::Returns;
use crate::concurrency::{Mutex, MutexGuard, lock};

/// When the reader looks again at a memory that the other thread used.
const AGAIN: Duration = Duration::from_secs(10);

/// Writes the frames of the thread of the hooks, and those of the reader, each as a whole.
#[derive(Debug)]
pub(super) struct Outlet {
    writing: Mutex<WritingEnd>,
    /// Frames of the reader, which waits for no other thread: it has to notice the end of the coordinator.
    aside: Mutex<Vec<u8>>,
    notes: Mutex<PassedNotes>,
    /// What this process lets go.
    returns: Arc<Returns>,
}

/// What the thread needs that writes.
#[derive(Debug)]
struct WritingEnd {
    socket: UnixStream,
    memory: MemoryWriter,
}

/// Notes that the reader leaves for the next frame.
#[derive(Debug, Default)]
struct PassedNotes {
    /// From the coordinator, for the memory of this side.
    heard: Vec<MemoryNote>,
    /// For the coordinator.
    answers: Vec<MemoryNote>,
}

impl Outlet {
    pub(super) fn new(socket: UnixStream, memory: MemoryWriter, returns: Arc<Returns>) -> Self {
        Outlet {
            writing: Mutex::new(WritingEnd { socket, memory }),
            aside: Mutex::default(),
            notes: Mutex::default(),
            returns,
        }
    }

    /// Sends a message, and returns once it is written.
    pub(super) fn send(&self, message: FrameWithBytes) {
        let mut writing = lock(&self.writing);
        let mut notes = std::mem::take(&mut *lock(&self.notes));
        notes.answers.extend(let_go(&self.returns));
        writing.heed(&notes.heard);
        writing.send(message, &notes.answers);
        drop(writing);
        self.write_aside();
    }

    /// Takes what the coordinator says of this side's memory.
    pub(super) fn heed(&self, note: MemoryNote) {
        lock(&self.notes).heard.push(note);
    }

    /// Has the next frame carry notes.
    pub(super) fn answer(&self, notes: Vec<MemoryNote>) {
        lock(&self.notes).answers.extend(notes);
    }

    /// Sends a frame at once, or has the thread send it that writes now.
    pub(super) fn send_aside(&self, frame: &[u8]) {
        lock(&self.aside).extend_from_slice(frame);
        self.write_aside();
    }

    /// Tells the coordinator of its memory, without a message.
    pub(super) fn tell(&self, notes: &[MemoryNote]) {
        for note in notes {
            let note = message::encode(FrameKind::Memory, usize::MAX, note);
            self.send_aside(&note.expect("numbers can be encoded"));
        }
    }

    /// Frees what the coordinator has let go, and gives pages back that nothing has needed for long. Returns when to call
    /// it again, if it is to be.
    pub(super) fn age(&self, now: Instant) -> Option<Instant> {
        // The thread that writes hears the notes, and leaves the pages for the next time.
        let Some(mut writing) = self.try_write() else { return Some(now + AGAIN) };
        let heard = std::mem::take(&mut lock(&self.notes).heard);
        writing.heed(&heard);
        if writing.memory.is_used() { writing.memory.age(now) } else { None }
    }

    /// Says why this worker cannot serve, and ends it.
    pub(super) fn refuse(&self, reason: String) -> ! {
        refuse(&lock(&self.writing).socket, reason)
    }

    fn write_aside(&self) {
        // Looked at again after the lock was left: meanwhile the other thread may have found it taken.
        while !lock(&self.aside).is_empty() {
            let Some(writing) = self.try_write() else { return };
            let frames = std::mem::take(&mut *lock(&self.aside));
            send(&writing.socket, &frames);
        }
    }

    /// `None` while the other thread writes.
    fn try_write(&self) -> Option<MutexGuard<'_, WritingEnd>> {
        match self.writing.try_lock() {
            Ok(writing) => Some(writing),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => {
                unreachable!("nothing that panics runs under a lock of ours")
            }
        }
    }
}

impl WritingEnd {
    /// Takes what the coordinator says of this side's memory.
    fn heed(&mut self, heard: &[MemoryNote]) {
        for note in heard {
            if let Err(error) = self.memory.heed(note) {
                refuse(&self.socket, error.to_string());
            }
        }
    }

    /// Writes answers for the coordinator, and a message.
    fn send(&mut self, message: FrameWithBytes, answers: &[MemoryNote]) {
        let mut outgoing = Outgoing::default();
        for note in answers {
            put_note(FrameKind::Memory, note, &mut outgoing);
        }
        self.memory.put(message, &mut outgoing);
        while !outgoing.is_empty() {
            match outgoing.write(&self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => die(),
            }
        }
    }
}
