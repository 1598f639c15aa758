//! The medium of a journal, which tests replace.

use std::io::{self, Read, Write};

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
