//! The resume journal: which items earlier runs have done.
//!
//! ```text
//!   Journal           the settings
//!   JournalFile       the file, locked: records are buffered, a commit writes and syncs one line
//!   Past              the contents of the file when it was opened: decides which items are already done
//!   scan, line        bytes to `Past` and back, without files
//!   Group             when a commit is due, without a clock
//! ```

mod fingerprint;
mod group;
mod journal_error;
mod journal_file;
mod journal_key;
mod line;
mod locked_file;
mod past;
mod position_spans;
mod scan;

#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod fake_disk;
#[cfg(test)]
mod file_faults;
#[cfg(test)]
mod lost_writes;
#[cfg(test)]
mod resumed_inputs;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::absolute;

pub(crate) use self::fingerprint::Fingerprint;
pub use self::fingerprint::{Difference, KeyKind};
pub use self::journal_error::JournalError;
pub use self::journal_file::Repair;
pub(crate) use self::journal_file::{JournalFile, check_note};
pub(crate) use self::journal_key::{JournalKey, JournalNames, JournalOutcome, JournalRecord};
pub(crate) use self::past::{ItemPlan, Past};

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
    /// The path as it was given: errors name it so.
    path: PathBuf,
    /// The path from the root, once the runner is built.
    anchored: Option<PathBuf>,
    mode: Mode,
    runner: Option<(String, String)>,
    every: Duration,
    items: usize,
    ignored: Vec<String>,
    unlockable: Unlockable,
}

/// What happens if the file system has no locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlockable {
    Refused,
    Used,
}

/// The items to work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All; the journal must not exist yet.
    New,
    /// Those that are not done.
    Resume,
    /// Those that failed.
    RerunFailed,
}

impl Journal {
    /// Begins a new journal. A run is refused if the file at `path` is not empty.
    ///
    /// A relative path is looked up in the current directory of [`build`](crate::Builder::build).
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Journal {
            path: path.into(),
            anchored: None,
            mode: Mode::New,
            runner: None,
            every: Duration::from_millis(50),
            items: 1_000,
            ignored: Vec::new(),
            unlockable: Unlockable::Refused,
        }
    }

    /// Works on all items but those that the journal has as done; failed items are repeated.
    ///
    /// If the file does not exist, a new journal begins.
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

    /// Names the work that makes the results, so that the journal refuses to continue with other work.
    /// Change `version` when results change.
    #[must_use]
    pub fn runner(self, name: impl Into<String>, version: impl Into<String>) -> Self {
        Journal { runner: Some((name.into(), version.into())), ..self }
    }

    /// Neither records the value at the dotted `path` of the configuration, nor refuses a journal when it
    /// changes. Use it for values that do not affect results, such as a log level, and for secrets.
    ///
    /// May be called several times.
    #[must_use]
    pub fn ignore_cfg(mut self, path: impl Into<String>) -> Self {
        self.ignored.push(path.into());
        self
    }

    /// Goes on without a lock if the file cannot be locked, as on some network and user-space file systems.
    ///
    /// By default such a file is [refused](JournalError::NoLock). Without a lock two runs may write the
    /// journal at the same time. That damages it, and both work on the same items. Where locks work, one is
    /// still taken.
    #[must_use]
    pub fn unlockable(self) -> Self {
        Journal { unlockable: Unlockable::Used, ..self }
    }

    /// Commits when the oldest record is this old. The default is 50 ms.
    ///
    /// A commit waits for the disk, on the consumer's thread. Items that were not committed are repeated.
    #[must_use]
    pub fn commit_every(self, time: Duration) -> Self {
        Journal { every: time, ..self }
    }

    /// Commits when there are this many records. The default is 1,000; 0 is taken for 1.
    #[must_use]
    pub fn commit_items(self, items: usize) -> Self {
        Journal { items: items.max(1), ..self }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the file is.
    fn location(&self) -> &Path {
        self.anchored.as_deref().unwrap_or(&self.path)
    }

    /// Keeps naming the same file when the current directory changes.
    pub(crate) fn anchored(self) -> Self {
        Journal { anchored: Some(absolute(self.path.clone())), ..self }
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
