//! The file of a journal: reading, appending, repairing.

use std::fmt;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::fingerprint::Fingerprint;
use super::group::Group;
use super::journal_error::{JournalError, io_error};
use super::journal_key::{JournalKey, JournalRecord};
use super::line::{FORMAT, Header, LONGEST_LINE, NoHeader, PendingRecords, Seal};
use super::locked_file::{LockedFile, Storage};
use super::past::Past;
use super::scan::{Lost, Scan, ScanEnding, scan};
use super::{Journal, Mode};

/// The largest note: it is written again with every commit that changes it.
const LONGEST_NOTE: usize = 64 << 10;

/// A group is due when its keys have this many bytes, so that no line comes near the longest.
const MANY_BYTES: usize = 1 << 20;

/// A journal that is open for one run, and locked until it is dropped.
///
/// Dropping it commits nothing: what the consumer wrote may not be on the disk.
pub(crate) struct JournalFile {
    path: PathBuf,
    storage: Box<dyn Storage>,
    seal: Seal,
    /// The length of the file.
    length: u64,
    health: FileHealth,
    pending: PendingRecords,
    /// The size of their keys, in bytes.
    pending_bytes: usize,
    group: Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileHealth {
    Good,
    /// A write or a sync failed. The contents of the disk are unknown: after a failed sync the system may
    /// drop what it could not write, and report success for the next sync.
    Broken,
}

/// The result of a [repair](Journal::repair).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The number of bytes kept: those before the first damage.
    pub kept_bytes: u64,
    /// The number of commits in them.
    pub kept_commits: u64,
    /// The number of items that are done by them.
    pub done: u64,
    /// The number of items that failed by them, and were not done later.
    pub failed: u64,
    /// The number of bytes cut off; 0 if nothing was damaged.
    pub lost_bytes: u64,
    /// The number of commits among those that could still be read. They are not kept: a note among them
    /// would describe work that is repeated.
    pub lost_commits: u64,
    /// The number of items in those commits.
    pub lost_items: u64,
}

impl JournalFile {
    /// Opens and locks the journal, returns its contents, and prepares it for appending.
    ///
    /// # Errors
    ///
    /// Every [`JournalError`] that is not about a single item, note or commit.
    pub(crate) fn open(journal: &Journal, run: Fingerprint) -> Result<(Self, Past), JournalError> {
        let file = LockedFile::open(journal)?;
        JournalFile::open_on(Box::new(file), journal, run)
    }

    pub(super) fn open_on(
        mut storage: Box<dyn Storage>,
        journal: &Journal,
        run: Fingerprint,
    ) -> Result<(Self, Past), JournalError> {
        let path = journal.path.as_path();
        let scan =
            scan(BufReader::new(&mut storage)).map_err(|source| io_error(path, "read", source))?;
        check_mode(journal, &scan)?;
        check_ending(path, &scan)?;
        let (seal, length) = match scan.header {
            Some((header, seal)) => {
                check_run(journal, header, &run)?;
                cut(&mut *storage, path, scan.whole)?;
                (seal, scan.whole)
            }
            None => begin(&mut *storage, path, run.clone())?,
        };
        let file = JournalFile {
            path: path.to_owned(),
            storage,
            seal,
            length,
            health: FileHealth::Good,
            pending: PendingRecords::new(run.keys()),
            pending_bytes: 0,
            group: Group::new(journal.items, journal.every),
        };
        Ok((file, Past::new(scan.recorded, journal.mode, path.to_owned())))
    }

    /// Adds a record, in memory only.
    ///
    /// # Panics
    ///
    /// If the key is not of the kind in the fingerprint.
    pub(crate) fn record(&mut self, record: JournalRecord, now: Instant) {
        if let JournalKey::Name { name, .. } = &record.key {
            self.pending_bytes += name.len();
        }
        self.pending.push(record);
        self.group.add(now);
    }

    /// Returns the number of records that wait to be committed.
    pub(crate) fn pending(&self) -> usize {
        self.group.len()
    }

    /// Returns whether they are to be committed now. To be called after every record.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.group.is_due(now) || self.pending_bytes >= MANY_BYTES
    }

    /// Returns the latest time to commit them; `None` without records.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.group.due_at()
    }

    /// Writes the records, all or none of them, with a note if there is a new one, and returns when they
    /// are on the disk. Without records and note nothing is written.
    ///
    /// # Errors
    ///
    /// - [`NoteTooLarge`](JournalError::NoteTooLarge) and [`TooLong`](JournalError::TooLong): nothing was
    ///   written, and the records stay pending.
    /// - [`Gone`](JournalError::Gone): the file was deleted or moved, so nothing was written.
    /// - [`Io`](JournalError::Io), and [`Broken`](JournalError::Broken) from then on: the records may or
    ///   may not be there when the journal is opened again.
    pub(crate) fn commit(&mut self, note: Option<&[u8]>) -> Result<(), JournalError> {
        if self.health == FileHealth::Broken {
            return Err(JournalError::Broken { path: self.path.clone() });
        }
        if self.pending() == 0 && note.is_none() {
            return Ok(());
        }
        note.map_or(Ok(()), check_note)?;
        let line = self.seal.close(self.length, &self.pending.encode(note));
        check_length(&self.path, &line)?;
        if !self.storage.has_name().map_err(|source| io_error(&self.path, "found", source))? {
            return Err(JournalError::Gone { path: self.path.clone() });
        }
        // Broken until the write is known to have succeeded.
        self.health = FileHealth::Broken;
        write(&mut *self.storage, &self.path, &line)?;
        self.health = FileHealth::Good;
        self.length += line.len() as u64;
        self.pending.clear();
        self.pending_bytes = 0;
        self.group.clear();
        Ok(())
    }
}

impl fmt::Debug for JournalFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalFile")
            .field("path", &self.path)
            .field("health", &self.health)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Checks that a note can be committed.
///
/// # Errors
///
/// [`JournalError::NoteTooLarge`].
pub(crate) fn check_note(note: &[u8]) -> Result<(), JournalError> {
    match note.len() {
        bytes if bytes > LONGEST_NOTE => {
            Err(JournalError::NoteTooLarge { bytes, limit: LONGEST_NOTE })
        }
        _ => Ok(()),
    }
}

fn check_mode(journal: &Journal, scan: &Scan) -> Result<(), JournalError> {
    let path = || journal.path.clone();
    let is_empty = scan.whole == 0 && scan.ending == ScanEnding::Clean;
    let is_unbegun = scan.whole == 0 && matches!(scan.ending, ScanEnding::TornTail { .. });
    match journal.mode {
        Mode::New if !is_empty => Err(JournalError::Exists { path: path() }),
        Mode::RerunFailed if is_empty || is_unbegun => Err(JournalError::Missing { path: path() }),
        _ => Ok(()),
    }
}

fn check_ending(path: &Path, scan: &Scan) -> Result<(), JournalError> {
    let path = || path.to_owned();
    Err(match scan.ending {
        ScanEnding::Clean | ScanEnding::TornTail { .. } => return Ok(()),
        ScanEnding::Corrupt(_) => JournalError::Corrupt { path: path(), at: scan.whole },
        ScanEnding::NoHeader(NoHeader::NoJournal) => JournalError::NoJournal { path: path() },
        ScanEnding::NoHeader(NoHeader::Damaged) => JournalError::Header { path: path() },
        ScanEnding::NoHeader(NoHeader::Format(found)) => {
            JournalError::Format { path: path(), found, known: FORMAT }
        }
    })
}

fn check_run(journal: &Journal, was: Header, is: &Fingerprint) -> Result<(), JournalError> {
    let mut was = was.run;
    // Keys that are ignored from now on may have been recorded before.
    was.ignore(&journal.ignored);
    match was.differences(is) {
        differences if differences.is_empty() => Ok(()),
        differences => Err(JournalError::Differs { path: journal.path.clone(), differences }),
    }
}

fn check_length(path: &Path, line: &[u8]) -> Result<(), JournalError> {
    match line.len() {
        bytes if bytes >= LONGEST_LINE => {
            Err(JournalError::TooLong { path: path.to_owned(), bytes, limit: LONGEST_LINE - 1 })
        }
        _ => Ok(()),
    }
}

/// Cuts off a torn line, which must not become the beginning of the next. Also syncs: if the last process
/// was killed before it synced, what was read may be in memory only.
fn cut(storage: &mut dyn Storage, path: &Path, whole: u64) -> Result<(), JournalError> {
    storage.cut(whole).map_err(|source| io_error(path, "cut", source))?;
    storage.sync().map_err(|source| io_error(path, "synced", source))
}

/// Writes the header, after cutting off a torn one.
fn begin(
    storage: &mut dyn Storage,
    path: &Path,
    run: Fingerprint,
) -> Result<(Seal, u64), JournalError> {
    let (line, seal) = Header::new(run).encode();
    check_length(path, &line)?;
    cut(storage, path, 0)?;
    write(storage, path, &line)?;
    storage.sync_name().map_err(|source| io_error(path, "synced", source))?;
    Ok((seal, line.len() as u64))
}

fn write(storage: &mut dyn Storage, path: &Path, line: &[u8]) -> Result<(), JournalError> {
    storage.write_all(line).map_err(|source| io_error(path, "written", source))?;
    storage.sync().map_err(|source| io_error(path, "synced", source))
}

impl Journal {
    /// Cuts off the first damage and everything behind it, and reports what was cut off.
    ///
    /// A run that [resumes](Journal::resume) repeats the items recorded after the damage. An undamaged file
    /// is not changed.
    ///
    /// # Errors
    ///
    /// [`Missing`](JournalError::Missing), [`Locked`](JournalError::Locked),
    /// [`NotAFile`](JournalError::NotAFile), [`NoJournal`](JournalError::NoJournal),
    /// [`Format`](JournalError::Format), [`Header`](JournalError::Header) (no part can be kept), and
    /// [`Io`](JournalError::Io).
    ///
    /// ```
    /// use gangline::{Journal, OrderedRunner, each};
    ///
    /// # let path = std::env::temp_dir().join(format!("gangline-repair-{}", std::process::id()));
    /// let mut pool = OrderedRunner::builder(each(|x: u64| Ok(x))).journal(Journal::at(&path)).build()?;
    /// pool.run(0..5)?;
    /// drop(pool);
    /// let whole = std::fs::read(&path)?;
    /// std::fs::write(&path, [&whole[..], b"not a commit\n", b"{}\n"].concat())?;
    ///
    /// let repair = Journal::at(&path).repair()?;
    /// assert_eq!((repair.done, repair.lost_bytes), (5, 16));
    /// assert_eq!(std::fs::read(&path)?, whole);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn repair(&self) -> Result<Repair, JournalError> {
        let path = self.path.as_path();
        let mut disk = LockedFile::existing(self)?;
        let read = |source| io_error(path, "read", source);
        let found = scan(BufReader::new(&mut disk)).map_err(read)?;
        let lost = match found.ending {
            ScanEnding::Clean => Lost::default(),
            ScanEnding::TornTail { lost: bytes } => Lost { bytes, ..Lost::default() },
            ScanEnding::Corrupt(lost) => lost,
            ScanEnding::NoHeader(_) => {
                return check_ending(path, &found).map(|()| unreachable!("it is an error"));
            }
        };
        if lost.bytes > 0 {
            cut(&mut disk, path, found.whole)?;
        }
        disk.rewind().map_err(read)?;
        let kept = scan(BufReader::new(&mut disk)).map_err(read)?;
        Ok(Repair {
            kept_bytes: kept.whole,
            kept_commits: kept.recorded.commits(),
            done: kept.recorded.done(),
            failed: kept.recorded.failed(),
            lost_bytes: lost.bytes,
            lost_commits: lost.commits,
            lost_items: lost.items,
        })
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kept {} bytes with {} commits: {} items done, {} failed; ",
            self.kept_bytes, self.kept_commits, self.done, self.failed
        )?;
        match self.lost_bytes {
            0 => f.write_str("nothing was damaged"),
            bytes => write!(
                f,
                "cut off {bytes} bytes, in which {} commits about {} items could still be read",
                self.lost_commits, self.lost_items
            ),
        }
    }
}
