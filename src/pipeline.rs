//! Runners in a row, each fed by the one before.

use std::fmt;

use crate::engine::line::Line;
use crate::engine::source::Source;
use crate::error::{BoxError, Error};
use crate::pool::{Pool, fallible, sound};
use crate::runner::Runner;

/// Runners in a row, each fed by the one before: from the inputs of `R` to the summary of `S`.
///
/// Made by [`Pool::then`]; [`then`](Pipeline::then) adds another stage. The caller feeds the first
/// stage. Each stage works on producers of its own, with its own window, order, and batches, and all
/// stages work at the same time. Of the consumer's hooks those of the *last* stage are called, and
/// their summary is what the run returns; the outputs of the others go to the next stage instead.
///
/// ```
/// use gangline::{OrderedRunner, UnorderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let decode = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<u64>()?));
/// let square = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// let sum = map(|_| Ok(()), |_, _, x: u64| Ok(x + 1))
///     .fold(|_| Ok(0), |_, sum, y| { *sum += y; Ok(()) });
///
/// let mut decode = OrderedRunner::new(decode, 2)?;
/// let mut square = OrderedRunner::new(square, 3)?;
/// assert_eq!(decode.then(&mut square).run(["1", "2", "3"])?, [1, 4, 9]);
///
/// let mut sum = UnorderedRunner::new(sum, 1)?;
/// assert_eq!(decode.then(&mut square).then(&mut sum).run(["1", "2", "3"])?, 17);
/// # Ok(())
/// # }
/// ```
///
/// # Order, windows
///
/// Ordered stages keep the order of the input from end to end, and the index of an item is the same
/// in all of them: its place in the input. An unordered stage hands its results on as they are
/// finished; the next counts what it gets from 0, so from there on indices are not those of the input.
///
/// Each stage keeps its own window, so what is out is bounded by all of them together, whichever is
/// slow. A stage takes a result of the one before only when its window has room.
///
/// # Errors
///
/// A failure of an item goes on through the later stages in the item's place, so in input order
/// everything before it is consumed, and of several failures the first in order is the run's error.
/// From that moment no input is pulled. The error is the one of the stage where it happened, and in that
/// stage's [`account`](Pool::account) the item has `failed`; in all others it has not.
///
/// Each stage has its own [policy](crate::Builder::on_error). An item that one leaves out leaves a gap in
/// those that follow, and the last consumer is told by
/// [`consumer_skipped`](Runner::consumer_skipped). The last handle's [`failures`](Pool::failures) has
/// the errors of all stages.
///
/// # Ending early
///
/// A [`cancel`](crate::CancelToken::cancel) of any stage's token ends all of them. After a
/// [`finish`](crate::CancelToken::drain) of any the first stage takes no more input, and what it was
/// given flows through to the end. When the last consumer [stops](crate::ConsumerContext::stop) the
/// run, what the stages before it have in hand is dropped too.
///
/// # Accounts
///
/// Each handle has the [`account`](Pool::account) of its own stage. There `ok` are the items whose
/// results were handed on to the next stage. `unread` of the stages after the first is 0 when
/// everything came through, and otherwise not known.
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'h, R: Runner, S: Runner> {
    line: Line<'h, R, S>,
}

impl<R: Runner + 'static, O> Pool<R, O> {
    /// Makes this runner the first stage of a [`Pipeline`], and `next` the second, whose inputs are
    /// this one's outputs.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let mut lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, s: String| Ok(s.len())), 2)?;
    /// let mut squares = OrderedRunner::new(map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 2)?;
    /// let lines = ["one", "three"].map(String::from);
    /// assert_eq!(lengths.then(&mut squares).run(lines)?, [9, 25]);
    /// assert_eq!((lengths.account().ok, squares.account().ok), (2, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn then<'h, S, P>(&'h mut self, next: &'h mut Pool<S, P>) -> Pipeline<'h, R, S>
    where
        S: Runner<Input = R::Output> + 'static,
    {
        Pipeline { line: Line::new(self.engine_mut(), next.engine_mut()) }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Pipeline<'h, R, S> {
    /// Adds `next` as the last stage, whose inputs are the outputs of the one that was the last so far.
    pub fn then<T, P>(self, next: &'h mut Pool<T, P>) -> Pipeline<'h, R, T>
    where
        T: Runner<Input = S::Output> + 'static,
    {
        Pipeline { line: self.line.then(next.engine_mut()) }
    }

    /// Runs all of `items` through all stages, and returns the summary of the last.
    ///
    /// As [`Pool::run`]: the calling thread pulls the iterator, lazily and no further ahead than the
    /// window of the first stage, and not before `consumer_init` of the last stage returned.
    ///
    /// # Errors
    ///
    /// When a hook of any stage fails or panics, when the iterator panics, when the run is cancelled
    /// by the token of any stage, or when any of the runners is closed. All runners stay usable.
    pub fn run(&mut self, items: impl IntoIterator<Item = R::Input>) -> Result<S::Summary, Error> {
        self.line.run(Source::new(items, sound), sound)
    }

    /// As [`run`](Pipeline::run), for an input that can fail: an `Err` of the iterator takes an item's
    /// place.
    ///
    /// # Errors
    ///
    /// As [`run`](Pipeline::run); in addition an `Err` of the iterator ends the run with an error for
    /// which [`is_input`](Error::is_input) is true, and which has the item's index and the cause.
    pub fn try_run<E: Into<BoxError>>(
        &mut self,
        items: impl IntoIterator<Item = Result<R::Input, E>>,
    ) -> Result<S::Summary, Error> {
        self.line.run(Source::new(items, fallible), fallible)
    }
}

impl<R: Runner, S: Runner> fmt::Debug for Pipeline<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("stages", &self.line.stages()).finish_non_exhaustive()
    }
}
