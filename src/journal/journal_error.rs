//! Errors of opening and writing a journal.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::fingerprint::Difference;
use crate::base::debug_with_causes;
use crate::base::plain::Plain;

/// Why a [`Journal`](crate::Journal) is refused, or could not be read or written.
///
/// Most are found before a run pulls its first item. The exceptions are [`Io`](JournalError::Io),
/// [`Broken`](JournalError::Broken), [`Gone`](JournalError::Gone), and errors about items, or about notes and records that are too large.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A new journal was asked for, but the file is not empty.
    #[non_exhaustive]
    #[error(
        "the journal {} exists already: `resume` goes on with it, `rerun_failed` runs what failed, \
         and a new one needs another path",
        ShownPath(.path)
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The failed items of a journal were asked for, but it does not exist.
    #[non_exhaustive]
    #[error("there is no journal {}, so it is not known what failed: use `resume`", ShownPath(.path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another run is writing the journal.
    #[non_exhaustive]
    #[error("the journal {} is in use by another run: wait for that one, or end it", ShownPath(.path))]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be locked, as on some network and user-space file systems.
    #[non_exhaustive]
    #[error(
        "the journal {} cannot be locked: {source}; use a file system with locks, or go on with `unlockable`, \
         where a second run at the same time damages the journal",
        ShownPath(.path)
    )]
    NoLock {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file was deleted, moved or replaced during the run. What was consumed since the last commit is not
    /// recorded.
    #[non_exhaustive]
    #[error(
        "the journal {} was deleted, moved or replaced during the run: put it back and resume, or its items \
         are done again",
        ShownPath(.path)
    )]
    Gone {
        /// The path that it had.
        path: PathBuf,
    },
    /// The path is that of a directory, a device or a pipe.
    #[non_exhaustive]
    #[error("{} is not a regular file, as a journal is", ShownPath(.path))]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file does not begin as a journal does.
    #[non_exhaustive]
    #[error("{} is no journal: give another path, or remove it", ShownPath(.path))]
    NoJournal {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a version of gangline with another journal format.
    #[non_exhaustive]
    #[error(
        "the journal {} has format {found}, and this version of gangline reads format {known}: \
         go on with the version that wrote it, or begin a new one",
        ShownPath(.path)
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The format that this version reads.
        known: u32,
    },
    /// The journal belongs to other work.
    #[non_exhaustive]
    #[error(
        "the journal {} is of another run: {}; undo that, or begin a new journal",
        ShownPath(.path), DifferenceList(.differences)
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// The differences: at least one.
        differences: Vec<Difference>,
    },
    /// It is damaged before its end, which an interrupted run does not cause.
    #[non_exhaustive]
    #[error(
        "the journal {} is damaged at byte {at}: `Journal::repair` keeps what is before that, \
         and what it held after that is done again",
        ShownPath(.path)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The byte at which the first damaged line begins.
        at: u64,
    },
    /// Its first line is damaged, so the work that it belongs to is unknown.
    #[non_exhaustive]
    #[error(
        "the journal {} is damaged at byte 0, and nothing is before that: remove it",
        ShownPath(.path)
    )]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// The input has changed.
    #[non_exhaustive]
    #[error(
        "{} not what {} when the journal {} was written, by the hash: restore the input, or begin a \
         new journal",
        ItemRange(*.first, *.last), WasOrWere(*.first, *.last), ShownPath(.path)
    )]
    ItemChanged {
        /// The file.
        path: PathBuf,
        /// The item, or the first of those that were committed together.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// The input ended before items that were done in an earlier run.
    #[non_exhaustive]
    #[error(
        "the input has {items} items, and the journal {} knows of item {recorded}: restore the input, \
         or begin a new journal",
        ShownPath(.path)
    )]
    InputShorter {
        /// The file.
        path: PathBuf,
        /// The number of items in the input.
        items: u64,
        /// The last item that the journal knows, counted from 0.
        recorded: u64,
    },
    /// A note is too large to be written with every commit.
    #[non_exhaustive]
    #[error("a note of {bytes} bytes is too large, {limit} are allowed: keep the rest in a file")]
    NoteTooLarge {
        /// The size of the note.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The configuration, or the keys of one commit, are too large.
    #[non_exhaustive]
    #[error(
        "a line of {bytes} bytes is too long for the journal {}, {limit} are allowed: use shorter keys, or \
         `ignore_cfg`",
        ShownPath(.path)
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The length of the line.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Writing failed before, so the contents of the disk are unknown. Nothing more is written.
    #[non_exhaustive]
    #[error("the journal {} could not be written earlier, and is left as it was", ShownPath(.path))]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused something.
    #[non_exhaustive]
    #[error("the journal {} could not be {operation}: {source}", ShownPath(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed: `opened`, `read`, `found`, `written`, `synced` or `cut`.
        operation: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

debug_with_causes!(JournalError);

pub(super) fn io_error(path: &Path, operation: &'static str, source: io::Error) -> JournalError {
    JournalError::Io { path: path.to_owned(), operation, source }
}

/// The path of a file; an empty one is not shown.
struct ShownPath<'a>(&'a Path);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_os_str().is_empty() {
            true => f.write_str("\"\""),
            false => write!(f, "{}", Plain(&self.0.to_string_lossy())),
        }
    }
}

/// The maximum number of differences in a message; after a complete change the list would be too long to
/// read.
const MOST_TOLD: usize = 8;

struct DifferenceList<'a>(&'a [Difference]);

impl fmt::Display for DifferenceList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, difference) in self.0.iter().take(MOST_TOLD).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{difference}")?;
        }
        match self.0.len().saturating_sub(MOST_TOLD) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

struct ItemRange(u64, u64);

impl fmt::Display for ItemRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ItemRange(first, last) if first == last => write!(f, "item {first} is"),
            ItemRange(first, last) => write!(f, "of the items {first} to {last}, one or more are"),
        }
    }
}

struct WasOrWere(u64, u64);

impl fmt::Display for WasOrWere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == self.1 { "it was" } else { "they were" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_or_several_have_changed() {
        let changed =
            |first, last| JournalError::ItemChanged { path: "j".into(), first, last }.to_string();
        let rest = "when the journal j was written, by the hash: restore the input, or begin a new journal";
        assert_eq!(changed(4, 4), format!("item 4 is not what it was {rest}"));
        let several = "of the items 4 to 6, one or more are not what they were";
        assert_eq!(changed(4, 6), format!("{several} {rest}"));
    }
}
