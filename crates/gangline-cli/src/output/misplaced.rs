//! The reasons to refuse the path of a job's results.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::plain::beginning;
use crate::plan::template::quoted;

/// The reason why the path of a job's results is refused.
#[derive(Debug)]
pub(crate) enum Misplaced {
    /// The path holds something other than earlier results. `holds` is the name of a foreign file in a folder.
    Occupied { path: PathBuf, holds: Option<OsString> },
    /// The name leads out of the folder that the text names before its first mark.
    LeadsOut { name: OsString, folder: PathBuf },
    /// The name is that of the folder itself, such as `out/.`.
    Unnamed { name: OsString },
    /// The files would be among the results of another job of this run.
    Among { path: PathBuf, number: u64 },
    /// Another job of this run has the name.
    Taken { path: PathBuf, number: u64 },
    /// The file system refuses the name.
    Unusable { path: PathBuf, source: io::Error },
}

impl Misplaced {
    pub(super) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> Misplaced {
        let path = path.to_owned();
        |source| Misplaced::Unusable { path, source }
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misplaced::Occupied { path, holds: Some(name) } => write!(
                f,
                "its results would replace {}, which holds {}: only a folder with nothing but stdout, stderr and \
                 job.json is replaced",
                shown(path.as_os_str()),
                shown(name)
            ),
            Misplaced::Occupied { path, holds: None } => write!(
                f,
                "its results would replace {}, which is not the result of a job: choose another name for --results",
                shown(path.as_os_str())
            ),
            Misplaced::LeadsOut { name, folder } => write!(
                f,
                "its results would be {}, which leads out of {}: a .., a first / or a link may only stand before \
                 the first mark of --results",
                shown(name),
                match folder.as_os_str().is_empty() {
                    true => "this folder".into(),
                    false => shown(folder.as_os_str()),
                }
            ),
            Misplaced::Unnamed { name } => write!(
                f,
                "its results would have no name of their own: the marks of --results make {}",
                shown(name)
            ),
            Misplaced::Among { path, number } => write!(
                f,
                "its results, {}, would be among those of job {number}",
                shown(path.as_os_str())
            ),
            Misplaced::Taken { path, number } => write!(
                f,
                "job {number} and an earlier job have the same name, {}: add a mark such as {{#}}",
                shown(path.as_os_str())
            ),
            Misplaced::Unusable { path, source } => {
                write!(f, "its results cannot be kept in {}: {source}", shown(path.as_os_str()))
            }
        }
    }
}

impl std::error::Error for Misplaced {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Misplaced::Unusable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The beginning of a long name is enough to find its job.
fn shown(name: &OsStr) -> String {
    let text = quoted(name);
    match text.len() > MOST_SHOWN {
        false => text,
        true => format!("{}... ({} bytes)", beginning(&text, MOST_SHOWN), name.len()),
    }
}

const MOST_SHOWN: usize = 120;
