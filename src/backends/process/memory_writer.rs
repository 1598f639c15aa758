//! Writes the messages of one side of a connection, with large bytes in shared memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::frame::{FrameKind, HEADER, frame_into};
use super::message;
use super::outgoing::Outgoing;
use super::spare_buffers::SpareBuffers;
use crate::backends::memory::arena::{MemoryFile, SMALLEST};
use crate::backends::memory::shared_bytes::{BytesPlace, SharedBytes, writing};
use crate::backends::memory::shared_memory::SharedMemory;
use crate::error::FrameError;

/// A frame, and the bytes that its body names.
#[derive(Debug, Default)]
pub(super) struct FrameWithBytes {
    pub(super) frame: Vec<u8>,
    pub(super) attachments: Vec<SharedBytes>,
}

/// What both sides tell each other about a memory, by its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemoryNote {
    // From the writer.
    /// The descriptor of a memory comes with this note.
    Offered { memory: u64 },
    /// The memory is used no more.
    Dropped { memory: u64 },
    // From the reader.
    /// The reader has the descriptor.
    Taken { memory: u64 },
    /// The reader cannot have the descriptor.
    Refused { memory: u64 },
    /// The reader does not look at what was lent under these numbers again.
    LetGo { lends: Vec<u64> },
}

/// Bytes in a memory, which the reader lets go under a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lend {
    pub(super) number: u64,
    pub(super) memory: u64,
    pub(super) start: u64,
    /// In bytes.
    pub(super) length: u64,
}

/// Names the body of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredBody {
    /// The kind of the frame.
    pub(super) kind: u8,
    pub(super) lend: Lend,
}

/// One side of a connection, which writes.
#[derive(Debug)]
pub(super) struct MemoryWriter {
    /// Where large bodies go.
    memory: SharedMemory,
    spares: SpareBuffers,
    /// The memories that the reader was offered.
    offers: HashMap<u64, Offer>,
    /// What the reader may look at.
    lent: HashMap<u64, SharedBytes>,
    /// The number of the last lend.
    lends: u64,
    /// The bytes that were lent.
    pub(super) stored: u64,
}

#[derive(Debug)]
struct Offer {
    /// Keeps the number from being another memory's.
    file: Arc<MemoryFile>,
    state: OfferState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferState {
    /// The reader has not answered.
    Open,
    Taken,
    Refused,
}

impl MemoryWriter {
    pub(super) fn new(memory: SharedMemory, spares: SpareBuffers) -> Self {
        let (offers, lent) = (HashMap::new(), HashMap::new());
        MemoryWriter { memory, spares, offers, lent, lends: 0, stored: 0 }
    }

    /// Takes what the reader says.
    ///
    /// # Errors
    ///
    /// If no reader can say so now.
    pub(super) fn heed(&mut self, note: &MemoryNote) -> Result<(), FrameError> {
        let (memory, state) = match note {
            MemoryNote::LetGo { lends } => {
                let is_lent = |lend: &u64| self.lent.remove(lend).is_some();
                return lends.iter().all(is_lent).then_some(()).ok_or_else(|| untimely(note));
            }
            MemoryNote::Taken { memory } => (memory, OfferState::Taken),
            MemoryNote::Refused { memory } => (memory, OfferState::Refused),
            MemoryNote::Offered { .. } | MemoryNote::Dropped { .. } => return Err(untimely(note)),
        };
        let offer = self.offers.get_mut(memory).filter(|it| it.state == OfferState::Open);
        offer.ok_or_else(|| untimely(note))?.state = state;
        Ok(())
    }

    /// Puts a message behind what is outgoing. Large bytes are lent, if the reader has their memory.
    pub(super) fn put(&mut self, message: FrameWithBytes, outgoing: &mut Outgoing) {
        for bytes in message.attachments {
            self.attach(bytes, outgoing);
        }
        self.put_frame(message.frame, outgoing);
    }

    /// Whether it has offered a memory.
    pub(super) fn is_used(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Whether the reader may look at something.
    pub(super) fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Gives pages back that nothing has needed for long. Returns when to call it again, if it is to be.
    pub(super) fn age(&self, now: Instant) -> Option<Instant> {
        self.memory.age(now)
    }

    fn attach(&mut self, bytes: SharedBytes, outgoing: &mut Outgoing) {
        if let BytesPlace::Range(range) = bytes.place()
            && self.has(&range.file, outgoing)
        {
            let lend = self.lend(bytes).expect("it is a range");
            return put_note(FrameKind::Lent, &lend, outgoing);
        }
        // The bound of all bodies was checked when they were attached.
        let framed = frame_into(self.spares.take(), FrameKind::Inline, usize::MAX, |frame| {
            match bytes.place() {
                BytesPlace::Heap(bytes) => frame.extend_from_slice(bytes),
                BytesPlace::Range(range) => {
                    let mut copy = vec![];
                    let read = range.read(&mut copy);
                    read.map_err(|error| FrameError::Damaged { reason: error.to_string() })?;
                    frame.extend_from_slice(&copy);
                }
            }
            Ok::<_, FrameError>(())
        });
        match framed {
            Ok(frame) => self.put_frame(frame, outgoing),
            // Without these bytes, the message would name others. So the reader is to end the connection: it has no such memory.
            Err(_) => put_note(FrameKind::Lent, &Lend::default(), outgoing),
        }
    }

    fn put_frame(&mut self, frame: Vec<u8>, outgoing: &mut Outgoing) {
        if self.store(&frame, outgoing) {
            return self.spares.give(frame);
        }
        // A small message is copied out of a large buffer, which is kept for a large one.
        if frame.len() < SMALLEST && frame.capacity() >= SMALLEST {
            outgoing.put_slice(&frame);
            return self.spares.give(frame);
        }
        outgoing.put(frame);
    }

    /// Returns whether the body is lent now, and its name is outgoing.
    fn store(&mut self, frame: &[u8], outgoing: &mut Outgoing) -> bool {
        let Some((header, body)) = frame.split_at_checked(HEADER) else { return false };
        if body.len() < SMALLEST {
            return false;
        }
        let Ok(file) = self.memory.make() else { return false };
        if !self.has(&file, outgoing) {
            return false;
        }
        let Some(lend) = self.memory.store(body).and_then(|stored| self.lend(stored)) else {
            return false;
        };
        put_note(FrameKind::Stored, &StoredBody { kind: header[4], lend }, outgoing);
        true
    }

    fn lend(&mut self, bytes: SharedBytes) -> Option<Lend> {
        let BytesPlace::Range(range) = bytes.place() else { return None };
        self.lends += 1;
        let (start, length) = (range.start, range.length);
        let lend = Lend { number: self.lends, memory: range.file.number, start, length };
        self.stored += length;
        self.lent.insert(lend.number, bytes);
        Some(lend)
    }

    /// Whether the reader has a memory. Offers it, if it was not offered.
    fn has(&mut self, file: &Arc<MemoryFile>, outgoing: &mut Outgoing) -> bool {
        if let Some(offer) = self.offers.get(&file.number) {
            return offer.state == OfferState::Taken;
        }
        // Those of workers that have gone.
        let is_gone =
            |offer: &Offer| offer.state != OfferState::Open && Arc::strong_count(&offer.file) == 1;
        for (memory, offer) in self.offers.extract_if(|_, offer| is_gone(offer)) {
            if offer.state == OfferState::Taken {
                put_note(FrameKind::Memory, &MemoryNote::Dropped { memory }, outgoing);
            }
        }
        let memory = file.number;
        self.offers.insert(memory, Offer { file: file.clone(), state: OfferState::Open });
        outgoing.put_descriptor(file.clone());
        put_note(FrameKind::Memory, &MemoryNote::Offered { memory }, outgoing);
        false
    }
}

impl Drop for MemoryWriter {
    /// With the last child process, nothing is left that gives pages back.
    fn drop(&mut self) {
        self.lent.clear();
        if self.is_used() {
            self.memory.empty();
        }
    }
}

/// Calls what writes a message of parts, which may name shared bytes, into an empty buffer.
///
/// # Errors
///
/// That of `write`, or if the body or one of the shared values is longer than `most` bytes.
pub(super) fn message_into<E: From<FrameError>>(
    buffer: Vec<u8>,
    kind: FrameKind,
    most: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<FrameWithBytes, E> {
    let (frame, attachments) = writing(|| frame_into(buffer, kind, most, write));
    let longest = attachments.iter().map(SharedBytes::len).max().unwrap_or(0);
    match longest > most {
        true => Err(FrameError::TooLong { length: longest, most }.into()),
        false => Ok(FrameWithBytes { frame: frame?, attachments }),
    }
}

/// Puts a note behind what is outgoing.
pub(super) fn put_note<T: Serialize>(kind: FrameKind, note: &T, outgoing: &mut Outgoing) {
    let note = message::encode(kind, usize::MAX, note);
    outgoing.put_slice(&note.expect("numbers can be encoded"));
}

/// A note that makes no sense.
pub(super) fn untimely(note: &MemoryNote) -> FrameError {
    FrameError::Damaged { reason: format!("a note on a memory was not expected: {note:?}") }
}

impl From<Vec<u8>> for FrameWithBytes {
    fn from(frame: Vec<u8>) -> Self {
        FrameWithBytes { frame, attachments: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> MemoryWriter {
        MemoryWriter::new(SharedMemory::new(), SpareBuffers::new(1 << 20))
    }

    #[test]
    fn a_small_message_leaves_the_large_buffer_that_it_was_written_into() {
        let mut writer = writer();
        let spares = writer.spares.clone();
        spares.give(vec![1; SMALLEST]);
        for _ in 0..3 {
            let small = frame_into(spares.take(), FrameKind::End, 100, |_| Ok::<_, FrameError>(()));
            let mut outgoing = Outgoing::default();
            writer.put(small.unwrap().into(), &mut outgoing);
            assert!(!outgoing.is_empty());
        }
        assert!(spares.take().capacity() >= SMALLEST);
    }

    #[test]
    fn a_reader_that_lets_go_what_it_does_not_have_is_damaged() {
        let mut writer = writer();
        let file = writer.memory.make().unwrap();
        assert!(!writer.has(&file, &mut Outgoing::default()));
        let memory = file.number;
        for note in [
            MemoryNote::LetGo { lends: vec![1] },
            MemoryNote::Taken { memory: memory + 1 },
            MemoryNote::Dropped { memory },
            MemoryNote::Offered { memory },
        ] {
            assert_eq!(writer.heed(&note), Err(untimely(&note)));
        }
        writer.heed(&MemoryNote::Taken { memory }).unwrap();
        let again = MemoryNote::Refused { memory };
        assert_eq!(writer.heed(&again), Err(untimely(&again)), "it has answered");
    }

    #[test]
    fn values_beyond_the_bound_of_a_body_are_refused_when_they_are_written() {
        let large = SharedMemory::new().write(&vec![1; SMALLEST]);
        let write =
            |most| message_into(vec![], FrameKind::Items, most, |body| message::put(body, &large));
        assert_eq!(write(SMALLEST).unwrap().attachments.len(), 1);
        let length = SMALLEST;
        let error = write(SMALLEST - 1).unwrap_err();
        assert_eq!(error, FrameError::TooLong { length, most: SMALLEST - 1 });
    }
}
