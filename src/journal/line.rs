//! The lines of a journal: a header, then one line for each commit.
//!
//! ```text
//! gangline-journal 1 5f0c1a7e {"id":81985529216486895,"run":{"runner":["digits","1.2"],"keys":"position","cfg":{}}}
//! 8a1b22c0 {"done":[[0,999]],"note":"131072"}
//! 07e4f9d1 {"done":[[1000,1006],[1008,1011]],"failed":[1007],"note":"131584"}
//! ```
//!
//! A commit is one line, so it is complete or absent, and only the last line can be torn. The checksum of a
//! line also covers its position and, by the random `id`, its file. So a line that was moved, or the
//! remains of another journal, do not pass the check.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fingerprint::{Fingerprint, KeyKind};
use super::journal_key::{JournalKey, JournalOutcome, JournalRecord};
use super::position_spans::{hashed_spans_of, spans_of};

/// The format that is written, and the only one that is read.
pub(super) const FORMAT: u32 = 1;

/// The longest line, its end included. It bounds the memory for reading a file that is not a journal.
pub(super) const LONGEST_LINE: usize = 16 << 20;

const MAGIC: &[u8] = b"gangline-journal ";
/// The beginning of a header of this format.
const BEGINNING: &[u8] = b"gangline-journal 1 ";
const CHECKSUM: usize = 8;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// A random number, so that no two files have the same.
    id: u64,
    pub(super) run: Fingerprint,
}

/// The reason why a line is not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHeader {
    NoJournal,
    Format(u32),
    Damaged,
}

/// The seed of the checksums of a file's commits: the checksum of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal(u32);

/// The contents of a commit. `D` identifies items that are done, `F` items that failed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Commit<D, F> {
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub(super) done: Vec<D>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<F>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// A note that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note_hex: Option<String>,
}

/// One commit, by the kind of its keys.
#[derive(Debug)]
pub(super) enum AnyCommit<'a> {
    Positions(Commit<(u64, u64), u64>),
    Hashed(Commit<(u64, u64, u64), (u64, u64)>),
    Names(Commit<NamedOccurrence<'a>, NamedOccurrence<'a>>),
}

/// A name, with its occurrence: `"a"`, or `["a",2]`.
#[derive(Debug, PartialEq)]
pub(super) struct NamedOccurrence<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) occurrence: u32,
}

/// The records of the next commit.
#[derive(Debug)]
pub(super) enum PendingRecords {
    Positions { done: Vec<u64>, failed: Vec<u64> },
    Hashed { done: Vec<(u64, u64)>, failed: Vec<(u64, u64)> },
    Names { done: Vec<(Arc<str>, u32)>, failed: Vec<(Arc<str>, u32)> },
}

impl Header {
    pub(super) fn new(run: Fingerprint) -> Self {
        Header { id: RandomState::new().hash_one(()), run }
    }

    /// Returns the line, and the seal for the lines after it.
    pub(super) fn encode(&self) -> (Vec<u8>, Seal) {
        Header::seal_any(&serde_json::to_vec(self).expect("a tree of JSON values is JSON"))
    }

    /// Seals any JSON as a header.
    pub(super) fn seal_any(json: &[u8]) -> (Vec<u8>, Seal) {
        let seal = header_seal(json);
        let checksum = format!("{:08x} ", seal.0);
        ([BEGINNING, checksum.as_bytes(), json, b"\n"].concat(), seal)
    }

    /// Reads a line without its end.
    pub(super) fn decode(line: &[u8]) -> Result<(Header, Seal), NoHeader> {
        let Some(rest) = line.strip_prefix(BEGINNING) else {
            return Err(other_format(line));
        };
        let json = rest.get(CHECKSUM + 1..).ok_or(NoHeader::Damaged)?;
        let seal = header_seal(json);
        if rest[..=CHECKSUM] != *format!("{:08x} ", seal.0).as_bytes() {
            return Err(NoHeader::Damaged);
        }
        let header = serde_json::from_slice(json).map_err(|_| NoHeader::Damaged)?;
        Ok((header, seal))
    }

    /// Returns whether the bytes may be the beginning of a header that was not written to its end.
    pub(super) fn is_torn(bytes: &[u8]) -> bool {
        let both = bytes.len().min(BEGINNING.len());
        bytes[..both] == BEGINNING[..both]
    }
}

fn header_seal(json: &[u8]) -> Seal {
    Seal(checksum(&[BEGINNING, json]))
}

fn other_format(line: &[u8]) -> NoHeader {
    let Some(rest) = line.strip_prefix(MAGIC) else { return NoHeader::NoJournal };
    let format = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
    let format = str::from_utf8(format).ok().and_then(|format| format.parse().ok());
    match format {
        Some(FORMAT) | None => NoHeader::Damaged,
        Some(format) => NoHeader::Format(format),
    }
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

impl Seal {
    /// Makes the line of a commit that begins at byte `at` of its file.
    pub(super) fn close(self, at: u64, json: &[u8]) -> Vec<u8> {
        [self.checksum(at, json).as_bytes(), json, b"\n"].concat()
    }

    /// Returns the JSON of a line, without its end, if the checksum matches.
    pub(super) fn open(self, at: u64, line: &[u8]) -> Option<&[u8]> {
        let (checksum, json) = line.split_at_checked(CHECKSUM + 1)?;
        (checksum == self.checksum(at, json).as_bytes()).then_some(json)
    }

    /// Returns whether bytes other than its end follow a whole line. Then that line's end is damaged, and
    /// the write was not interrupted.
    pub(super) fn opens_early(self, at: u64, line: &[u8]) -> bool {
        let json = line.get(CHECKSUM + 1..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(json).into_iter::<IgnoredAny>();
        let is_value = values.next().is_some_and(|value| value.is_ok());
        let end = values.byte_offset();
        is_value && end + 1 < json.len() && self.open(at, &line[..=CHECKSUM + end]).is_some()
    }

    fn checksum(self, at: u64, json: &[u8]) -> String {
        let checksum = checksum(&[&self.0.to_le_bytes(), &at.to_le_bytes(), json]);
        format!("{checksum:08x} ")
    }
}

impl<D, F> Commit<D, F> {
    fn new(done: Vec<D>, failed: Vec<F>, note: Option<&[u8]>) -> Self {
        let text = note.and_then(|note| str::from_utf8(note).ok()).map(str::to_owned);
        let hex = note.filter(|_| text.is_none()).map(to_hex);
        Commit { done, failed, note: text, note_hex: hex }
    }

    /// Returns the note, unless it is damaged.
    pub(super) fn note(&mut self) -> Result<Option<Vec<u8>>, ()> {
        match (self.note.take(), &self.note_hex) {
            (text, None) => Ok(text.map(String::into_bytes)),
            (None, Some(hex)) => from_hex(hex).map(Some).ok_or(()),
            (Some(_), Some(_)) => Err(()),
        }
    }
}

impl<'a> AnyCommit<'a> {
    pub(super) fn decode(keys: KeyKind, json: &'a [u8]) -> Option<Self> {
        match keys {
            KeyKind::Position => serde_json::from_slice(json).map(AnyCommit::Positions),
            KeyKind::HashedPosition => serde_json::from_slice(json).map(AnyCommit::Hashed),
            KeyKind::Name => serde_json::from_slice(json).map(AnyCommit::Names),
        }
        .ok()
    }

    /// Returns the number of items in the commit.
    pub(super) fn items(&self) -> u64 {
        let spanned = |first: u64, last: u64| last.saturating_sub(first).saturating_add(1);
        let (done, failed) = match self {
            AnyCommit::Positions(commit) => {
                let done = commit.done.iter().map(|(first, last)| spanned(*first, *last));
                (done.fold(0, u64::saturating_add), commit.failed.len())
            }
            AnyCommit::Hashed(commit) => {
                let done = commit.done.iter().map(|(first, last, _)| spanned(*first, *last));
                (done.fold(0, u64::saturating_add), commit.failed.len())
            }
            AnyCommit::Names(commit) => (commit.done.len() as u64, commit.failed.len()),
        };
        done.saturating_add(failed as u64)
    }
}

impl PendingRecords {
    pub(super) fn new(keys: KeyKind) -> Self {
        match keys {
            KeyKind::Position => PendingRecords::Positions { done: vec![], failed: vec![] },
            KeyKind::HashedPosition => PendingRecords::Hashed { done: vec![], failed: vec![] },
            KeyKind::Name => PendingRecords::Names { done: vec![], failed: vec![] },
        }
    }

    /// # Panics
    ///
    /// If the key is of another kind: the caller makes all keys in one way.
    pub(super) fn push(&mut self, JournalRecord { key, outcome }: JournalRecord) {
        match (self, key) {
            (PendingRecords::Positions { done, failed }, JournalKey::Position(position)) => {
                outcome.of(done, failed).push(position);
            }
            (
                PendingRecords::Hashed { done, failed },
                JournalKey::HashedPosition { position, hash },
            ) => {
                outcome.of(done, failed).push((position, hash));
            }
            (PendingRecords::Names { done, failed }, JournalKey::Name { name, occurrence }) => {
                outcome.of(done, failed).push((name, occurrence));
            }
            (_, key) => unreachable!("the journal does not know items by keys like {key:?}"),
        }
    }

    pub(super) fn encode(&mut self, note: Option<&[u8]>) -> Vec<u8> {
        let json = match self {
            PendingRecords::Positions { done, failed } => {
                failed.sort_unstable();
                serde_json::to_vec(&Commit::new(spans_of(done), failed.clone(), note))
            }
            PendingRecords::Hashed { done, failed } => {
                failed.sort_unstable();
                serde_json::to_vec(&Commit::new(hashed_spans_of(done), failed.clone(), note))
            }
            PendingRecords::Names { done, failed } => {
                serde_json::to_vec(&Commit::new(named(done), named(failed), note))
            }
        };
        json.expect("numbers and texts are JSON")
    }

    pub(super) fn clear(&mut self) {
        match self {
            PendingRecords::Positions { done, failed } => (done.clear(), failed.clear()),
            PendingRecords::Hashed { done, failed } => (done.clear(), failed.clear()),
            PendingRecords::Names { done, failed } => (done.clear(), failed.clear()),
        };
    }
}

impl JournalOutcome {
    fn of<T>(self, done: T, failed: T) -> T {
        match self {
            JournalOutcome::Done => done,
            JournalOutcome::Failed => failed,
        }
    }
}

fn named(names: &[(Arc<str>, u32)]) -> Vec<NamedOccurrence<'_>> {
    let names = names.iter();
    names.map(|(name, occurrence)| NamedOccurrence::new(name, *occurrence)).collect()
}

impl<'a> NamedOccurrence<'a> {
    fn new(name: &'a str, occurrence: u32) -> Self {
        NamedOccurrence { name: Cow::Borrowed(name), occurrence }
    }
}

impl Serialize for NamedOccurrence<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.occurrence {
            1 => self.name.serialize(serializer),
            occurrence => (&self.name, occurrence).serialize(serializer),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for NamedOccurrence<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamedVisitor)
    }
}

struct NamedVisitor;

impl<'de> Visitor<'de> for NamedVisitor {
    type Value = NamedOccurrence<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or a list of a name and a number")
    }

    fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<NamedOccurrence<'de>, E> {
        Ok(NamedOccurrence::new(name, 1))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<NamedOccurrence<'de>, E> {
        Ok(NamedOccurrence { name: Cow::Owned(name.to_owned()), occurrence: 1 })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NamedOccurrence<'de>, A::Error> {
        let short = || de::Error::custom("a list of a name and a number is expected");
        let name = Cow::Owned(list.next_element()?.ok_or_else(short)?);
        let occurrence = list.next_element()?.ok_or_else(short)?;
        match list.next_element::<IgnoredAny>()? {
            None => Ok(NamedOccurrence { name, occurrence }),
            Some(_) => Err(short()),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    hex.as_bytes().chunks(2).map(byte).collect()
}
