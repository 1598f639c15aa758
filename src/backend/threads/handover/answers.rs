//! Where the results of a service go.

use crate::backend::threads::outbox::Outcome;
use crate::runner::OpenItems;

/// Takes the results of a run in the place of a collector, on the thread that has them.
pub(crate) trait Answers<T>: OpenItems {
    /// Answers the call whose item this is, unless it is no longer open.
    fn answer(&self, item: u64, outcome: Outcome<T>);

    /// Notes that the run takes no more items, or is over. Runs no user code, since the caller may hold locks.
    fn note_end(&self, end: End);
}

/// How far a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// It takes no more items, and finishes those that it has.
    Halted,
    /// No item is worked on any more.
    Aborted,
}
