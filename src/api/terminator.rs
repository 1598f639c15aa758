//! Ending child processes in the middle of their hooks.

use std::fmt;
use std::sync::Arc;

use crate::concurrency::cancel::CancelToken;
use crate::producers::shared::PoolShared;

/// Ends a pool at once, from any thread: cancels the run in progress, and kills child processes in their hooks.
///
/// Made by [`Pool::terminator`](crate::Pool::terminator). Of a pool in a pipeline it cancels the run of all stages, and
/// kills the processes of its own.
#[derive(Clone)]
pub struct Terminator {
    token: CancelToken,
    /// `None` if the pool was closed.
    pool: Option<Arc<PoolShared>>,
}

impl Terminator {
    /// For the pool that `token` ends.
    pub(super) fn new(token: CancelToken, pool: Option<Arc<PoolShared>>) -> Self {
        Terminator { token, pool }
    }

    /// Cancels the run in progress, which returns an error for which [`is_cancelled`](crate::Error::is_cancelled) is true,
    /// and kills child processes in their hooks.
    ///
    /// `Processes::kill_after` does not apply, and a child process does not call
    /// [`producer_end`](crate::Runner::producer_end). A hook on a thread cannot be ended: it sees
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled), and is waited for. No run begins any more: its error is that
    /// of a closed pool.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// let terminator = pool.terminator();
    /// let ended = pool.run((0..).inspect(|&x| if x == 9 { terminator.terminate() }));
    /// assert!(ended.unwrap_err().is_cancelled());
    /// assert!(pool.run([1]).unwrap_err().is_closed());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn terminate(&self) {
        // First: that a process is killed is then no outcome of an item.
        self.token.cancel();
        self.pool.iter().for_each(|pool| pool.terminate());
    }
}

impl fmt::Debug for Terminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminator").finish_non_exhaustive()
    }
}
