//! The file of a journal, for tests.

use std::path::{Path, PathBuf};

use gangline::Journal;

/// A file that is not there yet, in a directory of its own.
pub struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Place { path: dir.path().join("run.journal"), _dir: dir }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn resume(&self) -> Journal {
        Journal::at(&self.path).resume()
    }

    pub fn rerun(&self) -> Journal {
        Journal::at(&self.path).rerun_failed()
    }

    /// What the lines after the first say, without their checksums.
    pub fn commits(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().skip(1).map(|line| line[9..].to_owned()).collect()
    }

    /// How many items it has as done, and how many as failed. It is not damaged.
    #[track_caller]
    pub fn counts(&self) -> (u64, u64) {
        let found = Journal::at(&self.path).repair().unwrap();
        assert_eq!(found.lost_bytes, 0, "{found}");
        (found.done, found.failed)
    }
}
