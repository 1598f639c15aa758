//! How a worker's part in a run ends.

use futures_util::future::{Either, select};
use tokio::sync::watch;

/// Whether a part in a run ends, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    NotYet,
    /// Begun items are finished, and no others are begun.
    Drain,
    /// Nothing waits for its items.
    Over,
}

/// Waits for the first of a future and the end of a part.
pub(super) async fn unless_over<T>(
    ends: &mut watch::Receiver<Ending>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let future = std::pin::pin!(future);
    let ended = std::pin::pin!(ends.wait_for(|ending| *ending != Ending::NotYet));
    match select(future, ended).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(_) => None,
    }
}
