//! The file that locks a GPU.
//!
//! It is a named pipe, locked by `flock(2)`. Only a blocked thread can wait for a lock on a plain file, and
//! nothing can wake that thread: a cancelled wait would leave it behind. The end of a pipe can be polled
//! together with something else.
//!
//! The holder's lock is on the pipe's writing end. When the kernel closes that end, for whatever cause, it
//! releases the lock first and notifies the readers afterwards. (In the other order a reader would find the
//! lock held and wait for ever.)
//!
//! A file beside the pipe names the holder. It is best effort: the lock is the pipe's.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::io::Errno;

use super::gpu::Uuid;
use super::{DeviceError, GpuHolder};

/// For all users to read and write, which is what taking a lock needs.
const FOR_ALL: u32 = 0o666;

/// How many bytes of a command line are kept.
const LONGEST_COMMAND: usize = 200;

/// Returns the first directory that all users share. It must be the same one for each user, so it depends
/// on the directories' modes alone, not on the current user.
pub(super) fn shared_directory() -> Result<PathBuf, DeviceError> {
    ["/run/lock", "/tmp"]
        .into_iter()
        .map(Path::new)
        .find(|directory| is_shared(directory))
        .map(Path::to_owned)
        .ok_or(DeviceError::NoLockDirectory {})
}

/// Returns whether all users may make files there, and no user can remove those of others.
fn is_shared(directory: &Path) -> bool {
    const STICKY_AND_FOR_ALL: u32 = 0o1007;
    let mode = |metadata: std::fs::Metadata| metadata.permissions().mode();
    directory.metadata().is_ok_and(|metadata| {
        metadata.is_dir() && mode(metadata) & STICKY_AND_FOR_ALL == STICKY_AND_FOR_ALL
    })
}

/// A GPU's lock, not taken.
#[derive(Debug)]
pub(super) struct LockFile {
    pipe: PathBuf,
    holder: PathBuf,
}

/// A GPU's lock, taken until this is dropped.
#[derive(Debug)]
pub(super) struct HeldLock {
    holder: Option<File>,
    /// Holds the lock. Dropped after `holder`: another process may write that file once the lock is free.
    _pipe: File,
}

impl LockFile {
    pub(super) fn new(directory: &Path, uuid: &Uuid) -> LockFile {
        let name = uuid.to_string().replace('/', "_");
        let file = |kind| directory.join(format!("gangline-{name}.{kind}"));
        LockFile { pipe: file("lock"), holder: file("holder") }
    }

    pub(super) fn path(&self) -> &Path {
        &self.pipe
    }

    /// Takes the lock; `None` if another has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<HeldLock>> {
        loop {
            match self.attempt(self.open()?)? {
                Attempt::Taken(lock) => return Ok(Some(lock)),
                Attempt::InUse => return Ok(None),
                Attempt::Replaced => {}
            }
        }
    }

    /// Waits for the lock; `None` if `alarm` came to its end before that.
    pub(super) fn wait(&self, alarm: &PipeReader) -> io::Result<Option<HeldLock>> {
        loop {
            let pipe = self.open()?;
            // Before the attempt: the holder's end is open then, so the end of that is not missed.
            let end = open_as(OpenOptions::new().read(true), &self.pipe)?;
            if !is_same(&end, &pipe.metadata()?)? {
                continue;
            }
            match self.attempt(pipe)? {
                Attempt::Taken(lock) => return Ok(Some(lock)),
                Attempt::Replaced => continue,
                Attempt::InUse => {}
            }
            if await_any(&end, alarm)? == LockWakeUp::ByAlarm {
                return Ok(None);
            }
        }
    }

    /// Returns the holder of the lock, as it described itself.
    pub(super) fn holder(&self) -> GpuHolder {
        let read = || -> io::Result<String> {
            let file = regular(open_as(OpenOptions::new().read(true), &self.holder)?)?;
            let mut bytes = Vec::new();
            file.take(2 * LONGEST_COMMAND as u64).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().ok().and_then(|text| parse_holder(&text)).unwrap_or(GpuHolder::Unknown)
    }

    /// Takes the lock, or closes this writing end, which others would wait for too.
    fn attempt(&self, pipe: File) -> io::Result<Attempt> {
        match pipe.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Attempt::InUse),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The file may have been deleted before it was locked here, and other processes then lock a new
        // file.
        match self.pipe.symlink_metadata() {
            Ok(now) if is_same(&pipe, &now)? => {}
            Ok(_) => return Ok(Attempt::Replaced),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Attempt::Replaced),
            Err(error) => return Err(error),
        }
        Ok(Attempt::Taken(HeldLock { holder: self.describe().ok(), _pipe: pipe }))
    }

    /// Opens the pipe as a writer, having made it if need be.
    ///
    /// In a directory that all users share, the kernel may refuse to open another user's pipe with
    /// `O_CREAT` (`fs.protected_fifos`). So opening and making it are separate steps.
    fn open(&self) -> io::Result<File> {
        loop {
            // It is opened as a reader too, or opening it would need one.
            let file = match open_as(OpenOptions::new().read(true).write(true), &self.pipe) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.make()?,
                opened => Some(opened?),
            };
            match file {
                Some(file) if file.metadata()?.file_type().is_fifo() => return Ok(file),
                Some(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "it is no pipe")),
                None => {}
            }
        }
    }

    /// `None` if another was faster.
    fn make(&self) -> io::Result<Option<File>> {
        match mkfifoat(CWD, &self.pipe, Mode::from_raw_mode(FOR_ALL)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let file = open_as(OpenOptions::new().read(true).write(true), &self.pipe)?;
        // Whatever the umask is.
        file.set_permissions(Permissions::from_mode(FOR_ALL))?;
        Ok(Some(file))
    }

    /// Writes this process's description into the file beside the lock.
    fn describe(&self) -> io::Result<File> {
        let file = match open_as(OpenOptions::new().write(true), &self.holder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut options = OpenOptions::new();
                let file = open_as(options.write(true).create_new(true), &self.holder)?;
                file.set_permissions(Permissions::from_mode(FOR_ALL))?;
                file
            }
            opened => opened?,
        };
        let mut file = regular(file)?;
        file.set_len(0)?;
        file.write_all(format!("{} {}\n", std::process::id(), command()).as_bytes())?;
        Ok(file)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(holder) = &self.holder {
            // A description that stays is only untidy: it names no current holder.
            let _ = holder.set_len(0);
        }
    }
}

/// What became of an attempt to take a lock.
enum Attempt {
    Taken(HeldLock),
    InUse,
    /// The file is not what others lock any more.
    Replaced,
}

#[derive(PartialEq)]
enum LockWakeUp {
    ByPipe,
    ByAlarm,
}

/// Waits until every writing end of `end` is closed, or that of `alarm`.
fn await_any(end: &File, alarm: &PipeReader) -> io::Result<LockWakeUp> {
    loop {
        // No event is asked for: the end is always told, and what others may write is not wanted.
        let mut fds =
            [PollFd::new(end, PollFlags::empty()), PollFd::new(alarm, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return Ok(LockWakeUp::ByAlarm),
            Ok(_) => return Ok(LockWakeUp::ByPipe),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a file without following links, and without waiting for the other end if the file turns out to be
/// a pipe.
fn open_as(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed()).mode(FOR_ALL).open(path)
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::AlreadyExists, "it is no plain file")),
    }
}

fn is_same(file: &File, other: &std::fs::Metadata) -> io::Result<bool> {
    let file = file.metadata()?;
    Ok((file.dev(), file.ino()) == (other.dev(), other.ino()))
}

fn parse_holder(text: &str) -> Option<GpuHolder> {
    let (pid, command) = text.trim_end().split_once(' ')?;
    Some(GpuHolder::Process { pid: pid.parse().ok()?, command: command.to_owned() })
}

/// The command line of this process.
fn command() -> String {
    let words: Vec<_> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = words.join(" ");
    match command.char_indices().map(|(end, _)| end).find(|end| *end >= LONGEST_COMMAND) {
        Some(end) => format!("{}...", &command[..end]),
        None => command,
    }
}
