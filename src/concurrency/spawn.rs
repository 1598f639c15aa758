//! Threads with names.

use std::io;
use std::thread::{self, JoinHandle};

/// A thread that the operating system refused to start.
#[derive(Debug)]
pub(crate) struct SpawnError {
    /// The name that the thread would have had.
    pub(crate) name: String,
    pub(crate) source: io::Error,
}

/// Starts a thread with a name.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    stack_size: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    let builder = thread::Builder::new().name(name.clone());
    let builder = match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    };
    builder.spawn(work).map_err(|source| SpawnError { name, source })
}
