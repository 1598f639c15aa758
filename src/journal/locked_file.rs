//! The file of a journal on the disk, locked for one run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{self, Path, PathBuf};

use super::journal_error::{JournalError, io_error};
use super::{Journal, Mode, Unlockable};
use crate::concurrency::home_process::HomeProcess;

/// The medium that a journal is written to.
pub(super) trait Storage: Read + Write + Send {
    /// Waits until what was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Waits until the file's name is on the disk.
    fn sync_name(&mut self) -> io::Result<()>;
    /// Drops all bytes after the first `length`; later writes go there.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Returns whether the file still has its name. What is written to another is lost.
    fn has_name(&self) -> io::Result<bool>;
}

/// A file that is locked until it is dropped.
pub(super) struct LockedFile {
    file: File,
    path: PathBuf,
    home: HomeProcess,
}

impl LockedFile {
    /// Opens and locks the file of a journal, which may be made.
    pub(super) fn open(journal: &Journal) -> Result<LockedFile, JournalError> {
        match journal.mode {
            Mode::RerunFailed => LockedFile::existing(journal),
            Mode::New | Mode::Resume => locked(journal, options().create(true)),
        }
    }

    /// Opens and locks the file of a journal, which must be there.
    pub(super) fn existing(journal: &Journal) -> Result<LockedFile, JournalError> {
        match locked(journal, &options()) {
            Err(JournalError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Err(JournalError::Missing { path: journal.path.clone() })
            }
            opened => opened,
        }
    }

    /// Goes back to the beginning.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.file.rewind()
    }
}

/// Unlocks explicitly. Closing the file is not enough: a child process that another thread is just starting
/// shares it until it executes its own program.
impl Drop for LockedFile {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent. If unlocking fails, the end of this process releases it.
        if self.home.is_here() {
            let _ = self.file.unlock();
        }
    }
}

impl Read for LockedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Write for LockedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for LockedFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_name(&mut self) -> io::Result<()> {
        sync_directory_of(&self.path)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length)).map(drop)
    }

    fn has_name(&self) -> io::Result<bool> {
        is_file_of(&self.file, &self.path)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    // Readable for the owner only: the file contains the configuration, which may have secrets.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Opens and locks the file before anything is read: a line that another run is just writing would look
/// torn.
fn locked(journal: &Journal, options: &OpenOptions) -> Result<LockedFile, JournalError> {
    let (path, location) = (journal.path.as_path(), journal.location());
    let opened = |source: io::Error| match source.kind() {
        ErrorKind::IsADirectory => JournalError::NotAFile { path: path.to_owned() },
        _ => io_error(path, "opened", source),
    };
    let file = options.open(location).map_err(opened)?;
    if !file.metadata().map_err(opened)?.is_file() {
        return Err(JournalError::NotAFile { path: path.to_owned() });
    }
    // The process may change its directory during the run.
    let path = path::absolute(location).map_err(opened)?;
    check_lock(journal, file.try_lock())?;
    Ok(LockedFile { file, path, home: HomeProcess::here() })
}

fn check_lock(journal: &Journal, lock: Result<(), TryLockError>) -> Result<(), JournalError> {
    let path = || journal.path.clone();
    match (lock, journal.unlockable) {
        (Ok(()), _) => Ok(()),
        (Err(TryLockError::WouldBlock), _) => Err(JournalError::Locked { path: path() }),
        (Err(TryLockError::Error(_)), Unlockable::Used) => Ok(()),
        (Err(TryLockError::Error(source)), Unlockable::Refused) => {
            Err(JournalError::NoLock { path: path(), source })
        }
    }
}

#[cfg(unix)]
fn is_file_of(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let file = file.metadata()?;
    match path.metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (file.dev(), file.ino())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Elsewhere a file that is open cannot be deleted, and files have no numbers to compare.
#[cfg(not(unix))]
fn is_file_of(_: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}

#[cfg(unix)]
fn sync_directory_of(path: &Path) -> io::Result<()> {
    // The file's own directory, also if the path is a link.
    let path = path.canonicalize()?;
    let directory = path.parent().expect("a file is in a directory");
    match File::open(directory)?.sync_all() {
        // Some file systems do not support syncing a directory.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

/// Elsewhere directories cannot be opened, and a name is on the disk with its file.
#[cfg(not(unix))]
fn sync_directory_of(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_ends_with_its_owner_although_a_child_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(dir.path().join("j"));
        let disk = LockedFile::open(&journal).unwrap();
        let as_in_a_child = disk.file.try_clone().unwrap();
        drop(disk);
        LockedFile::open(&journal).unwrap();
        drop(as_in_a_child);
    }

    #[test]
    fn a_journal_goes_on_without_a_lock_only_if_asked() {
        // Function not implemented; operation not supported; no locks available.
        for code in [38, 95, 37] {
            let failed = || Err(TryLockError::Error(io::Error::from_raw_os_error(code)));
            let error = check_lock(&Journal::at("j"), failed()).unwrap_err();
            assert!(matches!(error, JournalError::NoLock { .. }), "{error}");
            assert!(error.to_string().contains("`unlockable`"), "{error}");
            check_lock(&Journal::at("j").unlockable(), failed()).unwrap();
        }
        let held = check_lock(&Journal::at("j").unlockable(), Err(TryLockError::WouldBlock));
        assert!(matches!(held, Err(JournalError::Locked { .. })), "a lock that exists counts");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_lost_its_name_is_noticed() {
        use std::fs;

        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("j"), dir.path().join("other"));
        let open = || LockedFile::open(&Journal::at(&path).resume()).unwrap();
        let file = open();
        assert!(file.has_name().unwrap());
        fs::rename(&path, &other).unwrap();
        assert!(!file.has_name().unwrap(), "moved");
        fs::copy(&other, &path).unwrap();
        assert!(!file.has_name().unwrap(), "replaced by a copy");
        fs::rename(&other, &path).unwrap();
        assert!(file.has_name().unwrap(), "put back");
        fs::remove_file(&path).unwrap();
        assert!(!file.has_name().unwrap(), "deleted");
    }
}
