//! Files and folders that are there whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::{make_aside, sync_folder_of, sync_tree};
use super::error::SinkError;
use super::home_file::HomeFile;
use crate::base::absolute;
use crate::concurrency::home_process::HomeProcess;

/// Begins a file that replaces `path` when it is [committed](AtomicFile::commit), and not before.
///
/// It is written in the same folder under another name. At any moment `path` names the old file (or none), or
/// the whole new one, also after a kill or a power cut. A link is followed, and the permissions of an old file
/// are kept.
///
/// ```
/// use std::io::Write;
/// use gangline::sink;
///
/// # fn main() -> gangline::Result<()> {
/// # let path = std::env::temp_dir().join(format!("gangline-atomic-{}", std::process::id()));
/// let mut file = sink::atomic_file(&path)?;
/// writeln!(file, "the first line")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "the first line\n");
///
/// drop(sink::atomic_file(&path)?); // not committed: nothing has changed
/// assert!(path.exists());
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If `path` names something that is no regular file, or if no file can be made in its folder.
pub fn atomic_file(path: impl AsRef<Path>) -> Result<AtomicFile, SinkError> {
    let path = path.as_ref();
    let old = fs::metadata(path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(SinkError::NotAFile { path: path.to_owned() });
    }
    let target = match old {
        Some(_) => fs::canonicalize(path).map_err(SinkError::io("opened", path))?,
        None => absolute(path.to_owned()),
    };
    let (part, file) = make_aside(&target, |part| File::create_new(part))?;
    let file = HomeFile::new(BufWriter::with_capacity(1 << 16, file));
    let file = AtomicFile { file, part: Some(part), target };
    if let Some(old) = old {
        let kept = file.file.get_ref().set_permissions(old.permissions());
        kept.map_err(SinkError::io("created", &file.target))?;
    }
    Ok(file)
}

/// Begins a folder that gets the name `path` when it is [committed](AtomicDir::commit), and not before.
///
/// Until then it has another name in the same folder, [`AtomicDir::path`], to write files there. So if `path`
/// exists, it is whole, also after a kill or a power cut: work that is repeated can leave out what exists.
///
/// ```
/// use gangline::sink;
///
/// # fn main() -> gangline::Result<()> {
/// # let path = std::env::temp_dir().join(format!("gangline-atomic-dir-{}", std::process::id()));
/// if !path.exists() {
///     let folder = sink::atomic_dir(&path)?;
///     std::fs::write(folder.path().join("mask.txt"), "0 1 1 0")?;
///     std::fs::write(folder.path().join("score.txt"), "0.97")?;
///     folder.commit()?;
/// }
/// assert!(path.join("mask.txt").exists() && path.join("score.txt").exists());
/// # std::fs::remove_dir_all(&path)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`SinkError::Exists`] if something has that name already, or if no folder can be made beside it.
pub fn atomic_dir(path: impl AsRef<Path>) -> Result<AtomicDir, SinkError> {
    let target = absolute(path.as_ref().to_owned());
    if fs::symlink_metadata(&target).is_ok() {
        return Err(SinkError::Exists { path: target });
    }
    let (part, ()) = make_aside(&target, |part| fs::create_dir(part))?;
    Ok(AtomicDir { part: Some(part), target, home: HomeProcess::here() })
}

/// A file in the making: see [`atomic_file`]. Writes are buffered. If it is dropped uncommitted, it is
/// removed, except by a forked child of the process that began it.
#[derive(Debug)]
pub struct AtomicFile {
    file: HomeFile,
    /// Its name until it is committed.
    part: Option<PathBuf>,
    target: PathBuf,
}

impl AtomicFile {
    /// Gives the file its name, after its content is on the disk.
    ///
    /// # Errors
    ///
    /// If the content cannot be written or synced, or the file not be renamed: then it is removed. If the
    /// folder cannot be synced: then the file has its name, and may lose it in a power cut.
    pub fn commit(mut self) -> Result<(), SinkError> {
        self.file.flush().map_err(SinkError::io("written", &self.target))?;
        self.file.get_ref().sync_all().map_err(SinkError::io("synced", &self.target))?;
        let part = self.part.as_ref().expect("it is taken here only");
        fs::rename(part, &self.target).map_err(SinkError::io("renamed", &self.target))?;
        self.part = None;
        sync_folder_of(&self.target)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // There is no use for the error: the name tells that the file is unfinished.
        self.part.take().filter(|_| self.file.is_ours()).map(fs::remove_file);
    }
}

/// A folder in the making: see [`atomic_dir`]. If it is dropped uncommitted, it is removed with all that is in
/// it, except by a forked child of the process that began it.
#[derive(Debug)]
pub struct AtomicDir {
    /// Its name until it is committed.
    part: Option<PathBuf>,
    target: PathBuf,
    home: HomeProcess,
}

impl AtomicDir {
    /// Returns where the folder is until it is committed.
    pub fn path(&self) -> &Path {
        self.part.as_deref().expect("it is there until it is committed")
    }

    /// Gives the folder its name, after all that is in it is on the disk.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read and synced, or if another folder has got the name: then it is
    /// removed. If the folder around it cannot be synced: then it has its name, and may lose it in a power
    /// cut.
    pub fn commit(mut self) -> Result<(), SinkError> {
        sync_tree(self.path())?;
        fs::rename(self.path(), &self.target).map_err(SinkError::io("renamed", &self.target))?;
        self.part = None;
        sync_folder_of(&self.target)
    }
}

impl Drop for AtomicDir {
    fn drop(&mut self) {
        self.part.take().filter(|_| self.home.is_here()).map(fs::remove_dir_all);
    }
}
