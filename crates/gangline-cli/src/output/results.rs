//! `--results`: the outputs and the outcome of each job, as files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;

use crate::output::joblog::Existing;
use crate::output::misplaced::Misplaced;
use crate::output::names::Names;
use crate::output::outcome::{JobOutcome, Printed};
use crate::output::place::ResultPlace;
use crate::output::table::{Errors, ResultTable, TableForm};
use crate::plan::job::Job;

/// Where the results of jobs go.
#[derive(Debug)]
pub(crate) enum ResultsTarget {
    Folder(Folder),
    /// Files or directories with marks in their names.
    Named(Names),
    Table(ResultTable),
}

/// A directory that has one for each job, named by its number. That appears complete or not at all.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: PathBuf,
    /// Whether results of an earlier run are replaced, or may be kept.
    existing: Existing,
}

impl ResultsTarget {
    /// Results in a folder, or in a table if the path has the extension of one.
    pub(crate) fn new(
        path: &Path,
        existing: Existing,
        errors: Errors,
    ) -> io::Result<ResultsTarget> {
        match TableForm::of(path) {
            Some(form) => {
                Ok(ResultsTarget::Table(ResultTable::open(path, form, existing, errors)?))
            }
            None => {
                fs::create_dir_all(path)?;
                // A read-only folder is noticed before the first job.
                tempfile::tempfile_in(path)?;
                Ok(ResultsTarget::Folder(Folder { directory: path.to_owned(), existing }))
            }
        }
    }

    /// Results in files named by marks, of a text that has `beginning` before the first.
    pub(crate) fn named(beginning: &OsStr) -> io::Result<ResultsTarget> {
        Ok(ResultsTarget::Named(Names::new(beginning)?))
    }

    /// The place of a job's results, with the name that marks make. It is checked before the job starts.
    pub(crate) fn place(
        &self,
        number: u64,
        name: &OsStr,
    ) -> Result<Option<ResultPlace>, Misplaced> {
        match self {
            ResultsTarget::Folder(folder) => {
                let place = folder.place(number);
                place.check()?;
                Ok(Some(place))
            }
            ResultsTarget::Named(names) => names.place(number, name).map(Some),
            ResultsTarget::Table(_) => Ok(None),
        }
    }

    /// The input of another job, with results that would be overwritten. A resumed run knows jobs by content,
    /// but directories have job numbers.
    pub(crate) fn other_in_place_of(&self, job: &Job) -> Option<(PathBuf, String)> {
        let ResultsTarget::Folder(folder) = self else { return None };
        if folder.existing == Existing::Replace {
            return None;
        }
        let place = folder.place(job.number).path().to_owned();
        let summary = fs::read(place.join("job.json")).ok()?;
        let summary: serde_json::Value = serde_json::from_slice(&summary).ok()?;
        let input = summary.get("input")?.as_str()?;
        (input != job.key()).then(|| (place, input.to_owned()))
    }

    /// Flushes all results to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            // One call for all jobs of a commit: one call per file would take longer than most jobs.
            ResultsTarget::Folder(folder) => Ok(syncfs(File::open(&folder.directory)?)?),
            ResultsTarget::Named(names) => names.sync(),
            ResultsTarget::Table(table) => table.sync(),
        }
    }

    /// Flushes the results of jobs whose outputs are not printed yet.
    pub(crate) fn sync_unprinted(&self) -> io::Result<()> {
        match self {
            ResultsTarget::Folder(_) | ResultsTarget::Named(_) => self.sync(),
            // It gets a row when the output is printed.
            ResultsTarget::Table(_) => Ok(()),
        }
    }

    /// Writes the results of a job when its output is printed, in the order of the outputs.
    pub(crate) fn append(&self, outcome: &JobOutcome, printed: &Printed) -> io::Result<()> {
        match self {
            ResultsTarget::Table(table) => table.append(outcome, printed),
            ResultsTarget::Folder(_) | ResultsTarget::Named(_) => Ok(()),
        }
    }
}

impl Folder {
    fn place(&self, number: u64) -> ResultPlace {
        ResultPlace::Directory(self.directory.join(number.to_string()))
    }
}
