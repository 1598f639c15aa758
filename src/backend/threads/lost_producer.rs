//! A producer that no longer takes part in runs.

use std::sync::Arc;

/// A producer that no longer takes part in runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostProducer {
    /// Its lane in the run, which is its place unless it replaced another there.
    pub(crate) lane: usize,
    /// Its place.
    pub(crate) producer: usize,
    /// The reason, as text.
    pub(crate) reason: Arc<str>,
    pub(crate) abandoned: Abandoned,
}

/// Whether the producer's thread is still in a hook that the pool no longer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Yes,
    No,
}
