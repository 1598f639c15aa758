//! Frames: how messages are cut out of a stream of bytes.
//!
//! A frame is the length of its body (`u32`, little endian), a byte for its kind, and the body. This is a value
//! without sockets: bytes are fed in the pieces in which they arrive.

use std::fmt;

use crate::backends::memory::shared_bytes::SharedBytes;
use crate::error::FrameError;

/// The length of what precedes a body.
pub(super) const HEADER: usize = 5;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    // To a worker.
    Hello = 1,
    Init = 2,
    Items = 3,
    GiveUp = 4,
    End = 5,
    Recall = 6,
    // To the coordinator.
    Ready = 65,
    Refused = 66,
    InitDone = 67,
    InitFailed = 68,
    Done = 69,
    Failed = 70,
    Bye = 71,
    HandedBack = 72,
    Returned = 73,
    // To both.
    /// A message whose body is in shared memory.
    Stored = 129,
    /// A note on a memory.
    Memory = 130,
    /// Bytes in shared memory, which the next message names.
    Lent = 131,
    /// Bytes that the next message names.
    Inline = 132,
}

/// All kinds.
pub(super) const KINDS: [FrameKind; 19] = [
    FrameKind::Hello,
    FrameKind::Init,
    FrameKind::Items,
    FrameKind::GiveUp,
    FrameKind::End,
    FrameKind::Recall,
    FrameKind::Ready,
    FrameKind::Refused,
    FrameKind::InitDone,
    FrameKind::InitFailed,
    FrameKind::Done,
    FrameKind::Failed,
    FrameKind::Bye,
    FrameKind::HandedBack,
    FrameKind::Returned,
    FrameKind::Stored,
    FrameKind::Memory,
    FrameKind::Lent,
    FrameKind::Inline,
];

/// One message, as it was cut out of the stream.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) body: Vec<u8>,
    /// The bytes that the body names, which came before it.
    pub(super) attachments: Vec<SharedBytes>,
}

/// Two frames are the same if they stand the same in a stream.
#[cfg(any(test, fuzzing))]
impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.body) == (other.kind, &other.body)
    }
}

/// Cuts frames out of a stream of bytes.
pub(super) struct FrameReader {
    /// The largest body that is taken.
    most: usize,
    header: [u8; HEADER],
    /// How many bytes of the header are here.
    filled: usize,
    body: Vec<u8>,
    /// The kind and the length of the current frame, once its header is complete.
    open: Option<(FrameKind, usize)>,
}

impl Frame {
    /// A frame without bytes beside it.
    pub(super) fn new(kind: FrameKind, body: Vec<u8>) -> Self {
        Frame { kind, body, attachments: vec![] }
    }
}

impl FrameKind {
    pub(super) fn of(byte: u8) -> Result<FrameKind, FrameError> {
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == byte);
        kind.ok_or(FrameError::UnknownKind { kind: byte })
    }
}

impl FrameReader {
    pub(super) fn new(most: usize) -> Self {
        FrameReader { most, header: [0; HEADER], filled: 0, body: vec![], open: None }
    }

    /// Takes bytes off the front of `input`, and returns a frame once one is complete. Call it again with the
    /// rest until it returns `None`: then `input` is empty.
    ///
    /// # Errors
    ///
    /// If the next frame is too long or of an unknown kind. The stream cannot be read any further.
    pub(super) fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        let (kind, length) = match self.open {
            Some(open) => open,
            None => {
                let taken = take(input, HEADER - self.filled);
                self.header[self.filled..][..taken.len()].copy_from_slice(taken);
                self.filled += taken.len();
                if self.filled < HEADER {
                    return Ok(None);
                }
                self.open_frame()?
            }
        };
        let taken = take(input, length - self.body.len());
        self.body.extend_from_slice(taken);
        if self.body.len() < length {
            return Ok(None);
        }
        (self.open, self.filled) = (None, 0);
        Ok(Some(Frame::new(kind, std::mem::take(&mut self.body))))
    }

    /// The number of bytes that are allocated for the current body.
    #[cfg(any(test, fuzzing))]
    pub(super) fn allocated(&self) -> usize {
        self.body.capacity()
    }

    fn open_frame(&mut self) -> Result<(FrameKind, usize), FrameError> {
        let [a, b, c, d, kind] = self.header;
        let kind = FrameKind::of(kind)?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > self.most {
            return Err(FrameError::TooLong { length, most: self.most });
        }
        self.body.reserve_exact(length);
        self.open = Some((kind, length));
        Ok((kind, length))
    }

    /// Checks that the stream ended between two frames.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        match (self.open, self.filled) {
            (None, 0) => Ok(()),
            (None, filled) => Err(FrameError::Half { got: filled, of: HEADER }),
            (Some((_, length)), _) => {
                Err(FrameError::Half { got: HEADER + self.body.len(), of: HEADER + length })
            }
        }
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("open", &self.open).finish_non_exhaustive()
    }
}

/// Writes a frame; `write` appends the body.
///
/// # Errors
///
/// That of `write`, or if the body is longer than `most` bytes.
pub(super) fn frame<E: From<FrameError>>(
    kind: FrameKind,
    most: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    frame_into(vec![], kind, most, write)
}

/// Writes a frame into an empty buffer.
///
/// # Errors
///
/// The errors of [`frame`].
pub(super) fn frame_into<E: From<FrameError>>(
    mut bytes: Vec<u8>,
    kind: FrameKind,
    most: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    bytes.extend_from_slice(&[0, 0, 0, 0, kind as u8]);
    write(&mut bytes)?;
    let length = bytes.len() - HEADER;
    match u32::try_from(length) {
        Ok(short) if length <= most => {
            bytes[..4].copy_from_slice(&short.to_le_bytes());
            Ok(bytes)
        }
        _ => Err(FrameError::TooLong { length, most }.into()),
    }
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(kind: FrameKind, body: &[u8]) -> Vec<u8> {
        let write = |bytes: &mut Vec<u8>| -> Result<(), FrameError> {
            bytes.extend_from_slice(body);
            Ok(())
        };
        frame(kind, 1 << 20, write).unwrap()
    }

    fn read_all(reader: &mut FrameReader, mut input: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = vec![];
        while let Some(frame) = reader.feed(&mut input)? {
            frames.push(frame);
        }
        assert!(input.is_empty(), "what is not taken would be lost");
        Ok(frames)
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_header() {
        let mut reader = FrameReader::new(10);
        let header = [11, 0, 0, 0, FrameKind::Items as u8];
        let error = reader.feed(&mut &header[..]).unwrap_err();
        assert_eq!(error, FrameError::TooLong { length: 11, most: 10 });
        assert_eq!(reader.allocated(), 0, "nothing is allocated for it");
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_written() {
        let write = |bytes: &mut Vec<u8>| -> Result<(), FrameError> {
            bytes.extend_from_slice(&[0; 11]);
            Ok(())
        };
        let error = frame(FrameKind::Done, 10, write).unwrap_err();
        assert_eq!(error, FrameError::TooLong { length: 11, most: 10 });
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let mut reader = FrameReader::new(10);
        let error = reader.feed(&mut &[0, 0, 0, 0, 200][..]).unwrap_err();
        assert_eq!(error, FrameError::UnknownKind { kind: 200 });
    }

    #[test]
    fn half_a_frame_is_noticed_at_the_end() {
        let whole = encoded(FrameKind::Done, b"four");
        for cut in 1..whole.len() {
            let mut reader = FrameReader::new(10);
            assert_eq!(read_all(&mut reader, &whole[..cut]), Ok(vec![]));
            let of = if cut < HEADER { HEADER } else { whole.len() };
            assert_eq!(reader.end(), Err(FrameError::Half { got: cut, of }));
        }
        assert_eq!(FrameReader::new(10).end(), Ok(()));
    }

    fn frames() -> impl Strategy<Value = Vec<(FrameKind, Vec<u8>)>> {
        let body = proptest::collection::vec(any::<u8>(), 0..40);
        proptest::collection::vec((proptest::sample::select(&KINDS[..]), body), 0..12)
    }

    proptest! {
        #[test]
        fn frames_are_the_same_in_whatever_pieces_they_arrive(
            frames in frames(),
            cuts in proptest::collection::vec(1usize..60, 1..20),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(kind, body)| encoded(*kind, body)).collect();
            let (mut reader, mut rest, mut read) = (FrameReader::new(64), &bytes[..], vec![]);
            for cut in cuts.into_iter().cycle() {
                let piece = take(&mut rest, cut);
                read.extend(read_all(&mut reader, piece)?);
                if rest.is_empty() {
                    break;
                }
            }
            let expected: Vec<_> = frames.into_iter().map(|(kind, body)| Frame::new(kind, body)).collect();
            prop_assert_eq!(read, expected);
            prop_assert_eq!(reader.end(), Ok(()));
        }

    }
}
