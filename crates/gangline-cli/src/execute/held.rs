//! Jobs that have succeeded and are not in the journal yet.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::execute::process::ProcessEnd;
use crate::execute::shared::Output;
use crate::output::capture::{Captured, Spill};
use crate::output::joblog::Existing;
use crate::output::outcome::{JobOutcome, JobResult, Printed, StdoutForm};
use crate::plan::job::Job;

/// A directory beside the journal with a file for each job that has succeeded, until the journal has it.
///
/// The journal records a job when its output was printed, which may wait for an earlier job. Without these
/// files, a run that is killed meanwhile would do the job again.
#[derive(Debug)]
pub(crate) struct HeldOutputs {
    directory: PathBuf,
    /// Those of earlier runs, by content and number among equals.
    earlier: Mutex<HashMap<(String, u64), PathBuf>>,
    files: Mutex<HeldFiles>,
    replayed: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldFiles {
    /// By the number of the job.
    unprinted: HashMap<u64, PathBuf>,
    /// Their outputs are printed; the next commit has them.
    printed: Vec<PathBuf>,
    /// The commit that has them was begun.
    committed: Vec<PathBuf>,
}

/// The first line of a file. The unprinted output follows: standard output, then standard error.
#[derive(Debug, Serialize, Deserialize)]
struct HeldHeader {
    key: String,
    occurrence: u64,
    command: String,
    attempts: u32,
    slot: usize,
    gpus: Vec<usize>,
    started: Duration,
    took: Duration,
    received: u64,
    file: Option<PathBuf>,
    #[serde(default)]
    form: StdoutForm,
    stdout: u64,
    stderr: u64,
}

impl HeldOutputs {
    /// The jobs held beside a journal. Those of another journal at that path are removed.
    pub(crate) fn open(journal: &Path, existing: Existing) -> io::Result<HeldOutputs> {
        let mut directory = journal.as_os_str().to_owned();
        directory.push(".held");
        let directory = PathBuf::from(directory);
        let has_journal = fs::metadata(journal).is_ok_and(|file| file.len() > 0);
        if directory.exists() && (existing == Existing::Replace || !has_journal) {
            remove_jobs(&directory)?;
        }
        let mut earlier = HashMap::new();
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry?.path();
            // One that was being written has no whole header, or another name.
            if path.extension().is_some_and(|extension| extension == "job")
                && let Ok((header, _)) = read(&path)
            {
                earlier.insert((header.key, header.occurrence), path);
            }
        }
        let (earlier, files) = (Mutex::new(earlier), Mutex::default());
        Ok(HeldOutputs { directory, earlier, files, replayed: AtomicU64::new(0) })
    }

    /// Puts the outcome of a job on the disk.
    pub(crate) fn keep(&self, job: &Job, outcome: &JobOutcome, showing: Output) -> io::Result<()> {
        let printed = outcome.printed.lock().expect("nothing panics with the lock held");
        let (stdout, stderr) = match showing {
            Output::Whole => (&printed.stdout, &printed.stderr),
            _ => (&printed.unshown[0], &printed.unshown[1]),
        };
        let header = HeldHeader {
            key: outcome.key.clone(),
            occurrence: occurrence(job),
            command: outcome.command.clone(),
            attempts: outcome.attempts,
            slot: outcome.slot,
            gpus: outcome.gpus.to_vec(),
            started: outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            took: outcome.took,
            received: printed.received,
            file: printed.file.clone(),
            form: printed.form,
            stdout: stdout.len(),
            stderr: stderr.len(),
        };
        fs::create_dir_all(&self.directory)?;
        let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(&self.directory)?);
        serde_json::to_writer(&mut file, &header)?;
        file.write_all(b"\n")?;
        stdout.write_to(&mut file)?;
        stderr.write_to(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_data()?;
        let mut path = file.path().as_os_str().to_owned();
        path.push(".job");
        let path = PathBuf::from(path);
        file.persist(&path).map_err(|error| error.error)?;
        File::open(&self.directory)?.sync_data()?;
        self.files().unprinted.insert(outcome.number, path);
        Ok(())
    }

    /// The outcome of a job that succeeded in an earlier run, which did not come to record it.
    pub(crate) fn take(&self, job: &Job, showing: Output) -> io::Result<Option<JobOutcome>> {
        let key = (job.key(), occurrence(job));
        let Some(path) = self.earlier().remove(&key) else { return Ok(None) };
        let (header, mut file) = read(&path)?;
        let spill = Arc::new(Spill::default());
        let stdout = captured(&mut file, header.stdout, &spill)?;
        let stderr = captured(&mut file, header.stderr, &spill)?;
        let HeldHeader { received, file: path_of_output, form, .. } = header;
        let mut printed = Printed { received, file: path_of_output, form, ..Printed::default() };
        match showing {
            Output::Whole => (printed.stdout, printed.stderr) = (stdout, stderr),
            _ => printed.unshown = [stdout, stderr],
        }
        self.files().unprinted.insert(job.number, path);
        self.replayed.fetch_add(1, Ordering::Relaxed);
        Ok(Some(JobOutcome {
            number: job.number,
            key: header.key,
            fields: Arc::clone(&job.fields),
            command: header.command,
            attempts: header.attempts,
            slot: header.slot,
            gpus: header.gpus.into(),
            tag: None,
            results: None,
            result: JobResult::Ended(ProcessEnd::Exited(0)),
            started: SystemTime::UNIX_EPOCH + header.started,
            took: header.took,
            printed: Mutex::new(printed),
        }))
    }

    /// The output of a job was printed.
    pub(crate) fn printed(&self, number: u64) {
        let mut files = self.files();
        if let Some(path) = files.unprinted.remove(&number) {
            files.printed.push(path);
        }
    }

    /// The journal is about to commit all printed jobs, so it has those of the last commit.
    pub(crate) fn commits(&self) {
        let mut files = self.files();
        let printed = std::mem::take(&mut files.printed);
        let committed = std::mem::replace(&mut files.committed, printed);
        drop(files);
        remove(committed);
    }

    /// The journal has all printed jobs.
    pub(crate) fn end(&self) {
        self.commits();
        self.commits();
        // Unless it has jobs that a signal kept from being printed.
        let _ = fs::remove_dir(&self.directory);
    }

    /// The number of jobs that were not run because an earlier run had.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }

    fn files(&self) -> MutexGuard<'_, HeldFiles> {
        self.files.lock().expect("nothing panics with the lock held")
    }

    fn earlier(&self) -> MutexGuard<'_, HashMap<(String, u64), PathBuf>> {
        self.earlier.lock().expect("nothing panics with the lock held")
    }
}

fn occurrence(job: &Job) -> u64 {
    let occurrence = job.turn.as_ref().and_then(|turn| turn.occurrence.get());
    occurrence.copied().unwrap_or_default()
}

fn read(path: &Path) -> io::Result<(HeldHeader, BufReader<File>)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    file.read_until(b'\n', &mut line)?;
    Ok((serde_json::from_slice(&line)?, file))
}

fn captured(file: &mut impl Read, length: u64, spill: &Arc<Spill>) -> io::Result<Captured> {
    let mut captured = Captured::default();
    let mut buffer = [0; 64 * 1_024];
    let mut left = length;
    while left > 0 {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..most])?;
        captured.push(spill, &buffer[..most])?;
        left -= most as u64;
    }
    Ok(captured)
}

/// Removes the jobs in a directory, and the directory if it has no other file.
fn remove_jobs(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.ends_with(b".job") || name.starts_with(b".tmp") {
            fs::remove_file(path)?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        _ => Ok(()),
    }
}

fn remove(paths: Vec<PathBuf>) {
    for path in paths {
        // A file that stays is of a job that the journal has, and does no harm.
        let _ = fs::remove_file(path);
    }
}
