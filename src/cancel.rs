//! Ending what is in progress from another thread.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, bounded};

/// Ends what is in progress, from any thread: a run, a stream, the building of a runner.
///
/// Clones are the same token. Every runner has one ([`cancel_token`](crate::Pool::cancel_token));
/// a token given to several [builders](crate::Builder::cancel_token) ends them all.
///
/// A request ends what is in progress. Where nothing is, it waits and ends the next run at its
/// start. For each runner it is spent when the call that it ended returns; later runs are unaffected.
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

/// What a token ends: told without any lock of the token held.
pub(crate) trait Interrupt: Send + Sync {
    /// Drop everything.
    fn cancel(&self);
    /// Take no more input.
    fn drain(&self);
}

/// How many requests of each kind were made, or were seen by somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    cancels: u64,
    drains: u64,
}

#[derive(Default)]
struct Requests {
    made: Seen,
    /// What any runner has spent: a runner built later, or a guard, starts from here.
    spent: Seen,
    next_id: u64,
    in_progress: Vec<(u64, Weak<dyn Interrupt>)>,
    /// One for each guard; dropping it wakes the guard.
    guards: Vec<(u64, Sender<()>)>,
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl CancelToken {
    /// A token that nobody has used.
    pub fn new() -> Self {
        CancelToken { shared: Arc::default() }
    }

    /// Ends what is in progress, dropping what was given out: within the time of the hooks that are
    /// running, and of the caller's iterator if that is being asked for an item. A run returns an
    /// error for which [`is_cancelled`](crate::Error::is_cancelled) is true.
    pub fn cancel(&self) {
        let (targets, guards) = {
            let mut requests = self.lock();
            requests.made.cancels += 1;
            (requests.targets(), std::mem::take(&mut requests.guards))
        };
        // The runs first: to one whose guarded input ended before that, all would seem to be well.
        targets.iter().for_each(|target| target.cancel());
        drop(guards);
    }

    /// Takes no more input, and lets what was given out be worked on and consumed: `consumer_end`
    /// runs, and the run returns its summary. What a first Ctrl-C should do, with
    /// [`cancel`](CancelToken::cancel) for the second.
    ///
    /// It does not end the building of a runner; the first run of that runner then takes no input.
    pub fn drain(&self) {
        let (targets, guards) = {
            let mut requests = self.lock();
            requests.made.drains += 1;
            (requests.targets(), std::mem::take(&mut requests.guards))
        };
        // The runs first: to one whose guarded input ended before that, it would seem to have no more.
        targets.iter().for_each(|target| target.drain());
        drop(guards);
    }

    /// Whether [`cancel`](CancelToken::cancel) was ever called. It stays true, also when the request
    /// is spent.
    pub fn is_cancelled(&self) -> bool {
        self.lock().made.cancels > 0
    }

    /// A channel of the crate `crossbeam-channel` as an iterator that also ends when this token is
    /// used, and when the run or stream that pulls it wants no more, since it failed or was stopped.
    ///
    /// A run can only end when the caller's iterator returns. One that blocks on a channel for ever
    /// would hold it for ever; this one does not.
    ///
    /// ```
    /// use gangline::{CancelToken, OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let token = CancelToken::new();
    /// let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)))
    ///     .devices(2)
    ///     .cancel_token(token.clone())
    ///     .build()?;
    /// let (sender, receiver) = crossbeam_channel::unbounded();
    /// sender.send(3)?;
    /// let input = token.guard(receiver);
    /// token.drain();
    /// // The sender is still alive, so without the guard this would wait for ever.
    /// assert!(runner.run(input)?.len() <= 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard<T>(&self, receiver: Receiver<T>) -> Guard<T> {
        let (alarm, ended) = bounded(0);
        let mut requests = self.lock();
        let id = requests.issue_id();
        if requests.made == requests.spent {
            requests.guards.push((id, alarm));
        }
        drop(requests);
        Guard { items: receiver, ended, id, token: self.clone() }
    }

    /// What a new runner has seen of this token: everything that some runner has already spent.
    pub(crate) fn seen(&self) -> Seen {
        self.lock().spent
    }

    /// Whether there were cancels that `seen` lacks.
    pub(crate) fn is_cancelled_since(&self, seen: Seen) -> bool {
        self.lock().made.cancels > seen.cancels
    }

    /// Tells `target` of every request made from now on until the returned value is dropped, and at
    /// once of those that `seen` lacks.
    pub(crate) fn watch(&self, seen: Seen, target: &Arc<impl Interrupt + 'static>) -> Watch {
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
        Watch { id, token: self.clone() }
    }

    /// As [`watch`](CancelToken::watch), without the requests made before.
    pub(crate) fn watch_from_now(&self, target: &Arc<impl Interrupt + 'static>) -> Watch {
        let weak = Arc::downgrade(target);
        let mut requests = self.lock();
        let id = requests.issue_id();
        requests.in_progress.push((id, weak));
        drop(requests);
        Watch { id, token: self.clone() }
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

/// Keeps something that can be interrupted known to its token.
pub(crate) struct Watch {
    id: u64,
    token: CancelToken,
}

impl Watch {
    /// Ends the watch, and spends every request made so far.
    pub(crate) fn spend(self) -> Seen {
        let mut requests = self.token.lock();
        requests.spent = requests.made;
        requests.made
    }

    /// Ends the watch, and spends the cancels made so far; a `finish` waits for the next run.
    pub(crate) fn spend_cancels(self, seen: Seen) -> Seen {
        let mut requests = self.token.lock();
        requests.spent.cancels = requests.made.cancels;
        Seen { cancels: requests.made.cancels, ..seen }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut requests = self.token.lock();
        if let Some(i) = requests.in_progress.iter().position(|(id, _)| *id == self.id) {
            let target = requests.in_progress.swap_remove(i);
            // Dropped after the lock is released: it may be the last that holds the run's items.
            drop(requests);
            drop(target);
        }
    }
}

thread_local! {
    /// The runs that this thread is pulling input for, the outermost first: each receiver is
    /// disconnected when its run wants no more.
    static PULLING: RefCell<Vec<Receiver<()>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, guards pulled on this thread end with the run that it was made for. A chain of
/// streams has several, one in the other, and any of them ends a guard at its source.
pub(crate) struct Pulling {
    /// It has to go on the thread that it came from.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Pulling {
    pub(crate) fn new(halted: &Receiver<()>) -> Self {
        PULLING.with_borrow_mut(|pulling| pulling.push(halted.clone()));
        Pulling { not_send: std::marker::PhantomData }
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        PULLING.with_borrow_mut(Vec::pop);
    }
}

/// A channel as an iterator that also ends when a [`CancelToken`] is used, or when the run that pulls
/// it wants no more; see [`CancelToken::guard`]. What is still in the channel then stays there.
pub struct Guard<T> {
    items: Receiver<T>,
    ended: Receiver<()>,
    id: u64,
    token: CancelToken,
}

impl<T> Iterator for Guard<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if let Err(TryRecvError::Disconnected) = self.ended.try_recv() {
            return None;
        }
        let halts = PULLING.with_borrow(Vec::clone);
        let mut select = Select::new_biased();
        select.recv(&self.ended);
        halts.iter().for_each(|halted| {
            select.recv(halted);
        });
        let items = select.recv(&self.items);
        let ready = select.select();
        match ready.index() {
            0 => ready.recv(&self.ended).ok().and(None),
            i if i == items => ready.recv(&self.items).ok(),
            i => ready.recv(&halts[i - 1]).ok().and(None),
        }
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        self.token.lock().guards.retain(|(id, _)| *id != self.id);
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("token", &self.token).finish_non_exhaustive()
    }
}
