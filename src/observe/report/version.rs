//! The version of the JSON's form.

use serde::{Serialize, Serializer};

/// The version of the JSON's form.
pub(super) const VERSION: u64 = 1;

/// A report with the version of its form.
#[derive(Serialize)]
pub(super) struct Versioned<'a, R> {
    version: u64,
    #[serde(flatten)]
    report: &'a R,
}

impl<'a, R> Versioned<'a, R> {
    pub(super) fn new(report: &'a R) -> Self {
        Versioned { version: VERSION, report }
    }
}

/// Writes a report with its version.
pub(super) fn versioned<R: Serialize, S: Serializer>(report: &R, to: S) -> Result<S::Ok, S::Error> {
    Versioned::new(report).serialize(to)
}
