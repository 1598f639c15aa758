//! `--results`: a directory for each job.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use serde::Serialize;

use crate::output::joblog::Existing;
use crate::output::outcome::{Outcome, Printed};
use crate::plan::job::Job;

/// A directory that has one for each job, named by its number. It holds the files `stdout`, `stderr` and
/// `job.json`, and appears complete or not at all.
#[derive(Debug)]
pub(crate) struct Results {
    directory: PathBuf,
    /// Whether results of an earlier run are replaced, or may be kept.
    existing: Existing,
}

#[derive(Serialize)]
struct Summary<'a> {
    number: u64,
    input: &'a str,
    command: &'a str,
    attempts: u32,
    exit_code: Option<i32>,
    signal: Option<i32>,
    result: String,
    /// Seconds since 1970.
    started: f64,
    seconds: f64,
}

impl Results {
    pub(crate) fn new(directory: &Path, existing: Existing) -> io::Result<Results> {
        fs::create_dir_all(directory)?;
        Ok(Results { directory: directory.to_owned(), existing })
    }

    /// The input of another job, with results that would be overwritten. A resumed run knows jobs by content,
    /// but directories have job numbers.
    pub(crate) fn other_in_place_of(&self, job: &Job) -> Option<String> {
        if self.existing == Existing::Replace {
            return None;
        }
        let summary = fs::read(self.place(job.number).join("job.json")).ok()?;
        let summary: serde_json::Value = serde_json::from_slice(&summary).ok()?;
        let input = summary.get("input")?.as_str()?;
        (input != job.key()).then(|| input.to_owned())
    }

    /// Flushes all results to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // One call for all jobs of a commit: one call per file would take longer than most jobs.
        Ok(syncfs(File::open(&self.directory)?)?)
    }

    pub(crate) fn place(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    pub(crate) fn write(&self, outcome: &Outcome, printed: &Printed) -> io::Result<()> {
        let unfinished = tempfile::Builder::new().prefix(".job-").tempdir_in(&self.directory)?;
        let path = unfinished.path();
        write(&path.join("stdout"), |file| printed.stdout.write_to(file))?;
        write(&path.join("stderr"), |file| printed.stderr.write_to(file))?;
        let summary = serde_json::to_vec_pretty(&Summary::of(outcome))?;
        write(&path.join("job.json"), |file| {
            file.write_all(&summary)?;
            file.write_all(b"\n")
        })?;
        let place = self.place(outcome.number);
        match fs::rename(path, &place) {
            // It was renamed, so nothing is left to remove.
            Ok(()) => drop(unfinished.keep()),
            // After the exchange, the temporary directory has the results of the earlier run and is removed.
            Err(error) if place.is_dir() => {
                renameat_with(CWD, path, CWD, &place, RenameFlags::EXCHANGE).map_err(|_| error)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl<'a> Summary<'a> {
    fn of(outcome: &'a Outcome) -> Summary<'a> {
        let (code, signal) = outcome.result.codes();
        Summary {
            number: outcome.number,
            input: &outcome.key,
            command: &outcome.command,
            attempts: outcome.attempts,
            exit_code: (signal == 0 && code >= 0).then_some(code),
            signal: (signal != 0).then_some(signal),
            result: outcome.result.to_string(),
            started: outcome
                .started
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
            seconds: outcome.took.as_secs_f64(),
        }
    }
}

fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    write(&mut file)?;
    file.flush()
}
