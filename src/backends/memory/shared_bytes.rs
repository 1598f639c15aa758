//! Bytes in the memory of one process, which others may read.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::arena::{Arena, MemoryFile};
use super::ranges::Range;
use crate::concurrency::{Mutex, lock};

/// Bytes that a child process reads where this process has written them, if they are large; and the other way round.
///
/// Written by serde as a part of an input or output of a child process, they are named rather than copied. Elsewhere, as
/// in a journal, they are written as bytes. A clone is of the same bytes, which are free once the last one is dropped, in each
/// process that has one.
///
/// ```
/// use gangline::process::SharedBytes;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Image {
///     name: String,
///     pixels: SharedBytes,
/// }
///
/// let image = Image { name: "a".to_owned(), pixels: SharedBytes::from(vec![1, 2]) };
/// assert_eq!(image.pixels.to_vec()?, [1, 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedBytes {
    place: BytesPlace,
}

/// Where bytes are.
#[derive(Debug, Clone)]
pub(in crate::backends) enum BytesPlace {
    Heap(Arc<Vec<u8>>),
    Range(Arc<SharedRange>),
}

/// A range that is in use. Dropping it frees the range, or lets it go.
#[derive(Debug)]
pub(in crate::backends) struct SharedRange {
    pub(in crate::backends) file: Arc<MemoryFile>,
    pub(in crate::backends) start: u64,
    /// In bytes.
    pub(in crate::backends) length: u64,
    owner: RangeOwner,
}

/// What a range goes back to.
#[derive(Debug)]
enum RangeOwner {
    /// The memory of this process.
    Here(Arc<Arena>),
    /// Another process, which has lent it under this number.
    Lender { lend: u64, returns: Arc<Returns> },
}

/// The lends of the other side of a connection.
#[derive(Debug, Default)]
pub(in crate::backends) struct Returns(Mutex<Lends>);

#[derive(Debug, Default)]
struct Lends {
    /// The number of those that this process uses.
    used: usize,
    /// The numbers of those that the other side may have back.
    back: Vec<u64>,
}

/// What serde has to do with the bytes in a message.
enum Attachments {
    /// There is no message.
    None,
    Writing(Vec<SharedBytes>),
    Reading(Vec<SharedBytes>),
}

thread_local! {
    /// Those of the message that the current thread encodes or decodes. Serde hands nothing through to the values inside.
    static ATTACHMENTS: RefCell<Attachments> = const { RefCell::new(Attachments::None) };
}

/// Ends a message. The one around it, if any, goes on.
struct EndOfMessage(Attachments);

impl SharedBytes {
    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.place {
            BytesPlace::Heap(bytes) => bytes.len(),
            BytesPlace::Range(range) => range.length as usize,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a copy.
    ///
    /// # Errors
    ///
    /// If they are in shared memory and it cannot be read.
    ///
    /// ```
    /// let bytes = gangline::process::SharedMemory::new().write(&[7; 70_000]);
    /// assert_eq!(bytes.to_vec()?, [7; 70_000]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        match &self.place {
            BytesPlace::Heap(bytes) => Ok(bytes.to_vec()),
            BytesPlace::Range(range) => {
                let mut copy = vec![];
                range.read(&mut copy)?;
                Ok(copy)
            }
        }
    }

    /// The bytes, if they are on the heap.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.place {
            BytesPlace::Heap(bytes) => Some(bytes),
            BytesPlace::Range(_) => None,
        }
    }

    /// The file that holds the bytes and where they begin in it, at the start of a page; if they are in shared memory. They may be
    /// mapped, privately, as long as this value lives.
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.place {
            BytesPlace::Heap(_) => None,
            BytesPlace::Range(range) => Some((range.file.as_fd(), range.start)),
        }
    }

    pub(in crate::backends) fn place(&self) -> &BytesPlace {
        &self.place
    }

    /// A range of the memory of this process.
    pub(in crate::backends) fn own(
        file: Arc<MemoryFile>,
        (start, length): Range,
        arena: Arc<Arena>,
    ) -> Self {
        SharedRange { file, start, length, owner: RangeOwner::Here(arena) }.into()
    }

    /// A range that another process has lent.
    pub(in crate::backends) fn lent(
        file: Arc<MemoryFile>,
        (start, length): Range,
        (lend, returns): (u64, Arc<Returns>),
    ) -> Self {
        lock(&returns.0).used += 1;
        SharedRange { file, start, length, owner: RangeOwner::Lender { lend, returns } }.into()
    }
}

impl SharedRange {
    /// Reads the bytes into an empty vector.
    pub(in crate::backends) fn read(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let length = usize::try_from(self.length).map_err(io::Error::other)?;
        bytes.reserve_exact(length);
        while bytes.len() < length {
            let at = self.start + bytes.len() as u64;
            match pread(&self.file, spare_capacity(bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The vector may have more room than was asked for.
        bytes.truncate(length);
        Ok(())
    }
}

impl Drop for SharedRange {
    fn drop(&mut self) {
        match &self.owner {
            RangeOwner::Here(arena) => arena.give(self.start, self.length),
            RangeOwner::Lender { lend, returns } => {
                let mut lends = lock(&returns.0);
                lends.used -= 1;
                lends.back.push(*lend);
            }
        }
    }
}

impl From<SharedRange> for SharedBytes {
    fn from(range: SharedRange) -> Self {
        SharedBytes { place: BytesPlace::Range(Arc::new(range)) }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        SharedBytes { place: BytesPlace::Heap(Arc::new(bytes)) }
    }
}

impl Returns {
    pub(in crate::backends) fn take(&self) -> Vec<u64> {
        mem::take(&mut lock(&self.0).back)
    }

    /// Whether this process uses what was lent, or has not told what it has let go.
    pub(in crate::backends) fn is_owing(&self) -> bool {
        let lends = lock(&self.0);
        lends.used > 0 || !lends.back.is_empty()
    }
}

/// Calls what encodes a message, and returns the bytes that the message has beside it.
pub(in crate::backends) fn writing<T>(encode: impl FnOnce() -> T) -> (T, Vec<SharedBytes>) {
    let end = EndOfMessage::begin(Attachments::Writing(vec![]));
    let encoded = encode();
    match end.end() {
        Attachments::Writing(attachments) => (encoded, attachments),
        _ => unreachable!("each message inside has put this one back"),
    }
}

/// Calls what decodes a part of a message that has these bytes beside it.
pub(in crate::backends) fn reading<T>(
    attachments: &[SharedBytes],
    decode: impl FnOnce() -> T,
) -> T {
    let _end = EndOfMessage::begin(Attachments::Reading(attachments.to_vec()));
    decode()
}

/// Calls what encodes or decodes bytes of no message.
pub(in crate::backends) fn apart<T>(code: impl FnOnce() -> T) -> T {
    let _end = EndOfMessage::begin(Attachments::None);
    code()
}

impl EndOfMessage {
    fn begin(attachments: Attachments) -> Self {
        EndOfMessage(ATTACHMENTS.replace(attachments))
    }

    fn end(mut self) -> Attachments {
        let ended = ATTACHMENTS.replace(mem::replace(&mut self.0, Attachments::None));
        mem::forget(self);
        ended
    }
}

impl Drop for EndOfMessage {
    fn drop(&mut self) {
        drop(ATTACHMENTS.replace(mem::replace(&mut self.0, Attachments::None)));
    }
}

/// How bytes stand inside a value.
#[derive(Serialize, Deserialize)]
enum WrittenBytes<'a> {
    Bytes(#[serde(with = "serde_bytes", borrow)] std::borrow::Cow<'a, [u8]>),
    /// The place among those that the message has beside it.
    Attached(u32),
}

impl Serialize for SharedBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attached = ATTACHMENTS.with_borrow_mut(|attachments| match attachments {
            Attachments::Writing(attachments) => {
                attachments.push(self.clone());
                u32::try_from(attachments.len() - 1).ok()
            }
            _ => None,
        });
        match (attached, &self.place) {
            (Some(place), _) => WrittenBytes::Attached(place).serialize(serializer),
            (None, BytesPlace::Heap(bytes)) => {
                WrittenBytes::Bytes(bytes.as_slice().into()).serialize(serializer)
            }
            (None, BytesPlace::Range(_)) => {
                let bytes = self.to_vec().map_err(serde::ser::Error::custom)?;
                WrittenBytes::Bytes(bytes.into()).serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for SharedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let place = match WrittenBytes::deserialize(deserializer)? {
            WrittenBytes::Bytes(bytes) => return Ok(SharedBytes::from(bytes.into_owned())),
            WrittenBytes::Attached(place) => place as usize,
        };
        let bytes = ATTACHMENTS.with_borrow(|attachments| match attachments {
            Attachments::Reading(attachments) => attachments.get(place).cloned(),
            _ => None,
        });
        bytes.ok_or_else(|| D::Error::custom(format!("the message lacks the bytes number {place}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_memory::SharedMemory;
    use super::*;

    fn both() -> [SharedBytes; 2] {
        let large = SharedMemory::new().write(&[7; 70_000]);
        assert!(large.file().is_some());
        [SharedBytes::from(vec![1, 2, 3]), large]
    }

    #[test]
    fn outside_of_a_message_they_are_written_as_bytes() {
        for bytes in both() {
            let postcard = postcard::to_allocvec(&bytes).unwrap();
            let packed = rmp_serde::to_vec_named(&bytes).unwrap();
            let json = serde_json::to_vec(&bytes).unwrap();
            let read: [SharedBytes; 3] = [
                postcard::from_bytes(&postcard).unwrap(),
                rmp_serde::from_slice(&packed).unwrap(),
                serde_json::from_slice(&json).unwrap(),
            ];
            for read in read {
                assert!(read.file().is_none());
                assert_eq!(read.to_vec().unwrap(), bytes.to_vec().unwrap());
            }
        }
    }

    #[test]
    fn in_a_message_they_are_beside_it_and_what_is_written_apart_is_not() {
        let [small, large] = both();
        let write = || {
            let inner = apart(|| postcard::to_allocvec(&large).unwrap());
            assert!(inner.len() >= 70_000);
            postcard::to_allocvec(&(&small, &large)).unwrap()
        };
        let (written, attachments) = writing(write);
        assert_eq!((written.len(), attachments.len()), (4, 2));
        let (first, second): (SharedBytes, SharedBytes) =
            reading(&attachments, || postcard::from_bytes(&written)).unwrap();
        assert_eq!((first.len(), second.len()), (3, 70_000));
        assert!(second.file().is_some());
        let missing = postcard::from_bytes::<(SharedBytes, SharedBytes)>(&written);
        assert!(missing.is_err(), "the message is not there");
        let missing: Result<(SharedBytes, SharedBytes), _> =
            reading(&attachments[..1], || postcard::from_bytes(&written));
        assert!(missing.is_err(), "one of them is not there");
    }

    #[test]
    fn a_panic_ends_its_message_only() {
        let [small, _] = both();
        let ((), attachments) = writing(|| {
            let inner = std::panic::catch_unwind(|| writing(|| panic!("on purpose")));
            assert!(inner.is_err());
            postcard::to_allocvec(&small).unwrap();
        });
        assert_eq!(attachments.len(), 1);
    }
}
