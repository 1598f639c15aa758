//! The pickled functions of a pool, on their way to its workers.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// The pickled functions of a pool, in memory without a name, which the system frees with its last user.
///
/// A configuration is a text of at most 1 MiB. What functions name may be larger, such as a table of a script.
pub(crate) struct Setup {
    memory: File,
}

impl Setup {
    /// Copies what the package's Python has pickled.
    pub(crate) fn new(pickled: &[u8]) -> io::Result<Self> {
        let mut memory = File::from(memfd_create("gangline", MemfdFlags::CLOEXEC)?);
        memory.write_all(pickled)?;
        Ok(Setup { memory })
    }

    /// Where a worker of the same user reads it while this process has it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd()))
    }
}

/// Reads the functions in a worker.
pub(crate) fn read(path: &str) -> io::Result<Vec<u8>> {
    fs::read(path)
}
