//! The file behind a memory, and what is free in it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::ranges::{Range, Ranges};
use crate::concurrency::home_process::HomeProcess;
use crate::concurrency::{Mutex, lock};

/// Bodies and values from this length on are worth a range, in bytes.
pub(in crate::backends) const SMALLEST: usize = 64 << 10;

/// The address space of a memory, in bytes. Only what is written has pages.
const SIZE: u64 = 64 << 30;

/// A file, and what is free in it. All handles of a memory have the same.
#[derive(Debug)]
pub(in crate::backends) struct Arena {
    /// A forked child has a copy of what is free, and must not write.
    home: HomeProcess,
    most_kept: u64,
    /// `None` before the first large value.
    made: Mutex<Option<(Arc<MemoryFile>, Ranges)>>,
}

/// The file behind a memory, in the process that writes it or in one that reads it.
#[derive(Debug)]
pub(in crate::backends) struct MemoryFile {
    file: OwnedFd,
    /// Its number for both sides: the inode, which no other memory has while this one is there.
    pub(in crate::backends) number: u64,
    /// In bytes. The file keeps it: it is sealed.
    pub(in crate::backends) size: u64,
}

impl Arena {
    /// An arena of this process, without a file. `most_kept`: the bytes that are free and keep their pages.
    pub(super) fn new(most_kept: u64) -> Self {
        Arena { home: HomeProcess::here(), most_kept, made: Mutex::new(None) }
    }

    /// Takes a range of this length. Returns its start.
    ///
    /// # Errors
    ///
    /// If there is no room, or if this is a forked child.
    pub(super) fn take(&self, length: u64) -> io::Result<(Arc<MemoryFile>, u64)> {
        self.with(|file, ranges| {
            let start = ranges.take(length).ok_or(Errno::NOSPC)?;
            match check_file_limit(start + length) {
                Ok(()) => Ok((file.clone(), start)),
                Err(error) => {
                    ranges.give(start, length);
                    Err(error)
                }
            }
        })
    }

    /// Frees a range that nothing reads any more.
    pub(in crate::backends) fn give(&self, start: u64, length: u64) {
        // In a forked child the pages are still those of its parent.
        if !self.home.is_here() {
            return;
        }
        if let Some((file, ranges)) = &mut *lock(&self.made) {
            file.empty(ranges.give(start, length));
        }
    }

    /// Gives the pages back to the system that nothing has needed for long. Returns when the next ones are due; `None` while
    /// no free range has pages.
    pub(super) fn age(&self, now: Instant) -> Option<Instant> {
        if !self.home.is_here() {
            return None;
        }
        let mut made = lock(&self.made);
        let (file, ranges) = made.as_mut()?;
        // Under the lock: nothing may take such a range before its pages are gone.
        file.empty(ranges.age(now));
        ranges.period_end()
    }

    /// Gives the pages of all free ranges back to the system.
    pub(super) fn empty(&self) {
        if self.home.is_here()
            && let Some((file, ranges)) = &mut *lock(&self.made)
        {
            file.empty(ranges.empty_all());
        }
    }

    /// The file, which is made if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or if this is a forked child.
    pub(super) fn file(&self) -> io::Result<Arc<MemoryFile>> {
        self.with(|file, _| Ok(file.clone()))
    }

    #[cfg(test)]
    pub(super) fn is_made(&self) -> bool {
        lock(&self.made).is_some()
    }

    /// The bytes of the ranges that are in use.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        let made = lock(&self.made);
        made.as_ref().map_or(0, |(file, ranges)| file.size - ranges.free())
    }

    fn with<T>(
        &self,
        f: impl FnOnce(&Arc<MemoryFile>, &mut Ranges) -> io::Result<T>,
    ) -> io::Result<T> {
        self.home.check().map_err(|_| io::Error::other("this is a forked process"))?;
        let mut made = lock(&self.made);
        if made.is_none() {
            let file = MemoryFile::make()?;
            let page = rustix::param::page_size() as u64;
            let ranges = Ranges::new(file.size, page, self.most_kept);
            *made = Some((Arc::new(file), ranges));
        }
        let (file, ranges) = made.as_mut().expect("it was just made");
        f(file, ranges)
    }
}

impl MemoryFile {
    fn make() -> io::Result<Self> {
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let size = SIZE.min(limit);
        if size < SMALLEST as u64 {
            return Err(Errno::FBIG.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("gangline-memory", flags)?;
        ftruncate(&file, size)?;
        fcntl_add_seals(&file, SEALS)?;
        MemoryFile::of(file)
    }

    /// Takes the file of another process.
    ///
    /// # Errors
    ///
    /// If it can become smaller, which would end this process by `SIGBUS` where it is mapped.
    pub(in crate::backends) fn of(file: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&file)?;
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(Errno::INVAL.into());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(MemoryFile { file, number: stat.st_ino, size })
    }

    /// Gives the pages of free ranges back to the system.
    fn empty(&self, ranges: Vec<Range>) {
        for (start, length) in ranges {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If it fails, the pages stay until the memory goes.
            _ = fallocate(&self.file, flags, start, length);
        }
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Fails if a file of this size in bytes is beyond `RLIMIT_FSIZE`: to make or write it would end this process by `SIGXFSZ`.
fn check_file_limit(size: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < size => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_become_smaller_is_not_taken() {
        let file = memfd_create("gangline-test", MemfdFlags::CLOEXEC).unwrap();
        assert!(MemoryFile::of(file).is_err());
        let file = MemoryFile::make().unwrap();
        assert!(ftruncate(&file.file, 1).is_err());
    }
}
