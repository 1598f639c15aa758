//! A buffered file that a forked child leaves to its parent.

use std::fs::File;
use std::io::BufWriter;
use std::mem::forget;
use std::ops::{Deref, DerefMut};

use crate::concurrency::home_process::HomeProcess;

const HELD: &str = "it is taken out only when this is dropped";

/// A buffered file. Dropping it in a forked child writes nothing: the parent has the same buffer, and writes it.
#[derive(Debug)]
pub(super) struct HomeFile {
    /// `None` only while this is dropped.
    file: Option<BufWriter<File>>,
    home: HomeProcess,
}

impl HomeFile {
    pub(super) fn new(file: BufWriter<File>) -> Self {
        HomeFile { file: Some(file), home: HomeProcess::here() }
    }

    /// Whether this process opened the file.
    pub(super) fn is_ours(&self) -> bool {
        self.home.is_here()
    }
}

impl Deref for HomeFile {
    type Target = BufWriter<File>;

    fn deref(&self) -> &BufWriter<File> {
        self.file.as_ref().expect(HELD)
    }
}

impl DerefMut for HomeFile {
    fn deref_mut(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect(HELD)
    }
}

impl Drop for HomeFile {
    fn drop(&mut self) {
        if !self.is_ours() {
            forget(self.file.take());
        }
    }
}
