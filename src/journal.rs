//! The resume journal: which items earlier runs have done.
//!
//! ```text
//!   Journal           what the user asks for
//!   JournalFile       the file, locked: records are buffered, a commit writes and syncs one line
//!   Past              what the file said when it was opened: decides which items are left out
//!   scan, line        bytes to `Past` and back, without files
//!   Group             when a commit is due, without a clock
//! ```

mod error;
mod file;
mod fingerprint;
mod group;
mod key;
mod line;
mod names;
mod past;
mod scan;
mod spans;

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod inputs;
#[cfg(test)]
mod processes;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::JournalError;
pub use self::file::Repair;
pub(crate) use self::file::{JournalFile, check_note};
pub(crate) use self::fingerprint::Fingerprint;
pub use self::fingerprint::{Difference, KeyKind};
pub(crate) use self::key::{Key, Outcome, Record};
pub(crate) use self::names::Names;
pub(crate) use self::past::{Past, Plan};
#[doc(hidden)]
pub use self::scan::read_any_bytes;

/// A file that records which items are done, so that a later run does not repeat them.
///
/// It survives the end of the process at any moment, and of the machine. Items that were in flight then,
/// and items consumed since the last commit, are repeated. An item that is not done is never passed over.
///
/// A new journal is refused if the file is not empty: call [`resume`](Journal::resume) or
/// [`rerun_failed`](Journal::rerun_failed) to continue it. A plain path means a new journal:
///
/// ```
/// use gangline::Journal;
///
/// let new = Journal::from("run.journal");
/// let go_on = Journal::at("run.journal").runner("digits", env!("CARGO_PKG_VERSION")).resume();
/// ```
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
    mode: Mode,
    runner: Option<(String, String)>,
    every: Duration,
    items: usize,
    ignored: Vec<String>,
}

/// Which items are to be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All, and there must be no journal yet.
    New,
    /// Those that are not done.
    Resume,
    /// Those that failed.
    RerunFailed,
}

impl Journal {
    /// A new journal: a run is refused where there is a file at `path` with something in it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Journal {
            path: path.into(),
            mode: Mode::New,
            runner: None,
            every: Duration::from_millis(50),
            items: 1_000,
            ignored: Vec::new(),
        }
    }

    /// Leaves out the items that the journal has as done, and works on all others: those that failed, too.
    ///
    /// Where there is no file yet, a new journal begins.
    #[must_use]
    pub fn resume(self) -> Self {
        Journal { mode: Mode::Resume, ..self }
    }

    /// Works only on the items that the journal has as failed.
    ///
    /// Items that the journal does not know stay unknown: they were never handed to a producer, or the
    /// process ended before they were committed. A later [`resume`](Journal::resume) works on them.
    #[must_use]
    pub fn rerun_failed(self) -> Self {
        Journal { mode: Mode::RerunFailed, ..self }
    }

    /// What makes the results, for the journal to refuse to go on with another: a name, and a version that
    /// changes when results do.
    #[must_use]
    pub fn runner(self, name: impl Into<String>, version: impl Into<String>) -> Self {
        Journal { runner: Some((name.into(), version.into())), ..self }
    }

    /// Does not write down what the configuration has at the dotted `path`, nor mind when it changes: for
    /// what has no say in the results, such as a log level, and for what is secret.
    ///
    /// May be called several times.
    #[must_use]
    pub fn ignore_cfg(mut self, path: impl Into<String>) -> Self {
        self.ignored.push(path.into());
        self
    }

    /// Commits when the oldest record is this old: 50 ms unless said otherwise.
    ///
    /// A commit waits for the disk, on the consumer's thread; what was not committed is done again.
    #[must_use]
    pub fn commit_every(self, time: Duration) -> Self {
        Journal { every: time, ..self }
    }

    /// Commits when there are this many records: 1,000 unless said otherwise; 0 is taken for 1.
    #[must_use]
    pub fn commit_items(self, items: usize) -> Self {
        Journal { items: items.max(1), ..self }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// [`Journal::at`].
impl From<&str> for Journal {
    fn from(path: &str) -> Self {
        Journal::at(path)
    }
}

/// [`Journal::at`].
impl From<String> for Journal {
    fn from(path: String) -> Self {
        Journal::at(path)
    }
}

/// [`Journal::at`].
impl From<&Path> for Journal {
    fn from(path: &Path) -> Self {
        Journal::at(path)
    }
}

/// [`Journal::at`].
impl From<PathBuf> for Journal {
    fn from(path: PathBuf) -> Self {
        Journal::at(path)
    }
}
