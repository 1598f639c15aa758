//! Frames and messages of any bytes: for the fuzzer, and for tests that make bytes up.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{Frame, FrameKind, FrameReader, HEADER, KINDS, frame};
use super::memory_reader::{MemoryReader, WholeFrame};
use super::memory_writer::{Lend, MemoryNote, StoredBody};
use super::message::{
    Bye, CallNumber, Done, Failed, HandedBack, Hello, Init, ItemsHeader, Nonce, Refused, Returned,
    decode, encode, nonce_of, protocol_of, put_part, split, take_part,
};
use crate::error::FrameError;

/// More than any message here has, once it is written again.
const ENOUGH: usize = 1 << 20;

/// Reads any bytes as what one side sends the other, and checks that what is made of them holds together.
///
/// The first byte bounds the bodies, the second is the size of the pieces in which the stream arrives.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    let [most, piece, stream @ ..] = bytes else { return };
    let (most, piece) = (usize::from(*most), usize::from(*piece) + 1);
    let read = Read::of(stream, most, stream.len().max(1));
    assert_eq!(read, Read::of(stream, most, piece), "pieces of {piece} bytes change nothing");
    check_stream(stream, most, &read);
    for frame in &read.frames {
        check_message(frame);
    }
    // Past the framing: the same bytes as the body of each kind.
    for kind in KINDS {
        check_message(&Frame::new(kind, stream.to_vec()));
    }
    check_start(stream);
    check_memories(&read.frames, most);
}

/// What was read of a stream.
#[derive(Debug, PartialEq)]
struct Read {
    frames: Vec<Frame>,
    /// How it ended.
    ending: Result<(), FrameError>,
}

impl Read {
    fn of(stream: &[u8], most: usize, piece: usize) -> Read {
        let mut reader = FrameReader::new(most);
        let mut frames = vec![];
        for mut input in stream.chunks(piece) {
            loop {
                match reader.feed(&mut input) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return Read { frames, ending: Err(error) },
                }
                assert!(reader.allocated() <= most, "no more is allocated than a body may have");
            }
            assert!(input.is_empty(), "what is not taken would be lost");
            assert!(reader.allocated() <= most, "no more is allocated than a body may have");
        }
        Read { frames, ending: reader.end() }
    }
}

/// The frames are the beginning of the stream, and the ending is true of the rest.
fn check_stream(stream: &[u8], most: usize, read: &Read) {
    let written: Vec<u8> = read.frames.iter().flat_map(|frame| written(frame, most)).collect();
    let rest = stream.strip_prefix(&written[..]).expect("frames are read as they are written");
    match &read.ending {
        Ok(()) => assert!(rest.is_empty()),
        Err(FrameError::Half { got, of }) => {
            assert_eq!(*got, rest.len());
            assert!(got < of, "the rest is less than a frame");
        }
        Err(FrameError::TooLong { length, most: bound }) => {
            let header = rest.first_chunk().expect("it has a header");
            assert_eq!(*length, u32::from_le_bytes(*header) as usize, "the length given is named");
            assert_eq!(*bound, most, "the length allowed is named");
            assert!(length > bound);
        }
        Err(FrameError::UnknownKind { kind }) => {
            assert_eq!(rest.get(HEADER - 1), Some(kind), "the kind is named");
            assert!(KINDS.into_iter().all(|known| known as u8 != *kind));
        }
        Err(error @ FrameError::Damaged { .. }) => panic!("a frame has no inside: {error}"),
    }
}

/// Without descriptors, all memories are refused, and no message comes out of one.
fn check_memories(frames: &[Frame], most: usize) {
    let mut reader = MemoryReader::new(most, 2, 1 << 20);
    for frame in frames {
        match reader.take(frame.clone()) {
            Ok(WholeFrame::Message(message)) => assert_eq!(message, *frame),
            Ok(WholeFrame::Note(_)) => assert_eq!(frame.kind, FrameKind::Memory),
            Ok(WholeFrame::Taken) => {
                assert!(matches!(frame.kind, FrameKind::Memory | FrameKind::Inline));
            }
            Err(_) => {
                let kinds = [FrameKind::Stored, FrameKind::Memory, FrameKind::Lent];
                assert!(kinds.contains(&frame.kind));
            }
        }
    }
    let notes = reader.take_notes();
    assert!(notes.iter().all(|note| matches!(note, MemoryNote::Refused { .. })), "{notes:?}");
}

fn written(read: &Frame, most: usize) -> Vec<u8> {
    let write = |bytes: &mut Vec<u8>| -> Result<(), FrameError> {
        bytes.extend_from_slice(&read.body);
        Ok(())
    };
    frame(read.kind, most, write).expect("what was read can be written")
}

fn check_message(frame: &Frame) {
    match frame.kind {
        FrameKind::Hello => check_hello(frame),
        FrameKind::Init => check_whole::<Init>(frame),
        FrameKind::Items => check_parts::<ItemsHeader>(frame),
        FrameKind::GiveUp | FrameKind::InitDone | FrameKind::Recall => {
            check_whole::<CallNumber>(frame);
        }
        FrameKind::HandedBack => check_whole::<HandedBack>(frame),
        FrameKind::Returned => check_whole::<Returned>(frame),
        FrameKind::Refused => check_whole::<Refused>(frame),
        FrameKind::InitFailed | FrameKind::Failed => check_whole::<Failed>(frame),
        FrameKind::Done => check_parts::<Done>(frame),
        FrameKind::Bye => check_whole::<Bye>(frame),
        FrameKind::Stored => check_whole::<StoredBody>(frame),
        FrameKind::Memory => check_whole::<MemoryNote>(frame),
        FrameKind::Lent => check_whole::<Lend>(frame),
        // Their bodies are not read.
        FrameKind::End | FrameKind::Ready | FrameKind::Inline => {}
    }
}

/// A message without parts is the same once it was written and read again, and none with a byte less or more.
fn check_whole<T>(frame: &Frame)
where
    T: DeserializeOwned + Serialize + PartialEq + fmt::Debug,
{
    let message: T = match decode(frame) {
        Ok(message) => message,
        Err(error) => return check_damage(frame.kind, &error),
    };
    let bytes = encode(frame.kind, ENOUGH, &message).expect("what was read can be written");
    let mut again = Frame::new(frame.kind, bytes[HEADER..].to_vec());
    assert_eq!(decode::<T>(&again).as_ref(), Ok(&message));
    again.body.push(0);
    check_damage(frame.kind, &decode::<T>(&again).expect_err("a byte too many"));
    again.body.truncate(again.body.len() - 2);
    check_damage(frame.kind, &decode::<T>(&again).expect_err("a byte is missing"));
}

/// The header is the same once it was written and read again, and the parts are the bytes behind it.
fn check_parts<T>(frame: &Frame)
where
    T: DeserializeOwned + Serialize + PartialEq + fmt::Debug,
{
    let (header, mut parts): (T, &[u8]) = match split(frame) {
        Ok(read) => read,
        Err(error) => return check_damage(frame.kind, &error),
    };
    let bytes = encode(frame.kind, ENOUGH, &header).expect("what was read can be written");
    let again = Frame::new(frame.kind, bytes[HEADER..].to_vec());
    assert_eq!(split::<T>(&again), Ok((header, &[][..])));
    let (all, mut written) = (parts, vec![]);
    while let Ok(part) = take_part(&mut parts) {
        let write = |bytes: &mut Vec<u8>| -> Result<(), FrameError> {
            bytes.extend_from_slice(part);
            Ok(())
        };
        put_part(&mut written, write).expect("what was read can be written");
    }
    assert_eq!([&written, parts].concat(), all, "a part that is not whole is not taken");
}

fn check_hello(frame: &Frame) {
    let hello = match Hello::decode(frame) {
        Ok(hello) => hello,
        Err(error) => return check_damage(frame.kind, &error),
    };
    let nonce = Nonce(u128::MAX / 3);
    let bytes = hello.encode(nonce, ENOUGH).expect("what was read can be written");
    assert_eq!(nonce_of(&bytes), Some(nonce));
    let again = Frame::new(frame.kind, bytes[HEADER..].to_vec());
    assert!(protocol_of(&again).is_some());
    assert_eq!(Hello::decode(&again), Ok(hello));
}

/// The error of a damaged message names its kind.
fn check_damage(kind: FrameKind, error: &FrameError) {
    let FrameError::Damaged { reason } = error else { panic!("not a damaged message: {error}") };
    assert!(reason.contains(&format!("{kind:?}")), "{reason}");
}

/// The beginning of a stream shows a nonce if it is that of a `Hello`.
fn check_start(stream: &[u8]) {
    let is_hello = stream.len() >= HEADER + 16 && stream[HEADER - 1] == FrameKind::Hello as u8;
    assert_eq!(nonce_of(stream).is_some(), is_hello);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error_that_says_why(bytes in vec(any::<u8>(), 0..200)) {
            read_any_bytes(&bytes);
        }

        /// Most lengths and kinds are right.
        #[test]
        fn frames_of_any_bytes_are_messages_or_damaged(
            bodies in vec((prop::sample::select(&KINDS[..]), vec(0_u8..20, 0..30)), 0..6),
            ending in vec(any::<u8>(), 0..6),
        ) {
            let mut bytes = vec![25, 6];
            for (kind, body) in bodies {
                bytes.extend(written(&Frame::new(kind, body), 30));
            }
            bytes.extend(ending);
            read_any_bytes(&bytes);
        }
    }
}
