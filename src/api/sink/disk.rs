//! Names of files that are written aside, and what makes them durable.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SinkError;

/// Makes something under a new name in the folder of `target`, so that it can be renamed to it.
///
/// After a kill it stays there; the name tells that it is unfinished. It has the process in it, and `make`
/// fails if it is taken, so no two processes share one.
pub(super) fn make_aside<T>(
    target: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> Result<(PathBuf, T), SinkError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder(target).join(format!(".gangline-{}-{count}.part", std::process::id()));
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(SinkError::io("created", target)(source)),
        }
    }
}

/// Makes a change of the folder's entries durable: a new name there, say.
pub(super) fn sync_folder_of(target: &Path) -> Result<(), SinkError> {
    sync_folder(folder(target))
}

/// Makes everything below `path` durable. Links are not followed.
pub(super) fn sync_tree(path: &Path) -> Result<(), SinkError> {
    let mut folders = vec![path.to_owned()];
    while let Some(path) = folders.pop() {
        let failed = |source| SinkError::io("read", &path)(source);
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let synced = File::open(entry.path()).and_then(|file| file.sync_all());
                synced.map_err(SinkError::io("synced", entry.path()))?;
            }
        }
        sync_folder(&path)?;
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> Result<(), SinkError> {
    match File::open(path).and_then(|folder| folder.sync_all()) {
        // Some file systems do not support it.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced.map_err(SinkError::io("synced", path)),
    }
}

/// Elsewhere a folder cannot be opened as a file.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<(), SinkError> {
    Ok(())
}
