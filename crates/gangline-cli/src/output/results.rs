//! `--results`: the outputs and the outcome of each job, as files.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use serde::Serialize;

use crate::output::joblog::Existing;
use crate::output::outcome::{Outcome, Printed};
use crate::output::table::{Form, Table};
use crate::plan::job::Job;

/// Where the results of jobs go.
#[derive(Debug)]
pub(crate) enum Results {
    Folder(Folder),
    Named(Named),
    Table(Table),
}

/// A directory that has one for each job, named by its number. It holds the files `stdout`, `stderr` and
/// `job.json`, and appears complete or not at all.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: PathBuf,
    /// Whether results of an earlier run are replaced, or may be kept.
    existing: Existing,
}

/// Files or directories with marks in their names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The names that this run has used, since two jobs with one name would lose the results of the first.
    used: Mutex<HashSet<OsString>>,
}

#[derive(Serialize)]
struct Summary<'a> {
    number: u64,
    input: &'a str,
    command: &'a str,
    attempts: u32,
    slot: usize,
    gpus: &'a [usize],
    exit_code: Option<i32>,
    signal: Option<i32>,
    result: String,
    /// Seconds since 1970.
    started: f64,
    ended: f64,
    seconds: f64,
}

impl Results {
    /// Results in a folder, or in a table if the path has the extension of one.
    pub(crate) fn new(path: &Path, existing: Existing) -> io::Result<Results> {
        match Form::of(path) {
            Some(form) => Ok(Results::Table(Table::open(path, form, existing)?)),
            None => {
                fs::create_dir_all(path)?;
                Ok(Results::Folder(Folder { directory: path.to_owned(), existing }))
            }
        }
    }

    /// Results in files named by marks.
    pub(crate) fn named() -> Results {
        Results::Named(Named::default())
    }

    /// The input of another job, with results that would be overwritten. A resumed run knows jobs by content,
    /// but directories have job numbers.
    pub(crate) fn other_in_place_of(&self, job: &Job) -> Option<(PathBuf, String)> {
        let Results::Folder(folder) = self else { return None };
        if folder.existing == Existing::Replace {
            return None;
        }
        let place = folder.place(job.number);
        let summary = fs::read(place.join("job.json")).ok()?;
        let summary: serde_json::Value = serde_json::from_slice(&summary).ok()?;
        let input = summary.get("input")?.as_str()?;
        (input != job.key()).then(|| (place, input.to_owned()))
    }

    /// Flushes all results to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            // One call for all jobs of a commit: one call per file would take longer than most jobs.
            Results::Folder(folder) => Ok(syncfs(File::open(&folder.directory)?)?),
            Results::Named(named) => named.sync(),
            Results::Table(table) => table.sync(),
        }
    }

    /// Writes the results of a job that has ended, in any order.
    pub(crate) fn write(&self, outcome: &Outcome, printed: &Printed) -> io::Result<()> {
        match self {
            Results::Folder(folder) => {
                write_directory(&folder.place(outcome.number), outcome, printed)
            }
            Results::Named(named) => named.write(outcome, printed),
            Results::Table(_) => Ok(()),
        }
    }

    /// Writes the results of a job when its output is printed, in the order of the outputs.
    pub(crate) fn append(&self, outcome: &Outcome, printed: &Printed) -> io::Result<()> {
        match self {
            Results::Table(table) => table.append(outcome, printed),
            Results::Folder(_) | Results::Named(_) => Ok(()),
        }
    }

    /// The file that has the standard output of a job.
    pub(crate) fn stdout_of(&self, outcome: &Outcome) -> Option<PathBuf> {
        match self {
            Results::Folder(folder) => Some(folder.place(outcome.number).join("stdout")),
            Results::Named(_) => {
                let name = outcome.results.as_ref()?;
                Some(match is_directory(name) {
                    true => Path::new(name).join("stdout"),
                    false => PathBuf::from(name),
                })
            }
            Results::Table(_) => None,
        }
    }
}

impl Folder {
    fn place(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }
}

impl Named {
    fn write(&self, outcome: &Outcome, printed: &Printed) -> io::Result<()> {
        let Some(name) = &outcome.results else { return Ok(()) };
        if !self.used().insert(name.clone()) {
            let name = name.to_string_lossy();
            return Err(io::Error::other(format!(
                "job {} and an earlier job have the same name, {name}: add a mark such as {{#}}",
                outcome.number
            )));
        }
        if is_directory(name) {
            let path = Path::new(name).components().as_path();
            return write_directory(path, outcome, printed);
        }
        let with = |extension: &str| {
            let mut name = name.clone();
            name.push(extension);
            PathBuf::from(name)
        };
        let summary = Summary::of(outcome).text()?;
        write_file(&with(""), &|file| printed.stdout.write_to(file))?;
        write_file(&with(".err"), &|file| printed.stderr.write_to(file))?;
        write_file(&with(".json"), &|file| file.write_all(&summary))
    }

    fn sync(&self) -> io::Result<()> {
        let parents: HashSet<PathBuf> =
            self.used().iter().map(|name| parent(Path::new(name)).to_owned()).collect();
        let devices: io::Result<HashSet<(u64, PathBuf)>> = parents
            .into_iter()
            .map(|parent| {
                Ok((std::os::unix::fs::MetadataExt::dev(&fs::metadata(&parent)?), parent))
            })
            .collect();
        let mut synced = HashSet::new();
        for (device, parent) in devices? {
            if synced.insert(device) {
                syncfs(File::open(parent)?)?;
            }
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, HashSet<OsString>> {
        self.used.lock().expect("nothing panics with the lock held")
    }
}

impl<'a> Summary<'a> {
    fn of(outcome: &'a Outcome) -> Summary<'a> {
        let (code, signal) = outcome.result.codes();
        let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Summary {
            number: outcome.number,
            input: &outcome.key,
            command: &outcome.command,
            attempts: outcome.attempts,
            slot: outcome.slot,
            gpus: &outcome.gpus,
            exit_code: (signal == 0 && code >= 0).then_some(code),
            signal: (signal != 0).then_some(signal),
            result: outcome.result.to_string(),
            started: started.as_secs_f64(),
            ended: (started + outcome.took).as_secs_f64(),
            seconds: outcome.took.as_secs_f64(),
        }
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Whether a name stands for a directory.
fn is_directory(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"/")
}

fn parent(path: &Path) -> &Path {
    let parent = path.components().as_path().parent();
    parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes the directory of a job, which appears complete or not at all.
fn write_directory(place: &Path, outcome: &Outcome, printed: &Printed) -> io::Result<()> {
    let directory = parent(place);
    fs::create_dir_all(directory)?;
    let unfinished = tempfile::Builder::new().prefix(".job-").tempdir_in(directory)?;
    let path = unfinished.path();
    write(&path.join("stdout"), |file| printed.stdout.write_to(file))?;
    write(&path.join("stderr"), |file| printed.stderr.write_to(file))?;
    let summary = Summary::of(outcome).text()?;
    write(&path.join("job.json"), |file| file.write_all(&summary))?;
    match fs::rename(path, place) {
        // It was renamed, so nothing is left to remove.
        Ok(()) => drop(unfinished.keep()),
        // After the exchange, the temporary directory has the results of the earlier run and is removed.
        Err(error) if place.is_dir() => {
            renameat_with(CWD, path, CWD, place, RenameFlags::EXCHANGE).map_err(|_| error)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    write(&mut file)?;
    file.flush()
}

/// Writes a file, which appears complete or not at all.
fn write_file(path: &Path, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let directory = parent(path);
    fs::create_dir_all(directory)?;
    // The user's umask decides the permissions, as for other files.
    let mode = Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(mode).tempfile_in(directory)?;
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
