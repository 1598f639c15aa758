//! Errors of files that outputs are written to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::plain::Plain;
use crate::base::{BoxError, debug_with_causes};

/// Why outputs could not be written to a file.
///
/// ```
/// use gangline::sink::{self, SinkError};
///
/// let error = sink::atomic_file("/no/such/folder/out.txt").unwrap_err();
/// assert!(matches!(error, SinkError::Io { operation: "created", .. }));
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system refused an operation.
    #[error("{} could not be {operation}", Shown(.path))]
    #[non_exhaustive]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: `created`, `written`, `synced`.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The path names something that is no regular file: a folder, a device, a pipe.
    #[error("{} is not a regular file, so it cannot be cut or replaced; give another path", Shown(.path))]
    #[non_exhaustive]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Another run writes to the file.
    #[error("{} is in use by another run; wait for its end, or give another path", Shown(.path))]
    #[non_exhaustive]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Something has the name of the folder already.
    #[error("{} exists already; remove it, or leave out the work that makes it", Shown(.path))]
    #[non_exhaustive]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The file is shorter than the journal says, so it is not the file of that journal.
    #[error(
        "{} has {length} bytes, and its journal knows of {noted}; restore the file, or delete the journal to \
         begin again",
        Shown(.path)
    )]
    #[non_exhaustive]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length, in bytes.
        length: u64,
        /// The length that the journal notes, in bytes.
        noted: u64,
    },
    /// The last note of the journal is not that of a sink.
    #[error(
        "the last note of the journal is not the length of a file: {note:?}; begin a new journal"
    )]
    #[non_exhaustive]
    Note {
        /// The note, as text, at most 80 characters of it.
        note: String,
    },
    /// The file that a run goes on with begins with another header.
    #[error("{} does not begin with the header {header:?}; give the header it has, or another path", Shown(.path))]
    #[non_exhaustive]
    Header {
        /// The file.
        path: PathBuf,
        /// The header that is wanted.
        header: String,
    },
    /// An output of [`lines`](crate::sink::lines) has a line break in its text.
    #[error(
        "the output {text:?} has a line break, so it is not one line; `sink::jsonl` can write it"
    )]
    #[non_exhaustive]
    LineBreak {
        /// The text, at most 80 characters of it.
        text: String,
    },
    /// An output cannot be written in the format of the file.
    #[error("an output could not be written as {format}")]
    #[non_exhaustive]
    Encode {
        /// The format: `JSON`, `CSV`.
        format: &'static str,
        /// The reason.
        source: BoxError,
    },
    /// A write has failed before, so nothing more is written.
    #[error("{} is not written to any more, since a write has failed", Shown(.path))]
    #[non_exhaustive]
    Broken {
        /// The file.
        path: PathBuf,
    },
}

debug_with_causes!(SinkError);

impl SinkError {
    /// For `map_err`: names the file and what was tried.
    pub(super) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| SinkError::Io { path, operation, source }
    }
}

/// A path, escaped so that a terminal only displays it.
struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plain(&self.0.display().to_string()))
    }
}

/// The beginning of a text, for errors.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}
