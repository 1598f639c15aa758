//! Outputs that a thread of its own feeds.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::feed::{Next, Source};
use super::outputs;
use super::session::Engine;
use super::streaming::{Fed, FedBy, Yield, last_error};
use crate::backend::threads::run::Run;
use crate::base::panic::drop_quietly;
use crate::concurrency::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::concurrency::spawn::spawn;
use crate::error::Error;
use crate::runner::Runner;

const NAME: &str = "gangline-f";

/// An engine that yields outputs, and the thread that feeds it.
///
/// The thread starts at once, so the producers are busy while the caller works.
pub(crate) struct FedOutputs<R: Runner> {
    engine: Engine<R>,
    /// `None` once the thread has been left.
    feeding: Option<Feeding>,
    /// The error that it could not begin with, until it is yielded.
    refused: Option<Error>,
    /// The most results that are still to come, as far as the source knew at the start.
    most_left: Option<usize>,
}

/// A feeder's thread, as seen by the thread that waits for it.
struct Feeding {
    thread: JoinHandle<Fed>,
    gate: Arc<Gate>,
}

/// Says whether the caller's iterator is being pulled.
#[derive(Debug, Default)]
struct Gate {
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
pub(crate) struct Gated<I> {
    iter: I,
    gate: Arc<Gate>,
}

/// Opens the gate again when dropped, also if the iterator panics.
struct Inside<'a>(&'a Gate);

impl Gate {
    fn enter(&self) -> Option<Inside<'_>> {
        let entered =
            self.state.compare_exchange(OUTSIDE, INSIDE, Ordering::AcqRel, Ordering::Acquire);
        entered.is_ok().then_some(Inside(self))
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

impl<I: Iterator> Iterator for Gated<I> {
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

impl<R: Runner + 'static> FedOutputs<R> {
    /// Starts to feed `items` to `engine`. `next` pulls and converts one of them.
    pub(crate) fn begin<J, T>(
        mut engine: Engine<R>,
        items: J,
        next: Next<Gated<J::IntoIter>, R::Input>,
    ) -> Self
    where
        J: IntoIterator<Item = T>,
        J::IntoIter: Send + 'static,
    {
        let gate = Arc::new(Gate::default());
        let source = Source::new(Gating { items, gate: gate.clone() }, next);
        let most_left = source.most_left();
        let (feeding, refused) = match start(&mut engine, source, next) {
            Ok(thread) => (Some(Feeding { thread, gate }), None),
            Err(error) => (None, Some(error)),
        };
        FedOutputs { engine, feeding, refused, most_left }
    }

    pub(crate) fn next(&mut self) -> Option<Result<R::Output, Error>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let step = outputs::next_fed(&mut self.engine);
        if let error @ Some(_) = last_error(&step) {
            self.end(error);
        } else if step.is_none() {
            self.end(None);
        }
        self.most_left = self.most_left.map(|left| left.saturating_sub(1));
        step.map(Yield::into_result)
    }

    /// Returns the engine, after the end of the run.
    pub(crate) fn into_engine(mut self) -> Engine<R> {
        self.end(None);
        self.engine
    }
}

impl<R: Runner> FedOutputs<R> {
    pub(crate) fn engine(&self) -> &Engine<R> {
        &self.engine
    }

    pub(crate) fn size_hint(&self) -> (usize, Option<usize>) {
        match (&self.refused, self.engine.is_streaming()) {
            (Some(_), _) => (1, Some(1)),
            (None, true) => (0, self.most_left),
            (None, false) => (0, Some(0)),
        }
    }

    /// Ends the run. Waits for the hooks that are running, and for the feeder unless it is inside the caller's
    /// iterator, which may block for ever.
    pub(crate) fn end(&mut self, error: Option<&Error>) {
        if self.engine.is_in_fork() {
            std::mem::forget(self.feeding.take());
            return self.engine.leave_run_to_parent();
        }
        if let Some(in_progress) = &self.engine.in_progress {
            in_progress.abort();
        }
        if let Some(Feeding { thread, gate }) = self.feeding.take() {
            // The caller's iterator may drop this value, on that thread.
            let is_elsewhere = gate.close() || thread.thread().id() == thread::current().id();
            let fed = match (!is_elsewhere).then(|| thread.join()) {
                Some(Ok(fed)) => fed,
                Some(Err(payload)) if !thread::panicking() => std::panic::resume_unwind(payload),
                _ => Fed { pulled: gate.pulled.load(Ordering::Relaxed), unread: None },
            };
            if let Some(streaming) = outputs::in_progress(&mut self.engine) {
                streaming.note_fed(fed);
            }
        }
        self.engine.end_stream_with(error);
    }
}

/// Something that becomes an iterator behind a gate.
struct Gating<J> {
    items: J,
    gate: Arc<Gate>,
}

impl<J: IntoIterator> IntoIterator for Gating<J> {
    type Item = J::Item;
    type IntoIter = Gated<J::IntoIter>;

    fn into_iter(self) -> Self::IntoIter {
        Gated { iter: self.items.into_iter(), gate: self.gate }
    }
}

/// Begins a stream, and starts the thread that feeds it.
fn start<R, I>(
    engine: &mut Engine<R>,
    mut source: Source<I, R::Input>,
    next: Next<I, R::Input>,
) -> Result<JoinHandle<Fed>, Error>
where
    R: Runner + 'static,
    I: Send + 'static,
{
    let run = outputs::start(engine, FedBy::Thread, source.unread())?;
    let feed = move || {
        let bug = AbortOnUnwind(&*run);
        let span = run.spans.enter();
        source.feed(&run, next);
        drop(span);
        std::mem::forget(bug);
        // The iterator is gone; so is the run, for which the caller's thread expects to hold the last reference.
        let fed = Fed { pulled: source.pulled(), unread: source.unread() };
        drop((source, run));
        fed
    };
    spawn(NAME.to_owned(), None, feed).map_err(|error| {
        engine.end_stream();
        error.into()
    })
}

/// Aborts the run if the feeder's thread dies of a bug of ours: the caller would wait for its items.
struct AbortOnUnwind<'a, R: Runner>(&'a Run<R>);

impl<R: Runner> Drop for AbortOnUnwind<'_, R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
