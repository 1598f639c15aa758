//! A producer that a run goes on without.

use std::sync::Arc;

/// A producer that takes part in no run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostProducer {
    pub(crate) producer: usize,
    /// Why, as text.
    pub(crate) reason: Arc<str>,
    pub(crate) abandoned: Abandoned,
}

/// Whether the thread of a producer is still in a hook that nothing waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Yes,
    No,
}
