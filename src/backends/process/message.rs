//! The messages between a coordinator and its worker.
//!
//! A body is a header in postcard, followed by parts: each a length (`u32`) and that many bytes, in the codec of
//! the recipe.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::frame::{Frame, FrameKind, frame};
use crate::backends::remote::codec::append;
use crate::backends::remote::failure::CallFailure;
use crate::backends::remote::item_codec::Terms;
use crate::error::FrameError;

/// The version of what this file describes. Both sides must have the same.
pub(super) const PROTOCOL: u32 = 10;

/// The length of what a `Hello` begins with in every version: the nonce and the version.
const FIXED: usize = 20;

/// Proves to a worker that its standard input comes from the coordinator that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce(pub(super) u128);

/// What both sides must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The process id of the coordinator.
    pub(super) coordinator: u32,
    pub(super) max_frame: u32,
    /// How many free bytes of its memory the worker keeps, and of its buffers.
    pub(super) spare_memory: u64,
    pub(super) large_outputs: LargeOutputs,
    pub(super) recipe: String,
    pub(super) terms: Terms,
}

/// Where the `SharedBytes` of outputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LargeOutputs {
    /// In the worker's memory, which the coordinator reads.
    Lent,
    /// In the encoded output, which the coordinator hands on unread to another machine.
    Inline,
}

/// Has the worker call `producer_init`; at first also `make`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Init {
    pub(super) call: u64,
    pub(super) producer: u32,
    pub(super) producers: u32,
    pub(super) seed: u64,
    /// The devices of the place, as the worker sees them: `cuda:0+cpu`.
    pub(super) place: String,
    pub(super) names_only: bool,
    /// The configuration in YAML.
    pub(super) cfg: String,
    pub(super) cpu_threads: Option<u32>,
    pub(super) stack_size: Option<u64>,
}

/// The header of the inputs for one call of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ItemsHeader {
    pub(super) call: u64,
    pub(super) hook: WorkHook,
    pub(super) attempt: u32,
    pub(super) items: Vec<u64>,
}

/// The hook of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WorkHook {
    /// `producer_work`.
    Single,
    /// `producer_work_batch`.
    Batch,
}

/// The outcome of a call that has one for each of its items. Its parts are outputs and
/// [`RemoteFailure`](crate::backends::remote::failure::RemoteFailure)s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) call: u64,
    /// How long the worker was busy with the call until its hook had returned, in microseconds.
    pub(super) took: u64,
    /// How long the hook took of that, in nanoseconds.
    pub(super) in_hook: u64,
    pub(super) outcomes: Vec<ItemOutcome>,
}

/// The hook of a call has returned, and that of the next begins. The answer to the call comes later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Returned {
    pub(super) call: u64,
    /// How long the worker was busy with the call until its hook had returned, in microseconds.
    pub(super) took: u64,
    /// How long the hook took of that, in nanoseconds.
    pub(super) in_hook: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ItemOutcome {
    Output,
    Failure,
}

/// A call that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failed {
    pub(super) call: u64,
    pub(super) failure: CallFailure,
}

/// Names one call: `init` is done with it, it is given up, or calls behind it are to come back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallNumber {
    pub(super) call: u64,
}

/// The calls that the worker has not begun, and does not begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedBack {
    pub(super) calls: Vec<u64>,
}

/// Why a worker does not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    pub(super) reason: String,
}

/// The last message of a worker: `producer_end` has returned, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bye {
    pub(super) failure: Option<CallFailure>,
}

/// Encodes a message without parts.
pub(super) fn encode<T: Serialize>(
    kind: FrameKind,
    most: usize,
    header: &T,
) -> Result<Vec<u8>, FrameError> {
    frame(kind, most, |bytes| put(bytes, header))
}

/// Appends a header.
pub(super) fn put<T: Serialize>(bytes: &mut Vec<u8>, header: &T) -> Result<(), FrameError> {
    append(header, bytes).map_err(|error| FrameError::Damaged { reason: error.to_string() })
}

/// Appends a part that `write` writes.
pub(super) fn put_part<E: From<FrameError>>(
    bytes: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    write(bytes)?;
    let length = bytes.len() - at - 4;
    let short = u32::try_from(length)
        .map_err(|_| FrameError::TooLong { length, most: u32::MAX as usize })?;
    bytes[at..at + 4].copy_from_slice(&short.to_le_bytes());
    Ok(())
}

/// Decodes a header, and returns it with the parts behind it.
pub(super) fn split<T: DeserializeOwned>(frame: &Frame) -> Result<(T, &[u8]), FrameError> {
    postcard::take_from_bytes(&frame.body).map_err(|error| FrameError::Damaged {
        reason: format!("a message {:?} does not decode: {error}", frame.kind),
    })
}

/// Decodes a message without parts.
pub(super) fn decode<T: DeserializeOwned>(frame: &Frame) -> Result<T, FrameError> {
    match split(frame)? {
        (header, []) => Ok(header),
        (_, rest) => Err(FrameError::Damaged {
            reason: format!("a message {:?} has {} bytes too many", frame.kind, rest.len()),
        }),
    }
}

/// The number of the call of a message `ItemsHeader`, and its hook. Its header begins with them.
pub(super) fn call_of(frame: &Frame) -> Result<(u64, WorkHook), FrameError> {
    split(frame).map(|(start, _)| start)
}

/// Takes the next part.
pub(super) fn take_part<'a>(parts: &mut &'a [u8]) -> Result<&'a [u8], FrameError> {
    let missing = || FrameError::Damaged { reason: "a part of a message is missing".to_owned() };
    let (length, rest) = parts.split_first_chunk().ok_or_else(missing)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (part, rest) = rest.split_at_checked(length).ok_or_else(missing)?;
    *parts = rest;
    Ok(part)
}

impl Hello {
    pub(super) fn encode(&self, nonce: Nonce, most: usize) -> Result<Vec<u8>, FrameError> {
        frame(FrameKind::Hello, most, |bytes| {
            bytes.extend_from_slice(&nonce.0.to_le_bytes());
            bytes.extend_from_slice(&PROTOCOL.to_le_bytes());
            put(bytes, self)
        })
    }

    /// Reads the rest of a `Hello` that [`nonce_of`] has looked at.
    pub(super) fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let body = frame.body.get(FIXED..).unwrap_or_default().to_vec();
        decode(&Frame::new(frame.kind, body))
    }
}

/// The version of the protocol of a `Hello`, which stands at the same place in every version.
pub(super) fn protocol_of(frame: &Frame) -> Option<u32> {
    let bytes = frame.body.get(16..FIXED)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The nonce of a stream that begins with a `Hello`; `None` of any other.
pub(super) fn nonce_of(start: &[u8]) -> Option<Nonce> {
    let (header, rest) = start.split_first_chunk::<{ super::frame::HEADER }>()?;
    let nonce = rest.first_chunk()?;
    (header[4] == FrameKind::Hello as u8).then(|| Nonce(u128::from_le_bytes(*nonce)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let terms = Terms::default();
        Hello {
            coordinator: 7,
            max_frame: 100,
            spare_memory: 8,
            large_outputs: LargeOutputs::Lent,
            recipe: "squares".to_owned(),
            terms,
        }
    }

    fn cut(bytes: &[u8]) -> Frame {
        let mut reader = super::super::frame::FrameReader::new(1 << 20);
        reader.feed(&mut &bytes[..]).unwrap().expect("it is whole")
    }

    #[test]
    fn a_hello_shows_its_nonce_and_version_before_it_is_decoded() {
        let bytes = hello().encode(Nonce(1 << 100 | 5), 1000).unwrap();
        assert_eq!(nonce_of(&bytes), Some(Nonce(1 << 100 | 5)));
        let frame = cut(&bytes);
        assert_eq!(protocol_of(&frame), Some(PROTOCOL));
        assert_eq!(Hello::decode(&frame).unwrap(), hello());
        assert_eq!(nonce_of(b"GET / HTTP/1.1\r\nHost: localhost"), None);
        assert_eq!(nonce_of(&bytes[..10]), None);
    }

    #[test]
    fn a_message_with_bytes_too_many_is_damaged() {
        let mut frame = cut(&encode(FrameKind::GiveUp, 100, &CallNumber { call: 5 }).unwrap());
        assert_eq!(decode::<CallNumber>(&frame).unwrap(), CallNumber { call: 5 });
        frame.body.push(1);
        let error = decode::<CallNumber>(&frame).unwrap_err();
        assert_eq!(error.to_string(), "a message GiveUp has 1 bytes too many");
    }

    proptest! {
        #[test]
        fn parts_are_read_as_they_were_written(
            items in proptest::collection::vec(any::<u64>(), 0..5),
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..5),
        ) {
            let header = ItemsHeader { call: 3, attempt: 2, hook: WorkHook::Batch, items };
            let bytes = frame(FrameKind::Items, 1 << 20, |bytes| -> Result<(), FrameError> {
                put(bytes, &header)?;
                parts.iter().try_for_each(|part| put_part(bytes, |bytes| {
                    bytes.extend_from_slice(part);
                    Ok(())
                }))
            }).unwrap();
            let frame = cut(&bytes);
            let (read, mut rest) = split::<ItemsHeader>(&frame).unwrap();
            prop_assert_eq!(read, header);
            for part in &parts {
                prop_assert_eq!(take_part(&mut rest).unwrap(), &part[..]);
            }
            prop_assert!(rest.is_empty());
            prop_assert!(take_part(&mut rest).is_err());
        }
    }
}
