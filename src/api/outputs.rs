//! The outputs of a pool or a pipeline as an iterator.

use std::fmt;
use std::iter::FusedIterator;

use super::exclusive::Exclusive;
use super::stage::{LineOf, TypesOf};
use crate::engine::feed::Source;
use crate::engine::outputs::LineOutputs;
use crate::error::Error;
use crate::runner::Runner;

/// The outputs of a pool or a pipeline as an iterator, in the order of the last stage, without consumer hooks.
///
/// Made by [`Pool::outputs`](crate::Pool::outputs), [`Pipeline::outputs`](crate::Pipeline::outputs) and their `try_`
/// forms. `R` is the runner of the first stage, and `S` that of the last; those of a pool are the same.
///
/// The thread that calls [`next`](Iterator::next) also pulls the input. Nothing is pulled before the first `next`. Each
/// later one pulls an item in place of the last result, even if another result is ready, so that the producers work
/// while the caller does. If a pool's window holds eight items or more, it does so for a quarter of the window at once,
/// at most 32 items. If none is ready, it pulls as much as the first window has room for, and waits. A result is
/// in flight in the last stage until the next is asked for.
///
/// While the input blocks, `next` blocks with it, even if a result is ready. For a source that pauses use
/// [`run`](crate::Pool::run), or [`into_outputs`](crate::Pool::into_outputs), which pulls on a thread of its
/// own; to feed one runner from another, [`then`](crate::Pool::then).
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the iterator
/// cancels what is in progress and waits for the hooks that are running. If it is forgotten
/// ([`mem::forget`](std::mem::forget)), the next use of a pool does that; only the outputs that the iterator has
/// received are leaked with it, and the [account](crate::Pool::account) counts nothing of that run.
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
pub struct Outputs<'a, R: Runner + 'static, I, S: Runner + 'static = R> {
    line: &'a mut LineOf<'a, R, S>,
    outputs: Exclusive<LineOutputs<I, TypesOf<R>, TypesOf<S>>>,
}

impl<'a, R: Runner + 'static, I, S: Runner + 'static> Outputs<'a, R, I, S> {
    pub(super) fn new(line: &'a mut LineOf<'a, R, S>, source: Source<I, R::Input>) -> Self {
        let outputs = Exclusive::new(LineOutputs::begin(line, source));
        Outputs { line, outputs }
    }
}

impl<R: Runner + 'static, I, S: Runner + 'static> Iterator for Outputs<'_, R, I, S> {
    type Item = Result<S::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.outputs.get_mut().next(self.line)
    }

    /// At most what the input still has, and what is in flight. How much comes is not known before the end,
    /// since an error can be the last item. An error of the whole run, such as a cancel or one failure too many, may
    /// come after the last output, as one item more.
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.outputs.look().size_hint()
    }
}

impl<R: Runner + 'static, I, S: Runner + 'static> FusedIterator for Outputs<'_, R, I, S> {}

impl<R: Runner + 'static, I, S: Runner + 'static> Drop for Outputs<'_, R, I, S> {
    fn drop(&mut self) {
        self.outputs.get_mut().end(self.line);
    }
}

impl<R: Runner + 'static, I, S: Runner + 'static> fmt::Debug for Outputs<'_, R, I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.outputs.look().account(self.line);
        f.debug_struct("Outputs").field("account", &account).finish_non_exhaustive()
    }
}
