//! Jobs that have succeeded and are not in the journal yet.

mod entry;
mod slot;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::error::{CliError, Context};
use crate::execute::held::entry::EntryEnd;
use crate::execute::held::slot::{
    Commits, EARLIER, HeldFile, HeldFolder, HeldSlot, MOST_BYTES, NEW, remove_committed,
};
use crate::exit;
use crate::locking::lock;
use crate::output::joblog::Existing;
use crate::output::outcome::{CommitMark, JobOutcome};
use crate::output::place::{check_folder, parent};
use crate::plan::job::Job;
use crate::plan::rules::Output;

/// The outcomes of jobs that have succeeded, until the journal has them.
///
/// The journal records a job when its output was printed, which may wait for an earlier job. So that a run that is cut
/// off meanwhile need not do the job again, its outcome and its output are put into a file of its slot, in a directory
/// beside the journal. A slot waits for the disk once for a list of jobs, and not at all for less than 50 ms of work.
#[derive(Debug)]
pub(crate) struct HeldOutputs {
    folder: HeldFolder,
    slots: Vec<Mutex<HeldSlot>>,
    commits: Commits,
    /// Whether the files in the directory are of another journal.
    are_stale: bool,
    earlier: OnceLock<Mutex<EarlierOutcomes>>,
    replayed: AtomicU64,
}

/// What earlier runs have left.
#[derive(Debug, Default)]
struct EarlierOutcomes {
    /// By content and number among equals.
    jobs: HashMap<(String, u64), EarlierOutcome>,
    files: Vec<HeldFile>,
    /// Why they could not be read.
    error: Option<io::Error>,
}

#[derive(Debug)]
struct EarlierOutcome {
    path: Arc<Path>,
    /// The byte at which its entry begins.
    at: u64,
    commit: CommitMark,
}

/// An ended job with its outcome.
pub(crate) type EndedJob<'a> = (&'a Job, Arc<JobOutcome>);

impl HeldOutputs {
    /// The jobs held beside a journal, of which nothing is read yet.
    pub(crate) fn new(journal: &Path, existing: Existing, slots: usize) -> HeldOutputs {
        let mut path = journal.as_os_str().to_owned();
        path.push(".held");
        let has_journal = fs::metadata(journal).is_ok_and(|file| file.len() > 0);
        HeldOutputs {
            folder: HeldFolder::new(PathBuf::from(path)),
            slots: (0..slots).map(|_| Mutex::default()).collect(),
            commits: Commits::new(),
            are_stale: existing == Existing::Replace || !has_journal,
            earlier: OnceLock::new(),
            replayed: AtomicU64::new(0),
        }
    }

    /// Reads what earlier runs have left, and checks that this one can write. The journal is locked.
    pub(crate) fn open(&self) -> io::Result<()> {
        self.earlier().error.take().map_or(Ok(()), Err)?;
        let folder = &self.folder.path;
        check_folder(if folder.exists() { folder } else { parent(folder) })
    }

    /// Holds the outcomes of jobs that a slot has got together. Before that, the slot takes no other job. `before` puts
    /// on the disk what has to be there earlier.
    pub(crate) fn keep(
        &self,
        slot: usize,
        ended: &[EndedJob<'_>],
        showing: Output,
        before: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        // The time of each counts from the sending of the list.
        let Some(took) = ended.iter().map(|(_, outcome)| outcome.took).max() else { return Ok(()) };
        let work = took / u32::try_from(ended.len()).unwrap_or(u32::MAX);
        let mut slot = lock(&self.slots[slot]);
        for (job, outcome) in ended {
            let write = |out: &mut dyn Write| entry::write(out, occurrence(job), outcome, showing);
            if entry::output_length(outcome, showing) < MOST_BYTES as u64 {
                slot.push(&outcome.commit, work, &write)?;
            } else {
                before()?;
                slot.write(&self.folder, &self.commits, Some((&outcome.commit, &write)))?;
            }
        }
        match slot.has_to_write(&self.commits) {
            true => before().and_then(|()| slot.write(&self.folder, &self.commits, None)),
            false => Ok(()),
        }
    }

    /// The outcome of a job that succeeded in an earlier run, which did not come to record it.
    pub(crate) fn take(&self, job: &Job, showing: Output) -> io::Result<Option<JobOutcome>> {
        let found = self.earlier().jobs.remove(&(job.key(), occurrence(job)));
        let Some(EarlierOutcome { path, at, commit }) = found else { return Ok(None) };
        let mut file = BufReader::new(File::open(path)?);
        file.seek(SeekFrom::Start(at))?;
        let outcome = entry::read(&mut file, job, showing)?;
        self.replayed.fetch_add(1, Ordering::Relaxed);
        Ok(Some(JobOutcome { commit, ..outcome }))
    }

    /// The journal has this job, which is the given one of those with the same content.
    pub(crate) fn note_done(&self, job: &Job, occurrence: u64) {
        if let Some(found) = self.earlier().jobs.remove(&(job.key(), occurrence)) {
            found.commit.store(EARLIER, Ordering::Release);
        }
    }

    /// The output of a job was printed, so the next commit has it.
    pub(crate) fn printed(&self, outcome: &JobOutcome) {
        self.commits.add(&outcome.commit);
    }

    /// The journal is about to commit all printed jobs.
    pub(crate) fn commits(&self) {
        self.commits.begin();
    }

    /// The run is over. If all printed jobs are committed, only others stay: a signal may have kept them from being
    /// printed.
    pub(crate) fn end(
        &self,
        is_committed: bool,
        before: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        if is_committed {
            self.commits.end();
        }
        let mut written = Ok(());
        for slot in &self.slots {
            let mut slot = lock(slot);
            if slot.has_unwritten(&self.commits) {
                let put = before().and_then(|()| slot.write(&self.folder, &self.commits, None));
                written = written.and(put);
            }
            slot.remove_committed(&self.commits);
        }
        if let Some(earlier) = self.earlier.get() {
            remove_committed(&mut lock(earlier).files, &self.commits);
        }
        let _ = fs::remove_dir(&self.folder.path);
        written
    }

    /// The error of a run that cannot read or write the files.
    pub(crate) fn error(&self, error: io::Error) -> CliError {
        let folder = self.folder.path.display();
        let what = format!("the outcomes of jobs cannot be kept in {folder}, beside the journal");
        CliError::new(exit::JOURNAL, Context::new(what, error))
    }

    /// The number of jobs that were not run because an earlier run had.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }

    /// Reads the files of earlier runs, or removes them. Not before the journal is locked: another run may write them.
    fn earlier(&self) -> MutexGuard<'_, EarlierOutcomes> {
        lock(self.earlier.get_or_init(|| {
            let mut earlier = EarlierOutcomes::default();
            earlier.error = match self.are_stale {
                true => remove_all(&self.folder.path).err(),
                false => earlier.read_all(&self.folder.path).err(),
            };
            Mutex::new(earlier)
        }))
    }
}

impl EarlierOutcomes {
    fn read_all(&mut self, folder: &Path) -> io::Result<()> {
        for path in files(folder)? {
            let name = path.as_os_str().as_encoded_bytes();
            let end = if name.ends_with(NEW.as_bytes()) {
                Some(EntryEnd::Checksum)
            } else {
                name.ends_with(OLD.as_bytes()).then_some(EntryEnd::File)
            };
            let commits = end.map_or(Ok(Vec::new()), |end| self.read(&path, end))?;
            self.files.push(HeldFile { path, commits });
        }
        Ok(())
    }

    /// Reads a file, and returns the marks of its jobs.
    fn read(&mut self, path: &Path, end: EntryEnd) -> io::Result<Vec<CommitMark>> {
        let mut file = BufReader::new(File::open(path)?);
        let (path, mut commits, mut at) = (Arc::<Path>::from(path), Vec::new(), 0);
        while let Some(header) = entry::pass(&mut file, end) {
            let commit = CommitMark::default();
            commits.push(Arc::clone(&commit));
            let key = (header.key.into_owned(), header.occurrence);
            let found = EarlierOutcome { path: Arc::clone(&path), at, commit };
            if let Some(same) = self.jobs.insert(key, found) {
                same.commit.store(EARLIER, Ordering::Release);
            }
            at = file.stream_position()?;
        }
        Ok(commits)
    }
}

fn occurrence(job: &Job) -> u64 {
    let occurrence = job.turn.as_ref().and_then(|turn| turn.occurrence.get());
    occurrence.copied().unwrap_or_default()
}

/// The end of the name of a file of earlier versions, and the beginning of one that was being written.
const OLD: &str = ".job";
const OLD_UNFINISHED: &str = ".tmp";

/// The files with outcomes in a directory, which may have others.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let has_end = [NEW, OLD].iter().any(|end| name.ends_with(end.as_bytes()));
        has_end || name.starts_with(OLD_UNFINISHED.as_bytes())
    };
    let paths: io::Result<Vec<PathBuf>> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    Ok(paths?.into_iter().filter(is_own).collect())
}

/// Removes the files with outcomes in a directory, and the directory if it has no other.
fn remove_all(folder: &Path) -> io::Result<()> {
    files(folder)?.iter().try_for_each(fs::remove_file)?;
    match fs::remove_dir(folder) {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}
