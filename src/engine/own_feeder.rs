//! The thread that feeds a run while its caller does something else.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::feed::{Next, Source};
use super::link::FeedCounts;
use crate::base::panic::drop_quietly;
use crate::concurrency::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::concurrency::spawn::spawn;
use crate::error::Error;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;

const NAME: &str = "gangline-f";

/// The thread that feeds a run, as seen by the thread that takes the outputs.
pub(super) struct OwnFeeder {
    thread: JoinHandle<FeedCounts>,
    gate: Arc<PullGate>,
    /// The numbers of items, as far as the source knew them at the start.
    unread: Option<u64>,
    most: Option<usize>,
}

/// A source that another thread pulls.
pub(crate) struct GatedSource<I, T> {
    source: Source<GatedItems<I>, T>,
    next: Next<GatedItems<I>, T>,
    gate: Arc<PullGate>,
}

/// Says whether the caller's iterator is being pulled.
#[derive(Debug, Default)]
struct PullGate {
    state: AtomicU8,
    /// The number of items that the iterator has returned.
    pulled: AtomicU64,
}

/// The iterator is not being pulled.
const OUTSIDE: u8 = 0;
/// The feeder is in the iterator's `next`.
const INSIDE: u8 = 1;
/// The iterator is not pulled again.
const CLOSED: u8 = 2;

/// The caller's iterator behind a gate, which can be closed while the feeder is inside.
pub(crate) struct GatedItems<I> {
    iter: I,
    gate: Arc<PullGate>,
}

/// Opens the gate again when dropped, also if the iterator panics.
struct Inside<'a>(&'a PullGate);

impl PullGate {
    fn enter(&self) -> Option<Inside<'_>> {
        let entered =
            self.state.compare_exchange(OUTSIDE, INSIDE, Ordering::AcqRel, Ordering::Acquire);
        entered.is_ok().then_some(Inside(self))
    }

    fn pulled(&self) -> u64 {
        self.pulled.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Closes the gate. Returns whether the feeder is inside, where it may stay for ever.
    fn close(&self) -> bool {
        self.state.swap(CLOSED, Ordering::AcqRel) == INSIDE
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        // If this fails, the gate was closed meanwhile.
        let _ = state.compare_exchange(INSIDE, OUTSIDE, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl<I: Iterator> Iterator for GatedItems<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let inside = self.gate.enter()?;
        let item = self.iter.next();
        drop(inside);
        if self.gate.is_closed() {
            drop_quietly(item);
            return None;
        }
        self.gate.pulled.fetch_add(u64::from(item.is_some()), Ordering::Relaxed);
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.iter.size_hint()
    }
}

impl<I: Iterator, T> GatedSource<I, T> {
    /// Creates a source from `items`; `next` pulls and converts one item.
    pub(crate) fn new<J>(items: J, next: Next<GatedItems<I>, T>) -> Self
    where
        J: IntoIterator<IntoIter = I, Item = I::Item>,
    {
        let gate = Arc::new(PullGate::default());
        let source = Source::new(Gating { items, gate: gate.clone() }, next);
        GatedSource { source, next, gate }
    }

    pub(super) fn unread(&self) -> Option<u64> {
        self.source.unread()
    }
}

impl OwnFeeder {
    /// Starts to feed `run`. The producers are then busy while the caller works.
    pub(super) fn start<I, T, U>(
        run: Arc<Run<T, U>>,
        gated: GatedSource<I, T>,
    ) -> Result<Self, Error>
    where
        I: Send + 'static,
        T: Send + 'static,
        U: Send + 'static,
    {
        let GatedSource { mut source, next, gate } = gated;
        let (unread, most) = (source.unread(), source.most_left());
        let thread = spawn(NAME.to_owned(), None, move || {
            // The caller would wait for its items.
            let bug = AbortGuard::new(&run);
            let span = run.spans.enter();
            source.feed(&run, next);
            drop(span);
            bug.disarm();
            FeedCounts { items: source.pulled(), unread: source.unread(), passed_on: None }
        })?;
        Ok(OwnFeeder { thread, gate, unread, most })
    }

    /// The number of items left, if the source knew it at the start.
    pub(super) fn unread(&self) -> Option<u64> {
        self.unread.map(|all| all.saturating_sub(self.gate.pulled()))
    }

    /// The largest number of items that the source had at the start, if it knew one.
    pub(super) fn most(&self) -> Option<usize> {
        self.most
    }

    /// The input so far, as the first stage counts it.
    fn given(&self) -> FeedCounts {
        FeedCounts { items: self.gate.pulled(), unread: self.unread(), passed_on: None }
    }

    /// Leaves the thread after the run was aborted. Waits for it, unless it is inside the caller's iterator, which may
    /// block for ever.
    pub(super) fn leave(self) -> FeedCounts {
        // The caller's iterator may drop this value, on that thread.
        let is_own = self.thread.thread().id() == thread::current().id();
        if self.gate.close() || is_own {
            return self.given();
        }
        let given = self.given();
        match self.thread.join() {
            Ok(given) => given,
            Err(payload) if !thread::panicking() => std::panic::resume_unwind(payload),
            Err(_) => given,
        }
    }
}

/// Something that becomes an iterator behind a gate.
struct Gating<J> {
    items: J,
    gate: Arc<PullGate>,
}

impl<J: IntoIterator> IntoIterator for Gating<J> {
    type Item = J::Item;
    type IntoIter = GatedItems<J::IntoIter>;

    fn into_iter(self) -> Self::IntoIter {
        GatedItems { iter: self.items.into_iter(), gate: self.gate }
    }
}
