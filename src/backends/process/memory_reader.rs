//! Reads messages of one side of a connection whose large bytes are in shared memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::{Frame, FrameKind};
use super::memory_writer::{Lend, MemoryNote, StoredBody, put_note, untimely};
use super::message;
use super::outgoing::{Arrived, Outgoing};
use super::spare_buffers::SpareBuffers;
use crate::backends::memory::arena::MemoryFile;
use crate::backends::memory::shared_bytes::{BytesPlace, Returns, SharedBytes};
use crate::error::FrameError;

/// How long the writer is not told what was let go, if no message goes there.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// The memories that the other side of a connection lends from.
#[derive(Debug)]
pub(super) struct MemoryReader {
    /// The largest body, in bytes.
    most: usize,
    /// How many memories are taken.
    most_memories: usize,
    /// The descriptors that have come, and were not named yet.
    pub(super) arrived: Arrived,
    memories: HashMap<u64, Arc<MemoryFile>>,
    /// Where bodies come from.
    pub(super) spares: SpareBuffers,
    /// The bytes that the next message names.
    attachments: Vec<SharedBytes>,
    /// What the writer is to know, which goes with the next message.
    notes: Vec<MemoryNote>,
    /// What this process lets go.
    pub(super) returns: Arc<Returns>,
    /// When the writer is told without a message. `None` while nothing was lent.
    tell_at: Option<Instant>,
    /// The bytes that were lent.
    pub(super) fetched: u64,
}

/// What a frame is, once its body is there.
#[derive(Debug)]
#[cfg_attr(any(test, fuzzing), derive(PartialEq))]
pub(super) enum WholeFrame {
    /// A message.
    Message(Frame),
    /// For the writer of this side.
    Note(MemoryNote),
    /// It was for this reader.
    Taken,
}

impl MemoryReader {
    /// `spare_memory`: the largest size of all buffers that are kept, in bytes.
    pub(super) fn new(most: usize, most_memories: usize, spare_memory: u64) -> Self {
        MemoryReader {
            most,
            most_memories,
            arrived: Arrived::new(),
            memories: HashMap::new(),
            spares: SpareBuffers::new(spare_memory),
            attachments: vec![],
            notes: vec![],
            returns: Arc::default(),
            tell_at: None,
            fetched: 0,
        }
    }

    /// Takes the next frame, and reads its body if that was lent. That is let go at once: the body is a copy.
    ///
    /// # Errors
    ///
    /// If a memory is named that is not there, or is shorter than what is lent from it.
    pub(super) fn take(&mut self, frame: Frame) -> Result<WholeFrame, FrameError> {
        match frame.kind {
            FrameKind::Stored => {
                let StoredBody { kind, lend } = message::decode(&frame)?;
                let kind = FrameKind::of(kind)?;
                let body = self.copy(&self.lent(lend)?)?;
                self.fetched += lend.length;
                Ok(self.message(Frame::new(kind, body)))
            }
            FrameKind::Lent => {
                let lend: Lend = message::decode(&frame)?;
                let bytes = self.lent(lend)?;
                self.attachments.push(bytes);
                self.fetched += lend.length;
                Ok(WholeFrame::Taken)
            }
            FrameKind::Memory => match message::decode(&frame)? {
                MemoryNote::Offered { memory } => {
                    self.answer_offer(memory);
                    Ok(WholeFrame::Taken)
                }
                MemoryNote::Dropped { memory } => match self.memories.remove(&memory) {
                    Some(_) => Ok(WholeFrame::Taken),
                    None => Err(untimely(&MemoryNote::Dropped { memory })),
                },
                note => Ok(WholeFrame::Note(note)),
            },
            _ => Ok(self.message(frame)),
        }
    }

    /// Puts what the writer is to know behind what is outgoing.
    pub(super) fn put_notes(&mut self, outgoing: &mut Outgoing) {
        for note in self.take_notes() {
            put_note(FrameKind::Memory, &note, outgoing);
        }
    }

    /// Takes what the writer is to know.
    pub(super) fn take_notes(&mut self) -> Vec<MemoryNote> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(let_go(&self.returns));
        notes
    }

    /// Whether it has a memory.
    pub(super) fn is_used(&self) -> bool {
        !self.memories.is_empty()
    }

    /// Takes what the writer is to know, if no message has told it for long. Returns when to call it again too; `None`
    /// while this process uses nothing that was lent.
    pub(super) fn take_late_notes(&mut self, now: Instant) -> (Vec<MemoryNote>, Option<Instant>) {
        if !self.returns.is_owing() {
            self.tell_at = None;
            return (vec![], None);
        }
        let tell_at = *self.tell_at.get_or_insert(now + TOLD_WITHIN);
        if now < tell_at {
            return (vec![], Some(tell_at));
        }
        self.tell_at = Some(now + TOLD_WITHIN);
        (self.take_notes(), self.tell_at)
    }

    fn message(&mut self, frame: Frame) -> WholeFrame {
        if frame.kind == FrameKind::Inline {
            self.attachments.push(frame.body.into());
            return WholeFrame::Taken;
        }
        let attachments = std::mem::take(&mut self.attachments);
        WholeFrame::Message(Frame { attachments, ..frame })
    }

    fn answer_offer(&mut self, memory: u64) {
        let file = self.arrived.pop_front().flatten().and_then(|file| MemoryFile::of(file).ok());
        // A descriptor that was lost on its way must not be mistaken for the next one.
        let file = file.filter(|file| file.number == memory);
        self.notes.push(match file.filter(|_| self.memories.len() < self.most_memories) {
            Some(file) => {
                self.memories.insert(memory, Arc::new(file));
                MemoryNote::Taken { memory }
            }
            None => MemoryNote::Refused { memory },
        });
    }

    fn lent(&self, lend: Lend) -> Result<SharedBytes, FrameError> {
        let Lend { number, memory, start, length } = lend;
        let damaged =
            |reason: &str| FrameError::Damaged { reason: format!("memory {memory}: {reason}") };
        let file = self.memories.get(&memory).ok_or_else(|| damaged("it was not offered"))?;
        if length > self.most as u64 {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            return Err(FrameError::TooLong { length, most: self.most });
        }
        match start.checked_add(length) {
            Some(end) if end <= file.size => {
                let lender = (number, self.returns.clone());
                Ok(SharedBytes::lent(file.clone(), (start, length), lender))
            }
            _ => Err(damaged("it is shorter than what is lent from it")),
        }
    }

    fn copy(&self, bytes: &SharedBytes) -> Result<Vec<u8>, FrameError> {
        let BytesPlace::Range(range) = bytes.place() else { unreachable!("it was lent") };
        let mut body = self.spares.take();
        if body.capacity() / 2 > bytes.len() {
            // A read fills the buffer, so one that is much too large would cost a read beyond the body.
            self.spares.give(std::mem::take(&mut body));
        }
        let read = range.read(&mut body);
        read.map_err(|error| FrameError::Damaged { reason: error.to_string() })?;
        Ok(body)
    }
}

/// What the writer is to know of what this process lets go.
pub(super) fn let_go(returns: &Returns) -> Option<MemoryNote> {
    let lends = returns.take();
    (!lends.is_empty()).then_some(MemoryNote::LetGo { lends })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::backends::memory::shared_memory::SharedMemory;

    const MOST: usize = 100;

    fn reader() -> MemoryReader {
        MemoryReader::new(MOST, 1, 1 << 20)
    }

    fn frame<T: serde::Serialize>(kind: FrameKind, header: &T) -> Frame {
        let mut body = vec![];
        message::put(&mut body, header).unwrap();
        Frame::new(kind, body)
    }

    fn memory() -> Arc<MemoryFile> {
        let memory = SharedMemory::new().make().unwrap();
        rustix::io::pwrite(&*memory, b"content", 0).unwrap();
        memory
    }

    /// Has a reader take a memory. Returns what it says of it.
    fn offer(reader: &mut MemoryReader, memory: &MemoryFile, number: u64) -> MemoryNote {
        reader.arrived.push_back(Some(memory.as_fd().try_clone_to_owned().unwrap()));
        let note = frame(FrameKind::Memory, &MemoryNote::Offered { memory: number });
        assert_eq!(reader.take(note), Ok(WholeFrame::Taken));
        reader.take_notes().pop().expect("it answers")
    }

    fn stored(memory: u64, length: u64) -> Frame {
        let lend = Lend { number: 9, memory, start: 0, length };
        frame(FrameKind::Stored, &StoredBody { kind: FrameKind::Done as u8, lend })
    }

    #[test]
    fn a_body_is_read_and_let_go() {
        let (mut reader, memory) = (reader(), memory());
        let number = memory.number;
        assert_eq!(offer(&mut reader, &memory, number), MemoryNote::Taken { memory: number });
        let whole = WholeFrame::Message(Frame::new(FrameKind::Done, b"conte".to_vec()));
        assert_eq!(reader.take(stored(number, 5)), Ok(whole));
        assert_eq!(reader.take_notes(), [MemoryNote::LetGo { lends: vec![9] }]);
    }

    #[test]
    fn what_is_lent_goes_with_the_next_message_and_is_let_go_when_that_is_dropped() {
        let (mut reader, memory) = (reader(), memory());
        offer(&mut reader, &memory, memory.number);
        let lend = Lend { number: 4, memory: memory.number, start: 2, length: 3 };
        assert_eq!(reader.take(frame(FrameKind::Lent, &lend)), Ok(WholeFrame::Taken));
        let inline = Frame::new(FrameKind::Inline, b"inline".to_vec());
        assert_eq!(reader.take(inline), Ok(WholeFrame::Taken));
        let Ok(WholeFrame::Message(message)) = reader.take(Frame::new(FrameKind::Done, vec![]))
        else {
            panic!("it is a message")
        };
        let read: Vec<_> = message.attachments.iter().map(|it| it.to_vec().unwrap()).collect();
        assert_eq!(read, [b"nte".to_vec(), b"inline".to_vec()]);
        assert_eq!(reader.take_notes(), []);
        drop(message);
        assert_eq!(reader.take_notes(), [MemoryNote::LetGo { lends: vec![4] }]);
    }

    #[test]
    fn what_is_let_go_while_no_message_goes_is_told_after_a_while() {
        let (mut reader, memory) = (reader(), memory());
        let start = Instant::now();
        let at = |times| start + times * TOLD_WITHIN;
        offer(&mut reader, &memory, memory.number);
        assert_eq!(reader.take_late_notes(start), (vec![], None));
        let lend = Lend { number: 4, memory: memory.number, start: 2, length: 3 };
        reader.take(frame(FrameKind::Lent, &lend)).unwrap();
        assert_eq!(reader.take_late_notes(start), (vec![], Some(at(1))));
        assert_eq!(reader.take_late_notes(at(1)), (vec![], Some(at(2))), "it is in use");
        reader.attachments.clear();
        assert_eq!(reader.take_late_notes(at(1)), (vec![], Some(at(2))), "a message may go");
        let told = vec![MemoryNote::LetGo { lends: vec![4] }];
        assert_eq!(reader.take_late_notes(at(2)), (told, Some(at(3))));
        assert_eq!(reader.take_late_notes(at(2)), (vec![], None));
    }

    #[test]
    fn a_length_beyond_the_memory_or_the_bound_is_an_error_and_lets_nothing_go() {
        let (mut reader, memory) = (reader(), memory());
        offer(&mut reader, &memory, memory.number);
        let error = reader.take(stored(memory.number, 101)).unwrap_err();
        assert_eq!(error, FrameError::TooLong { length: 101, most: MOST });
        let beyond = Lend { number: 1, memory: memory.number, start: memory.size - 1, length: 2 };
        let error = reader.take(frame(FrameKind::Lent, &beyond)).unwrap_err();
        assert!(error.to_string().ends_with("it is shorter than what is lent from it"), "{error}");
        let note = MemoryNote::Dropped { memory: memory.number };
        assert_eq!(reader.take(frame(FrameKind::Memory, &note)), Ok(WholeFrame::Taken));
        let error = reader.take(stored(memory.number, 1)).unwrap_err();
        assert!(error.to_string().ends_with("it was not offered"), "{error}");
        assert_eq!(reader.take_notes(), []);
    }

    #[test]
    fn a_memory_without_its_descriptor_or_beyond_the_bound_is_refused() {
        let (mut reader, memory) = (reader(), memory());
        let number = memory.number;
        let other = MemoryNote::Refused { memory: number + 1 };
        assert_eq!(offer(&mut reader, &memory, number + 1), other, "it is another's");
        reader.arrived.push_back(None);
        let note = frame(FrameKind::Memory, &MemoryNote::Offered { memory: number });
        assert_eq!(reader.take(note.clone()), Ok(WholeFrame::Taken), "this process had no room");
        assert_eq!(reader.take(note), Ok(WholeFrame::Taken), "none came");
        let refused = MemoryNote::Refused { memory: number };
        assert_eq!(reader.take_notes(), [refused.clone(), refused]);
        assert_eq!(offer(&mut reader, &memory, number), MemoryNote::Taken { memory: number });
        let second = SharedMemory::new().make().unwrap();
        let refused = MemoryNote::Refused { memory: second.number };
        assert_eq!(offer(&mut reader, &second, second.number), refused);
        assert!(reader.arrived.is_empty(), "what is refused is closed");
    }
}
