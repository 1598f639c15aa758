//! The files of the results of one job.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::output::capture::Captured;
use crate::output::misplaced::Misplaced;

/// Files for the results of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResultPlace {
    /// A directory with the files `stdout`, `stderr` and `job.json`.
    Directory(PathBuf),
    /// A file for standard output, and others with `.err` and `.json` after its name.
    Files(PathBuf),
}

/// The keys by which a summary is recognised: those that every version writes.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only their presence and types count")]
struct Known {
    number: u64,
    input: IgnoredAny,
    command: IgnoredAny,
    attempts: u32,
    result: IgnoredAny,
}

/// What a directory of results holds.
const NAMES: [&str; 3] = ["stdout", "stderr", SUMMARY];
const SUMMARY: &str = "job.json";
/// The endings of the files beside that of standard output.
pub(super) const ENDS: [&str; 2] = [".err", ".json"];

impl ResultPlace {
    pub(crate) fn path(&self) -> &Path {
        match self {
            ResultPlace::Directory(path) | ResultPlace::Files(path) => path,
        }
    }

    /// The file that has the standard output.
    pub(crate) fn stdout(&self) -> PathBuf {
        match self {
            ResultPlace::Directory(path) => path.join(NAMES[0]),
            ResultPlace::Files(path) => path.clone(),
        }
    }

    /// Checks that nothing but results of an earlier run is in this place, and that its names can be used.
    pub(crate) fn check(&self) -> Result<(), Misplaced> {
        let path = self.path();
        let unfinished = parent(path).join(UNFINISHED_EXAMPLE).join(SUMMARY);
        self.files().iter().chain([&unfinished]).try_for_each(
            |file| match fs::symlink_metadata(file) {
                Err(error) if !is_missing(&error) => Err(Misplaced::unusable(path)(error)),
                _ => Ok(()),
            },
        )?;
        check_writable(parent(path), path)?;
        match self {
            ResultPlace::Directory(path) => check_directory(path),
            ResultPlace::Files(_) => self.check_files(),
        }
    }

    /// Writes all results, which replace those of an earlier run. `printed` are standard output and standard error.
    pub(crate) fn write(&self, summary: &[u8], printed: [&Captured; 2]) -> io::Result<()> {
        // The job may have written there since the first check.
        self.check().map_err(io::Error::other)?;
        match self {
            ResultPlace::Directory(path) => write_directory(path, summary, printed),
            ResultPlace::Files(_) => {
                let [stdout, stderr, json] = self.files();
                // The summary comes first, since the other files are recognised as results by it.
                write_file(&json, &|file| file.write_all(summary))?;
                write_file(&stderr, &|file| printed[1].write_to(file))?;
                write_file(&stdout, &|file| printed[0].write_to(file))
            }
        }
    }

    fn files(&self) -> [PathBuf; 3] {
        match self {
            ResultPlace::Directory(path) => NAMES.map(|name| path.join(name)),
            ResultPlace::Files(path) => {
                let [err, json] = ENDS.map(|end| with_end(path, end));
                [path.clone(), err, json]
            }
        }
    }

    fn check_files(&self) -> Result<(), Misplaced> {
        let files = self.files();
        for path in &files {
            match fs::symlink_metadata(path) {
                Ok(found) if !(found.is_file() && is_summary(&files[2])) => {
                    return Err(Misplaced::Occupied { path: path.clone(), holds: None });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A path with more text in its last name.
pub(super) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(end);
    path.into()
}

/// The folder of a path, which is the current one for a mere name.
pub(crate) fn parent(path: &Path) -> &Path {
    let parent = path.parent();
    parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks that files can be made in a folder and removed, for the results at `path`.
fn check_writable(folder: &Path, path: &Path) -> Result<(), Misplaced> {
    check_folder(folder).map_err(Misplaced::unusable(path))
}

/// Checks that files can be made in a folder and removed.
pub(crate) fn check_folder(folder: &Path) -> io::Result<()> {
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error @ (Errno::ACCESS | Errno::ROFS)) => Err(error.into()),
        // A missing folder is made, and a container may refuse the call.
        _ => Ok(()),
    }
}

/// Whether a file is a summary that this program wrote.
fn is_summary(path: &Path) -> bool {
    let known = File::open(path)
        .map(|file| serde_json::from_reader::<_, Known>(BufReader::new(file.take(LARGEST))));
    matches!(known, Ok(Ok(_)))
}

/// Input and command have at most a mebibyte each, and JSON up to six bytes for one of theirs.
const LARGEST: u64 = 16 << 20;

fn check_directory(path: &Path) -> Result<(), Misplaced> {
    let unusable = |error| Misplaced::unusable(path)(error);
    let found = match fs::symlink_metadata(path) {
        Err(error) if is_missing(&error) => return Ok(()),
        found => found.map_err(unusable)?,
    };
    if !found.is_dir() {
        return Err(Misplaced::Occupied { path: path.to_owned(), holds: None });
    }
    for entry in fs::read_dir(path).map_err(unusable)? {
        let entry = entry.map_err(unusable)?;
        let is_result = NAMES.iter().any(|name| entry.file_name() == *name)
            && entry.file_type().map_err(unusable)?.is_file();
        if !is_result {
            let holds = Some(entry.file_name());
            return Err(Misplaced::Occupied { path: path.to_owned(), holds });
        }
    }
    check_writable(path, path)
}

/// Writes the directory of a job, which appears complete or not at all.
fn write_directory(place: &Path, summary: &[u8], printed: [&Captured; 2]) -> io::Result<()> {
    let folder = parent(place);
    fs::create_dir_all(folder)?;
    let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(folder)?;
    let path = unfinished.path();
    write(&path.join(NAMES[0]), |file| printed[0].write_to(file))?;
    write(&path.join(NAMES[1]), |file| printed[1].write_to(file))?;
    write(&path.join(SUMMARY), |file| file.write_all(summary))?;
    match fs::rename(path, place) {
        // After the rename nothing is left to remove.
        Ok(()) => drop(unfinished.keep()),
        Err(error) if place.is_dir() => {
            renameat_with(CWD, path, CWD, place, RenameFlags::EXCHANGE).map_err(|_| error)?;
            remove_results(&unfinished.keep())?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes the results of an earlier run, and nothing that appeared beside them.
fn remove_results(directory: &Path) -> io::Result<()> {
    for name in NAMES {
        match fs::remove_file(directory.join(name)) {
            Err(error) if is_missing(&error) => {}
            removed => removed?,
        }
    }
    fs::remove_dir(directory)
}

/// The prefix of a directory or file that is not complete.
const UNFINISHED: &str = ".job-";
/// A name with that prefix, to check that the file system takes its length.
const UNFINISHED_EXAMPLE: &str = ".job-000000";

fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    write(&mut file)?;
    file.flush()
}

/// Writes a file, which appears complete or not at all.
fn write_file(path: &Path, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = parent(path);
    fs::create_dir_all(folder)?;
    // The user's umask decides the permissions, as for other files.
    let mode = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new();
    let file = file.prefix(UNFINISHED).permissions(mode).tempfile_in(folder)?;
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
