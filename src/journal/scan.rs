//! Reads a journal, and tells a write that broke off from damage.

use std::io::{self, BufRead, Read};

use super::fingerprint::KeyKind;
use super::line::{AnyCommit, Header, LONGEST_LINE, NoHeader, Seal};
use super::past::Recorded;

/// The contents of a journal's bytes.
#[derive(Debug)]
pub(super) struct Scan {
    /// `None` where there is none, or it was torn.
    pub(super) header: Option<(Header, Seal)>,
    pub(super) ending: Ending,
    /// How many bytes of whole lines there are before whatever the ending is.
    pub(super) whole: u64,
    /// What those lines say; meaningless where the ending is corrupt or no journal.
    pub(super) recorded: Recorded,
}

/// How the bytes end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With a whole line, or there are none.
    Clean,
    /// With part of a line, `lost` bytes long. What it said counts for nothing.
    TornTail { lost: u64 },
    /// With something that was not written like that, and is not the last line.
    Corrupt(Lost),
    /// They are no journal that can be read.
    NoHeader(NoHeader),
}

/// What comes after the first damage.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) bytes: u64,
    /// Those that can still be read, and how many items they are about.
    pub(super) commits: u64,
    pub(super) items: u64,
}

/// Reads all there is. Memory: that of what is recorded, and a line.
///
/// A commit is one line and one write, and the next is written when that one is on the disk. So a write that
/// broke off, even one of which only some blocks are there, is in the last line; a line that is damaged
/// and has others behind it was whole once.
pub(super) fn scan(mut bytes: impl BufRead) -> io::Result<Scan> {
    let mut line = Vec::new();
    let mut recorded = Recorded::default();
    read_line(&mut bytes, &mut line)?;
    let mut whole = line.len() as u64;
    let (header, seal) = match read_header(&line) {
        Ok(read) => read,
        Err(ending) => return Ok(Scan { header: None, ending, whole: 0, recorded }),
    };
    let keys = header.run.keys();
    let ending = loop {
        line.clear();
        if read_line(&mut bytes, &mut line)? == 0 {
            break Ending::Clean;
        }
        match read_commit(seal, whole, &line) {
            Some(json) if recorded.add(keys, json).is_ok() => whole += line.len() as u64,
            Some(_) => break Ending::Corrupt(lost(seal, keys, whole, line, bytes)?),
            None => break damaged(seal, keys, whole, line, bytes)?,
        }
    };
    Ok(Scan { header: Some((header, seal)), ending, whole, recorded })
}

/// Reads a line with its end, a torn line, or as many bytes as a line may have.
fn read_line(bytes: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    bytes.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', line)
}

fn read_header(line: &[u8]) -> Result<(Header, Seal), Ending> {
    match line.strip_suffix(b"\n") {
        Some(line) => Header::decode(line).map_err(Ending::NoHeader),
        None if line.is_empty() => Err(Ending::Clean),
        None if line.len() < LONGEST_LINE && Header::is_torn(line) => {
            Err(Ending::TornTail { lost: line.len() as u64 })
        }
        None => Err(Ending::NoHeader(Header::decode(line).err().unwrap_or(NoHeader::Damaged))),
    }
}

fn read_commit(seal: Seal, at: u64, line: &[u8]) -> Option<&[u8]> {
    seal.open(at, line.strip_suffix(b"\n")?)
}

/// What to make of a line that is not as it was written.
fn damaged(
    seal: Seal,
    keys: KeyKind,
    at: u64,
    line: Vec<u8>,
    mut bytes: impl BufRead,
) -> io::Result<Ending> {
    let is_last = bytes.fill_buf()?.is_empty();
    if is_last && line.len() < LONGEST_LINE && !seal.opens_early(at, &line) {
        return Ok(Ending::TornTail { lost: line.len() as u64 });
    }
    lost(seal, keys, at, line, bytes).map(Ending::Corrupt)
}

fn lost(
    seal: Seal,
    keys: KeyKind,
    at: u64,
    mut line: Vec<u8>,
    mut bytes: impl BufRead,
) -> io::Result<Lost> {
    let mut lost = Lost { bytes: line.len() as u64, ..Lost::default() };
    loop {
        line.clear();
        if read_line(&mut bytes, &mut line)? == 0 {
            return Ok(lost);
        }
        let json = read_commit(seal, at + lost.bytes, &line);
        if let Some(commit) = json.and_then(|json| AnyCommit::decode(keys, json)) {
            lost.commits += 1;
            lost.items = lost.items.saturating_add(commit.items());
        }
        lost.bytes += line.len() as u64;
    }
}

/// Reads any bytes as a journal, as they are and with the checksums put right, and checks that what is made of
/// them holds together. For tests that make bytes up.
///
/// # Panics
///
/// If it does not.
#[doc(hidden)]
pub fn read_any_bytes(bytes: &[u8]) {
    check(bytes);
    check(&resealed(bytes));
}

fn check(bytes: &[u8]) {
    let read = |bytes: &[u8]| scan(bytes).expect("memory can be read");
    let found = read(bytes);
    let whole = &bytes[..usize::try_from(found.whole).expect("it is in memory")];
    let again = read(whole);
    assert_eq!(
        (&again.ending, again.whole),
        (&Ending::Clean, found.whole),
        "what is whole is clean"
    );
    if matches!(found.ending, Ending::Clean | Ending::TornTail { .. }) {
        assert_eq!(found.recorded, again.recorded, "a torn tail says nothing");
    }
    if let Some((_, seal)) = found.header {
        let appended = read(&[whole, &seal.close(found.whole, b"{}")].concat());
        assert_eq!(appended.ending, Ending::Clean, "a line can be appended to what is whole");
        assert_eq!(appended.recorded.commits(), again.recorded.commits() + 1);
    }
}

/// With the lines of these bytes in the places of the JSON of a header and of commits.
fn resealed(bytes: &[u8]) -> Vec<u8> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (mut file, seal) = Header::seal_any(lines.next().unwrap_or_default());
    for json in lines {
        file.extend(seal.close(file.len() as u64, json));
    }
    file
}
