//! The worker's end of the connection, for two threads that write.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, TryLockError};

use super::connection::{die, refuse, send};
use super::frame::FrameKind;
use super::memory_reader::let_go;
use super::memory_writer::{FrameWithBytes, MemoryNote, MemoryWriter, put_note};
use super::outgoing::Outgoing;
use crate::backend::memory::shared_bytes::Returns;
use crate::concurrency::{Mutex, lock};

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
        let mut notes = std::mem::take(&mut *lock(&self.notes));
        notes.answers.extend(let_go(&self.returns));
        lock(&self.writing).send(message, &notes);
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

    /// Says why this worker cannot serve, and ends it.
    pub(super) fn refuse(&self, reason: String) -> ! {
        refuse(&lock(&self.writing).socket, reason)
    }

    fn write_aside(&self) {
        // Looked at again after the lock was left: meanwhile the other thread may have found it taken.
        while !lock(&self.aside).is_empty() {
            match self.writing.try_lock() {
                Ok(writing) => {
                    let frames = std::mem::take(&mut *lock(&self.aside));
                    send(&writing.socket, &frames);
                }
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => {
                    unreachable!("nothing that panics runs under a lock of ours")
                }
            }
        }
    }
}

impl WritingEnd {
    fn send(&mut self, message: FrameWithBytes, notes: &PassedNotes) {
        for note in &notes.heard {
            if let Err(error) = self.memory.heed(note) {
                refuse(&self.socket, error.to_string());
            }
        }
        let mut outgoing = Outgoing::default();
        for note in &notes.answers {
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
