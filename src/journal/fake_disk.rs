//! For tests: a disk that fails when told to, and what it holds after the machine lost power.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::locked_file::Storage;
use super::{
    Fingerprint, Journal, JournalError, JournalFile, JournalKey, JournalOutcome, JournalRecord,
    KeyKind, Past,
};

/// Shared with the journal that has it as its storage.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeDisk(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that survive a crash.
    pub(super) synced: usize,
    position: usize,
    pub(super) calls: Vec<DiskCall>,
    pub(super) faults: Faults,
}

/// An operation that a journal asked of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskCall {
    Write(usize),
    Sync,
    SyncName,
    Cut(u64),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// The most bytes that it takes at once.
    pub(super) at_once: Option<usize>,
    /// The number of bytes at which it is full.
    pub(super) full_at: Option<usize>,
    pub(super) syncs_fail: bool,
}

impl FakeDisk {
    pub(super) fn holding(bytes: &[u8]) -> Self {
        let disk = FakeDisk::default();
        disk.contents().bytes = bytes.to_vec();
        disk.contents().synced = bytes.len();
        disk
    }

    pub(super) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    /// Opens it as a run with positions would.
    pub(super) fn open(&self, journal: &Journal) -> Result<(JournalFile, Past), JournalError> {
        self.open_by(journal, KeyKind::Position)
    }

    pub(super) fn open_by(
        &self,
        journal: &Journal,
        keys: KeyKind,
    ) -> Result<(JournalFile, Past), JournalError> {
        self.contents().position = 0;
        let run = Fingerprint::new(journal, json!({"seed": 1}), keys);
        JournalFile::open_on(Box::new(self.clone()), journal, run)
    }
}

impl Read for FakeDisk {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut contents = self.contents();
        let read = (&contents.bytes[contents.position..]).read(buffer)?;
        contents.position += read;
        Ok(read)
    }
}

impl Write for FakeDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let contents = &mut *self.contents();
        let room =
            contents.faults.full_at.unwrap_or(usize::MAX).saturating_sub(contents.bytes.len());
        let taken = bytes.len().min(contents.faults.at_once.unwrap_or(usize::MAX)).min(room);
        if taken == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        assert_eq!(contents.position, contents.bytes.len(), "a journal only appends");
        contents.bytes.extend(&bytes[..taken]);
        contents.position += taken;
        contents.calls.push(DiskCall::Write(taken));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for FakeDisk {
    fn sync(&mut self) -> io::Result<()> {
        let mut contents = self.contents();
        contents.calls.push(DiskCall::Sync);
        if contents.faults.syncs_fail {
            return Err(io::Error::other("the disk is gone"));
        }
        contents.synced = contents.bytes.len();
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        self.contents().calls.push(DiskCall::SyncName);
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.calls.push(DiskCall::Cut(length));
        contents.position = length as usize;
        contents.bytes.truncate(length as usize);
        contents.synced = contents.synced.min(length as usize);
        Ok(())
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}

pub(super) fn done(position: u64) -> JournalRecord {
    JournalRecord { key: JournalKey::Position(position), outcome: JournalOutcome::Done }
}

pub(super) fn failed(position: u64) -> JournalRecord {
    JournalRecord { key: JournalKey::Position(position), outcome: JournalOutcome::Failed }
}

pub(super) fn resume() -> Journal {
    Journal::at("j").resume().commit_every(Duration::MAX)
}

/// Returns the outcomes of the positions below `end`.
pub(super) fn outcomes(past: &Past, end: u64) -> Vec<Option<JournalOutcome>> {
    let outcome = |position| match JournalKey::Position(position) {
        key if past.is_done(&key) => Some(JournalOutcome::Done),
        key if past.is_failed(&key) => Some(JournalOutcome::Failed),
        _ => None,
    };
    (0..end).map(outcome).collect()
}

/// Commits records in one group.
pub(super) fn commit(
    journal: &mut JournalFile,
    records: impl IntoIterator<Item = JournalRecord>,
    note: Option<&[u8]>,
) -> Result<(), JournalError> {
    let now = Instant::now();
    records.into_iter().for_each(|record| journal.record(record, now));
    journal.commit(note)
}

/// A journal with four commits about positions below 20.
pub(super) fn sample() -> Vec<u8> {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&resume()).unwrap();
    commit(&mut journal, (0..5).map(done), Some(b"five")).unwrap();
    commit(&mut journal, [done(6), failed(5), done(9)], None).unwrap();
    commit(&mut journal, [done(5), done(7)], Some(&[0xff])).unwrap();
    commit(&mut journal, [failed(12), done(10)], Some(b"end")).unwrap();
    disk.contents().bytes.clone()
}

/// Where the lines of a journal end.
pub(super) fn line_ends(bytes: &[u8]) -> Vec<usize> {
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect()
}

/// Bytes of a line and more.
pub(super) fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}
