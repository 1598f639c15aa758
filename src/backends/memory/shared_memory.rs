//! Memory that one process writes and others read.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::io::{Errno, pwrite};

use super::arena::{Arena, MemoryFile, SMALLEST};
use super::shared_bytes::SharedBytes;

/// The free bytes that keep their pages.
pub(in crate::backends) const KEPT: u64 = 256 << 20;

/// Memory for large values, which this process writes, and its child processes read without a copy on the way.
///
/// It has no pages before it is written. Once nothing uses a value, its pages are used again, and at most 256 MiB are kept
/// for that, for 10 to 20 s after their last use. It costs one descriptor here and in each child process that reads it.
///
/// ```
/// use gangline::process::{Processes, SharedMemory};
///
/// let memory = SharedMemory::new();
/// let processes = Processes::new().shared_memory(&memory);
/// let pixels = memory.write(&[7; 100_000]);
/// assert_eq!(pixels.to_vec()?, [7; 100_000]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedMemory {
    arena: Arc<Arena>,
}

/// The memory of a worker process.
static OF_WORKER: OnceLock<SharedMemory> = OnceLock::new();

impl Default for SharedMemory {
    fn default() -> Self {
        SharedMemory::keeping(KEPT)
    }
}

impl SharedMemory {
    /// Returns a memory without pages, for [`Processes::shared_memory`](crate::process::Processes::shared_memory).
    ///
    /// ```
    /// let memory = gangline::process::SharedMemory::new();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        SharedMemory::default()
    }

    /// Returns the memory that this process writes as a worker, for large outputs. `None` if it is no worker.
    ///
    /// ```
    /// assert!(gangline::process::SharedMemory::of_worker().is_none());
    /// ```
    #[must_use]
    pub fn of_worker() -> Option<Self> {
        OF_WORKER.get().cloned()
    }

    pub(in crate::backends) fn keeping(most_kept: u64) -> Self {
        SharedMemory { arena: Arc::new(Arena::new(most_kept)) }
    }

    /// Makes this the memory of the worker that this process is.
    pub(in crate::backends) fn set_of_worker(&self) {
        // A process serves once.
        _ = OF_WORKER.set(self.clone());
    }

    /// Copies bytes into the memory; or onto the heap if they are short, or if there is no memory for them.
    ///
    /// ```
    /// let bytes = gangline::process::SharedMemory::new().write(&[1, 2, 3]);
    /// assert_eq!(bytes.len(), 3);
    /// ```
    #[must_use]
    pub fn write(&self, bytes: &[u8]) -> SharedBytes {
        self.store(bytes).unwrap_or_else(|| SharedBytes::from(bytes.to_vec()))
    }

    /// Takes room for `length` bytes, which the caller writes into [`SharedBytes::file`] before anything reads them. `None`
    /// if they are short, or if there is no memory for them.
    ///
    /// ```
    /// use gangline::process::SharedMemory;
    ///
    /// assert!(SharedMemory::new().reserve(100).is_none(), "short bytes are better on the heap");
    /// ```
    #[must_use]
    pub fn reserve(&self, length: usize) -> Option<SharedBytes> {
        if length < SMALLEST {
            return None;
        }
        let (file, start) = self.arena.take(length as u64).ok()?;
        Some(SharedBytes::own(file, (start, length as u64), self.arena.clone()))
    }

    /// Copies large bytes into the memory, if there is room.
    pub(in crate::backends) fn store(&self, bytes: &[u8]) -> Option<SharedBytes> {
        let stored = self.reserve(bytes.len())?;
        let (file, start) = stored.file()?;
        write_all(file, bytes, start).ok()?;
        Some(stored)
    }

    /// Gives the free pages back to the system that nothing has needed for long. Returns when the next ones are due; `None`
    /// while no free range has pages.
    pub(in crate::backends) fn age(&self, now: Instant) -> Option<Instant> {
        self.arena.age(now)
    }

    /// Gives all free pages back to the system.
    pub(in crate::backends) fn empty(&self) {
        self.arena.empty();
    }

    /// The bytes of the ranges that are in use.
    #[cfg(test)]
    pub(in crate::backends) fn taken(&self) -> u64 {
        self.arena.taken()
    }

    /// The file, which is made if there is none.
    pub(in crate::backends) fn make(&self) -> io::Result<Arc<MemoryFile>> {
        self.arena.file()
    }
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => {
                bytes = &bytes[length..];
                at += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    fn pages(memory: &SharedMemory) -> u64 {
        let file = memory.make().unwrap();
        u64::try_from(fstat(&*file).unwrap().st_blocks).unwrap() * 512
    }

    #[test]
    fn pages_are_used_again_and_as_many_are_kept_as_the_bound_allows() {
        let memory = SharedMemory::keeping(1 << 20);
        for _ in 0..20 {
            drop(memory.write(&vec![1; 900_000]));
            assert!((900_000..1 << 20).contains(&pages(&memory)));
        }
        let two = [0, 1].map(|byte| memory.write(&vec![byte; 900_000]));
        assert_eq!(two.each_ref().map(|it| it.to_vec().unwrap()[899_999]), [0, 1]);
        drop(two);
        assert_eq!(pages(&memory), 0, "both together are beyond the bound");
    }

    #[test]
    fn pages_that_nothing_needs_are_given_back() {
        let memory = SharedMemory::new();
        let start = Instant::now();
        assert_eq!(memory.age(start), None);
        let used = memory.write(&vec![7; 900_000]);
        drop(memory.write(&vec![1; 3_000_000]));
        assert!(pages(&memory) > 3_900_000);
        let due = memory.age(start).expect("a free range has pages");
        assert!(pages(&memory) > 3_900_000);
        assert_eq!(memory.age(due), None);
        assert!((900_000..1 << 20).contains(&pages(&memory)));
        assert_eq!(used.to_vec().unwrap(), vec![7; 900_000]);
    }

    #[test]
    fn short_bytes_are_on_the_heap_and_make_no_file() {
        let memory = SharedMemory::new();
        assert!(memory.write(&vec![1; SMALLEST - 1]).file().is_none());
        assert!(!memory.arena.is_made());
        assert!(memory.write(&vec![1; SMALLEST]).file().is_some());
    }
}
