//! The outcomes that one slot holds: the latest in memory, the others in files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::mem::{replace, take};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::output::outcome::CommitMark;
use crate::output::place::parent;

/// What one slot holds.
#[derive(Debug, Default)]
pub(super) struct HeldSlot {
    unwritten: Vec<UnwrittenOutcome>,
    /// The entries of those.
    bytes: Vec<u8>,
    /// The time that those took.
    work: Duration,
    /// The file to append to.
    file: Option<File>,
    /// All files; the last is that one.
    files: Vec<HeldFile>,
    /// A write or a sync failed. What is behind the last whole entry is unknown, so nothing is written there.
    is_broken: bool,
}

#[derive(Debug)]
struct UnwrittenOutcome {
    commit: CommitMark,
    length: usize,
    work: Duration,
}

/// A file with entries, and the marks of its jobs.
#[derive(Debug)]
pub(super) struct HeldFile {
    pub(super) path: PathBuf,
    pub(super) commits: Vec<CommitMark>,
}

/// The directory of the files.
#[derive(Debug)]
pub(super) struct HeldFolder {
    pub(super) path: PathBuf,
    next: AtomicU64,
}

/// Which commits of the journal are on the disk.
#[derive(Debug)]
pub(super) struct Commits {
    /// The number of the commit that will have what is printed now.
    next: AtomicU64,
    /// The last that is on the disk.
    last: AtomicU64,
}

/// Writes an entry.
pub(super) type WriteEntry<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// The work of a slot that may be done twice, and the entries of this work, in bytes.
const MOST_WORK: Duration = Duration::from_millis(50);
pub(super) const MOST_BYTES: usize = 1 << 20;

/// The length in bytes from which a new file is begun.
const LARGEST: u64 = 16 << 20;

impl HeldSlot {
    /// Adds an outcome in memory. The job took a part of the time of its list.
    pub(super) fn push(
        &mut self,
        commit: &CommitMark,
        work: Duration,
        write: WriteEntry<'_>,
    ) -> io::Result<()> {
        let before = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        let length = self.bytes.len() - before;
        self.unwritten.push(UnwrittenOutcome { commit: Arc::clone(commit), length, work });
        self.work += work;
        Ok(())
    }

    /// Whether much is in memory only: this part of what may be.
    fn is_due(&self, part: u32) -> bool {
        self.work * part >= MOST_WORK || self.bytes.len() * part as usize >= MOST_BYTES
    }

    /// Whether the next job has to wait until outcomes are on the disk. If the journal has most of them meanwhile, it
    /// need not: with outputs that do not wait for an earlier job's, nothing is ever written.
    pub(super) fn has_to_write(&mut self, commits: &Commits) -> bool {
        if !self.is_due(1) {
            return false;
        }
        self.drop_committed(commits);
        self.is_due(2)
    }

    pub(super) fn has_unwritten(&mut self, commits: &Commits) -> bool {
        self.drop_committed(commits);
        !self.unwritten.is_empty()
    }

    fn drop_committed(&mut self, commits: &Commits) {
        let (bytes, mut at) = (take(&mut self.bytes), 0);
        self.unwritten.retain(|outcome| {
            let entry = &bytes[at..at + outcome.length];
            at += outcome.length;
            let is_open = !commits.have(&outcome.commit);
            if is_open {
                self.bytes.extend_from_slice(entry);
            }
            is_open
        });
        self.work = self.unwritten.iter().map(|outcome| outcome.work).sum();
    }

    /// Puts all outcomes on the disk, and with them the large one that was not added.
    pub(super) fn write(
        &mut self,
        folder: &HeldFolder,
        commits: &Commits,
        large: Option<(&CommitMark, WriteEntry<'_>)>,
    ) -> io::Result<()> {
        let (unwritten, bytes) = (take(&mut self.unwritten), take(&mut self.bytes));
        self.work = Duration::ZERO;
        if replace(&mut self.is_broken, true) {
            return Ok(());
        }
        let mut out = BufWriter::new(self.file(folder, commits)?);
        out.write_all(&bytes)?;
        if let Some((_, write)) = large {
            write(&mut out)?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
        let marks = unwritten.into_iter().map(|outcome| outcome.commit);
        let marks = marks.chain(large.map(|(commit, _)| Arc::clone(commit)));
        self.files.last_mut().expect("it was just written").commits.extend(marks);
        self.is_broken = false;
        Ok(())
    }

    /// The file to append to, after removing what the journal has.
    fn file(&mut self, folder: &HeldFolder, commits: &Commits) -> io::Result<&File> {
        let last = self.files.pop();
        remove_committed(&mut self.files, commits);
        let last = last.map(|last| last.without_committed(commits)).zip(self.file.take());
        let (last, file) = match last {
            Some((last, file)) if last.commits.is_empty() => {
                file.set_len(0)?;
                (last, file)
            }
            Some((last, file)) if file.metadata()?.len() < LARGEST => (last, file),
            full => {
                self.files.extend(full.map(|(last, _)| last));
                folder.create()?
            }
        };
        self.files.push(last);
        Ok(self.file.insert(file))
    }

    /// Removes the files of which the journal has all jobs.
    pub(super) fn remove_committed(&mut self, commits: &Commits) {
        remove_committed(&mut self.files, commits);
    }
}

pub(super) fn remove_committed(files: &mut Vec<HeldFile>, commits: &Commits) {
    files.retain(|file| {
        let is_open = file.commits.iter().any(|commit| !commits.have(commit));
        if !is_open {
            // A file that stays has jobs that the journal has, and does no harm.
            let _ = fs::remove_file(&file.path);
        }
        is_open
    });
}

impl HeldFile {
    fn without_committed(mut self, commits: &Commits) -> HeldFile {
        self.commits.retain(|commit| !commits.have(commit));
        self
    }
}

impl HeldFolder {
    pub(super) fn new(path: PathBuf) -> HeldFolder {
        HeldFolder { path, next: AtomicU64::new(1) }
    }

    /// Creates a file, and returns once its name is on the disk.
    fn create(&self) -> io::Result<(HeldFile, File)> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => sync_folder(parent(&self.path))?,
        }
        let mut new = File::options();
        // Only its owner can read it, as with the journal.
        new.append(true).create_new(true).mode(0o600);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.path.join(format!("{number}{NEW}"));
            match new.open(&path) {
                // A file of an earlier run has this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    let file = file?;
                    sync_folder(&self.path)?;
                    return Ok((HeldFile { path, commits: Vec::new() }, file));
                }
            }
        }
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_data()
}

impl Commits {
    pub(super) fn new() -> Commits {
        Commits { next: AtomicU64::new(EARLIER + 1), last: AtomicU64::new(EARLIER) }
    }

    pub(super) fn have(&self, commit: &CommitMark) -> bool {
        (EARLIER..=self.last.load(Ordering::Acquire)).contains(&commit.load(Ordering::Acquire))
    }

    /// The output of a job was printed. All commits that were begun are on the disk, since the consumer waits for each.
    pub(super) fn add(&self, commit: &CommitMark) {
        let next = self.next.load(Ordering::Relaxed);
        commit.store(next, Ordering::Release);
        self.last.store(next - 1, Ordering::Release);
    }

    /// A commit is about to begin.
    pub(super) fn begin(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// All commits are on the disk, also the last.
    pub(super) fn end(&self) {
        self.last.store(u64::MAX, Ordering::Release);
    }
}

/// The number that stands for all commits of earlier runs.
pub(super) const EARLIER: u64 = 1;
/// The end of the name of a file.
pub(super) const NEW: &str = ".jobs";
