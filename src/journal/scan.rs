//! Reads a journal, and distinguishes an interrupted write from damage.

use std::io::{self, BufRead, Read};

use super::fingerprint::KeyKind;
use super::line::{AnyCommit, Header, LONGEST_LINE, NoHeader, Seal};
use super::past::Recorded;

/// The contents of a journal's bytes.
#[derive(Debug)]
pub(super) struct Scan {
    /// The header; `None` if it is absent or torn.
    pub(super) header: Option<(Header, Seal)>,
    pub(super) ending: ScanEnding,
    /// The number of bytes of whole lines before the ending.
    pub(super) whole: u64,
    /// The contents of those lines; meaningless if the ending is corrupt or the file is not a journal.
    pub(super) recorded: Recorded,
}

/// The ending of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanEnding {
    /// A whole line, or nothing.
    Clean,
    /// Part of a line, `lost` bytes long, which is ignored.
    TornTail { lost: u64 },
    /// A damaged line that is not the last.
    Corrupt(Lost),
    /// The bytes are not a readable journal.
    NoHeader(NoHeader),
}

/// The bytes after the first damage.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) bytes: u64,
    /// The number of commits among them that can still be read, and of their items.
    pub(super) commits: u64,
    pub(super) items: u64,
}

/// Reads all lines of a journal. Takes the memory of the records, and of one line.
///
/// A commit is one line and one write, and the next is written when that one is on the disk. So an
/// interrupted write, even with only some of its blocks on the disk, is in the last line. A damaged line
/// with others behind it was whole once.
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
            break ScanEnding::Clean;
        }
        match read_commit(seal, whole, &line) {
            Some(json) if recorded.add(keys, json).is_ok() => whole += line.len() as u64,
            Some(_) => break ScanEnding::Corrupt(lost(seal, keys, whole, line, bytes)?),
            None => break damaged(seal, keys, whole, line, bytes)?,
        }
    };
    Ok(Scan { header: Some((header, seal)), ending, whole, recorded })
}

/// Reads a line with its end, a torn line, or as many bytes as a line may have.
fn read_line(bytes: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    bytes.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', line)
}

fn read_header(line: &[u8]) -> Result<(Header, Seal), ScanEnding> {
    match line.strip_suffix(b"\n") {
        Some(line) => Header::decode(line).map_err(ScanEnding::NoHeader),
        None if line.is_empty() => Err(ScanEnding::Clean),
        None if line.len() < LONGEST_LINE && Header::is_torn(line) => {
            Err(ScanEnding::TornTail { lost: line.len() as u64 })
        }
        None => Err(ScanEnding::NoHeader(Header::decode(line).err().unwrap_or(NoHeader::Damaged))),
    }
}

fn read_commit(seal: Seal, at: u64, line: &[u8]) -> Option<&[u8]> {
    seal.open(at, line.strip_suffix(b"\n")?)
}

/// Classifies a line that is not as it was written.
fn damaged(
    seal: Seal,
    keys: KeyKind,
    at: u64,
    line: Vec<u8>,
    mut bytes: impl BufRead,
) -> io::Result<ScanEnding> {
    let is_last = bytes.fill_buf()?.is_empty();
    if is_last && line.len() < LONGEST_LINE && !seal.opens_early(at, &line) {
        return Ok(ScanEnding::TornTail { lost: line.len() as u64 });
    }
    lost(seal, keys, at, line, bytes).map(ScanEnding::Corrupt)
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
