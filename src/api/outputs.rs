//! The outputs of a runner as an iterator.

use std::fmt;
use std::iter::FusedIterator;

use crate::engine::feed::Source;
use crate::engine::outputs;
use crate::engine::session::Engine;
use crate::engine::streaming::FedBy;
use crate::error::Error;
use crate::runner::Runner;

/// The outputs of a runner as an iterator, in the runner's order, without its consumer hooks.
///
/// Made by [`outputs`](crate::Pool::outputs) and [`try_outputs`](crate::Pool::try_outputs). The thread that
/// calls [`next`](Iterator::next) also pulls the input. Nothing is pulled before the first `next`. Each later
/// one pulls an item in place of the last result, even if another result is ready, so that the producers work
/// while the caller does. If none is ready, it pulls as much as the window has room for, and waits.
///
/// While the input blocks, `next` blocks with it, even if a result is ready. For a source that pauses use
/// [`run`](crate::Pool::run), or [`into_outputs`](crate::Pool::into_outputs), which pulls on a thread of its
/// own; to feed one runner from another, [`then`](crate::Pool::then).
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the iterator
/// cancels what is in progress and waits for the hooks that are running.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let mut squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
/// let mut texts = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 2)?;
/// // The outputs of one runner are the input of the next, on producers of its own.
/// assert_eq!(texts.try_run(squares.outputs(0..4))?, ["0", "1", "4", "9"]);
/// # Ok(())
/// # }
/// ```
#[must_use = "outputs pull nothing until the iterator is asked for one"]
pub struct Outputs<'a, R: Runner, I> {
    engine: &'a mut Engine<R>,
    source: Source<I, R::Input>,
    /// The error that it could not begin with, until it is yielded.
    refused: Option<Error>,
    /// The number of results that were yielded.
    yielded: u64,
}

impl<'a, R: Runner + 'static, I> Outputs<'a, R, I> {
    pub(crate) fn new(engine: &'a mut Engine<R>, source: Source<I, R::Input>) -> Self {
        let refused = outputs::start(engine, FedBy::Caller, source.unread()).err();
        Outputs { engine, source, refused, yielded: 0 }
    }
}

impl<R: Runner + 'static, I> Iterator for Outputs<'_, R, I> {
    type Item = Result<R::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = match self.refused.take() {
            Some(error) => Some(Err(error)),
            None => outputs::next(self.engine, &mut self.source),
        };
        self.yielded += u64::from(result.is_some());
        result
    }

    /// At most what the input still has, and what is in flight. How much comes is not known before the end,
    /// since an error can be the last item. A cancel after the last output yields one error more.
    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.refused.is_some() {
            return (1, Some(1));
        }
        if !self.engine.is_streaming() {
            return (0, Some(0));
        }
        let in_flight = self.source.pulled().saturating_sub(self.yielded) as usize;
        (0, self.source.most_left().map(|left| left.saturating_add(in_flight)))
    }
}

impl<R: Runner + 'static, I> FusedIterator for Outputs<'_, R, I> {}

impl<R: Runner, I> Drop for Outputs<'_, R, I> {
    fn drop(&mut self) {
        self.engine.end_stream();
    }
}

impl<R: Runner, I> fmt::Debug for Outputs<'_, R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("account", &self.engine.account()).finish_non_exhaustive()
    }
}
