//! Paths that do not depend on the current directory.

use std::path::{self, PathBuf};

/// Returns the path from the root, so that a later change of the current directory does not change what it names. If
/// the current directory is gone, the path stays relative.
pub(crate) fn absolute(path: PathBuf) -> PathBuf {
    path::absolute(&path).unwrap_or(path)
}
