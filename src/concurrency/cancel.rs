//! Cancelling or draining what is in progress, from another thread.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Ends what is in progress, from any thread: a run, an [`Outputs`](crate::Outputs), or the building of a
/// runner.
///
/// Clones are the same token. Every runner has one ([`cancel_token`](crate::Pool::cancel_token));
/// a token given to several [builders](crate::Builder::cancel_token) ends them all.
///
/// A request ends what is in progress. If nothing is in progress, it ends the next run at its start. For
/// each runner it is spent when the call that it ended returns; later runs are unaffected.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
/// let token = runner.cancel_token();
/// std::thread::spawn(move || token.cancel()).join().expect("cancelling does not panic");
/// assert!(runner.run(0..).unwrap_err().is_cancelled(), "an endless run, but for the token");
/// assert_eq!(runner.run(0..3)?, [0, 1, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CancelToken {
    shared: Arc<Mutex<Requests>>,
}

/// Receives the requests of a token, called without any lock of the token held.
pub(crate) trait Interrupt: Send + Sync {
    /// Drops the items in flight, and ends.
    fn cancel(&self);
    /// Stops reading input, and [ends backoff](Interrupt::end_backoff).
    fn drain(&self);
    /// Makes all retries due at once.
    fn end_backoff(&self) {}
    /// Whether it is aborted, for whatever reason.
    fn is_aborted(&self) -> bool;
}

/// Counts the requests of each kind that were made, or that one watcher has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeenRequests {
    cancels: u64,
    drains: u64,
}

#[derive(Default)]
struct Requests {
    made: SeenRequests,
    /// The requests that some runner has spent: a runner built later, or a guard, starts from here.
    spent: SeenRequests,
    next_id: u64,
    in_progress: Vec<(u64, Weak<dyn Interrupt>)>,
    /// One sender for each guard; dropping it wakes the guard.
    guards: Vec<(u64, Sender<()>)>,
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl CancelToken {
    /// Makes a token without requests.
    pub fn new() -> Self {
        CancelToken { shared: Arc::default() }
    }

    /// Ends what is in progress and drops the items in flight.
    ///
    /// It takes as long as the hooks that are running, and the caller's iterator if that is being asked for
    /// an item. A run returns an error for which [`is_cancelled`](crate::Error::is_cancelled) is true.
    pub fn cancel(&self) {
        let (targets, guards) = {
            let mut requests = self.lock();
            requests.made.cancels += 1;
            (requests.targets(), std::mem::take(&mut requests.guards))
        };
        // The runs first. If its guarded input ended before it was cancelled, a run would return its summary.
        targets.iter().for_each(|target| target.cancel());
        drop(guards);
    }

    /// Stops reading input, and completes the items in flight.
    ///
    /// Items that wait for a [retry](crate::Builder::retries) are tried at once, without their
    /// [backoff](crate::Builder::backoff). `consumer_end` runs, and the run returns its summary. Use it for a
    /// first Ctrl-C, and [`cancel`](CancelToken::cancel) for the second. [`guard`](CancelToken::guard) has an
    /// example.
    ///
    /// It does not end the building of a runner; the first run of that runner then reads no input.
    ///
    /// ```
    /// use gangline::{OrderedRunner, each};
    ///
    /// let mut pool = OrderedRunner::new(each(|x: u64| Ok(x)), 2)?;
    /// let token = pool.cancel_token();
    /// // From the input itself, so that the number of items is known; a signal's thread calls it alike.
    /// let outputs = pool.run((0..).inspect(|&x| if x == 9 { token.drain() }))?;
    /// assert_eq!(outputs, (0..10).collect::<Vec<_>>());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn drain(&self) {
        let (targets, guards) = {
            let mut requests = self.lock();
            requests.made.drains += 1;
            (requests.targets(), std::mem::take(&mut requests.guards))
        };
        // The runs first, as in `cancel`.
        targets.iter().for_each(|target| target.drain());
        drop(guards);
    }

    /// Returns whether [`cancel`](CancelToken::cancel) was ever called. It stays true after the request is
    /// spent.
    pub fn is_cancelled(&self) -> bool {
        self.lock().made.cancels > 0
    }

    /// Registers a guard: its id, and the receiver that is disconnected once the token is used.
    pub(crate) fn add_guard(&self) -> (u64, Receiver<()>) {
        let (alarm, ended) = bounded(0);
        let mut requests = self.lock();
        let id = requests.issue_id();
        if requests.made == requests.spent {
            requests.guards.push((id, alarm));
        }
        (id, ended)
    }

    /// The guard with that id was dropped.
    pub(crate) fn remove_guard(&self, id: u64) {
        self.lock().guards.retain(|(guard, _)| *guard != id);
    }

    /// Returns what a new runner has seen of this token: every request that some runner has spent.
    pub(crate) fn seen(&self) -> SeenRequests {
        self.lock().spent
    }

    /// Returns whether there were cancels that `seen` lacks.
    pub(crate) fn is_cancelled_since(&self, seen: SeenRequests) -> bool {
        self.lock().made.cancels > seen.cancels
    }

    /// Passes `target` every request made from now on until the returned value is dropped, and at once
    /// those that `seen` lacks.
    pub(crate) fn watch(
        &self,
        seen: SeenRequests,
        target: &Arc<impl Interrupt + 'static>,
    ) -> CancelWatch {
        let weak = Arc::downgrade(target);
        let mut requests = self.lock();
        let id = requests.issue_id();
        requests.in_progress.push((id, weak));
        let made = requests.made;
        drop(requests);
        if made.drains > seen.drains {
            target.drain();
        }
        if made.cancels > seen.cancels {
            target.cancel();
        }
        CancelWatch { id, token: self.clone() }
    }

    /// Passes `target` every request made from now on until the returned value is dropped.
    pub(crate) fn watch_from_now(&self, target: &Arc<impl Interrupt + 'static>) -> CancelWatch {
        let weak = Arc::downgrade(target);
        let mut requests = self.lock();
        let id = requests.issue_id();
        requests.in_progress.push((id, weak));
        drop(requests);
        CancelWatch { id, token: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.shared.lock().expect("no user code, and nothing that panics, runs under this lock")
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

impl Requests {
    fn issue_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn targets(&self) -> Vec<Arc<dyn Interrupt>> {
        self.in_progress.iter().filter_map(|(_, target)| target.upgrade()).collect()
    }
}

/// Keeps a target registered with its token.
pub(crate) struct CancelWatch {
    id: u64,
    token: CancelToken,
}

impl CancelWatch {
    /// Ends the watch, and spends every request made so far.
    pub(crate) fn spend(self) -> SeenRequests {
        let mut requests = self.token.lock();
        requests.spent = requests.made;
        requests.made
    }

    /// Ends the watch, and spends the cancels made so far; a drain waits for the next run.
    pub(crate) fn spend_cancels(self, seen: SeenRequests) -> SeenRequests {
        let mut requests = self.token.lock();
        requests.spent.cancels = requests.made.cancels;
        SeenRequests { cancels: requests.made.cancels, ..seen }
    }
}

impl Drop for CancelWatch {
    fn drop(&mut self) {
        let mut requests = self.token.lock();
        if let Some(i) = requests.in_progress.iter().position(|(id, _)| *id == self.id) {
            let target = requests.in_progress.swap_remove(i);
            // Dropped after the lock is released: it may hold the last reference to the run's items.
            drop(requests);
            drop(target);
        }
    }
}

thread_local! {
    /// The runs that this thread is pulling input for, the outermost first. Each receiver is disconnected
    /// when its run reads no more input.
    static PULLING: RefCell<Vec<Receiver<()>>> = const { RefCell::new(Vec::new()) };
}

/// Ends the guards pulled on this thread with the run that it was made for. `Outputs` that feed each other
/// have several, and any of them ends a guard at their source.
pub(crate) struct Pulling {
    /// It has to be dropped on the thread that made it.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Pulling {
    pub(crate) fn new(halted: &Receiver<()>) -> Self {
        PULLING.with_borrow_mut(|pulling| pulling.push(halted.clone()));
        Pulling { not_send: std::marker::PhantomData }
    }
}

/// One receiver for each run that this thread pulls input for, disconnected once that run reads no more.
pub(crate) fn pulling() -> Vec<Receiver<()>> {
    PULLING.with_borrow(Vec::clone)
}

impl Drop for Pulling {
    fn drop(&mut self) {
        PULLING.with_borrow_mut(Vec::pop);
    }
}
