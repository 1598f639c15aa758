//! The limits of this process: open files, and the size of a file.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::args::workers::{FILES_PER_JOB, OTHER_FILES};
use crate::error::{CliError, naming};
use crate::execute::failure::internal;
use crate::execute::signals::is_ignored;
use crate::exit;

/// Raises the limit on open files as far as this number of jobs at once needs. The usual limit is low.
pub(crate) fn allow_files(workers: usize) -> Result<(), CliError> {
    let needed = OTHER_FILES + FILES_PER_JOB * workers as u64;
    // Where the call is refused, the limit may suffice.
    let Ok((current, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if current >= needed {
        return Ok(());
    }
    if most < needed {
        let text = match workers {
            0 => format!(
                "gangline needs {needed} open files, and the limit is {most}: raise it (ulimit -n)"
            ),
            _ => format!(
                "{workers} jobs at once need {needed} open files, and the limit is {most}: run fewer jobs (-j)"
            ),
        };
        return Err(CliError::new(exit::USAGE, text));
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, most)
        .map_err(|error| internal(naming("setrlimit")(error)))
}

/// Raises the limit on open files for the connections of a server, and returns how many it allows.
pub(crate) fn allow_connections(workers: usize) -> usize {
    let others = OTHER_FILES + FILES_PER_JOB * workers as u64;
    let Ok((current, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return LEAST_CONNECTIONS };
    let wanted = (others + MOST_CONNECTIONS).min(most).max(current);
    let limit = setrlimit(Resource::RLIMIT_NOFILE, wanted, most).map_or(current, |()| wanted);
    let connections = limit.saturating_sub(others).min(MOST_CONNECTIONS);
    usize::try_from(connections).unwrap_or(usize::MAX).max(LEAST_CONNECTIONS)
}

/// The connections of a server at once: others wait until one is closed.
const MOST_CONNECTIONS: u64 = 10_000;
const LEAST_CONNECTIONS: usize = 16;

/// Makes a write beyond the limit on the size of a file fail, instead of ending the process. A signal that is
/// handled has its default effect again in jobs.
pub(crate) fn survive_full_files() -> Result<(), CliError> {
    if !is_ignored(SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(internal)?;
    }
    Ok(())
}
