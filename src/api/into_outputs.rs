//! The outputs of a pool or a pipeline as an iterator that owns it.

use std::fmt;
use std::iter::FusedIterator;

use gangline_report::{Account, RunReport};

use super::exclusive::Exclusive;
use super::stage::{LineOf, TypesOf};
use crate::api::pool::Pool;
use crate::engine::outputs::LineOutputs;
use crate::engine::own_feeder::GatedSource;
use crate::error::Error;
use crate::runner::Runner;

/// The outputs of a pool or a pipeline as an iterator that owns it, in the order of the last stage, without consumer
/// hooks.
///
/// Made by [`Pool::into_outputs`], [`Pipeline::into_outputs`](crate::Pipeline::into_outputs) and their `try_` forms. `L` is the pool or pipeline, `R`
/// the runner of the first stage, and `S` that of the last; those of a pool are the same. A thread of
/// its own pulls the input, from the start and as far as the window allows. So the producers are busy while
/// the caller works, and a source that pauses delays no result that is ready.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the iterator
/// cancels what is in progress, waits for the hooks that are running, and closes the pools that it owns. If the source
/// blocks at that time, the drop does not wait for it. The source's thread then ends when the source returns.
///
/// ```
/// use gangline::{OrderedRunner, Result, map};
///
/// fn squares(to: u64) -> Result<impl Iterator<Item = Result<u64, gangline::Error>>> {
///     let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
///     Ok(pool.into_outputs(0..to))
/// }
///
/// # fn main() -> Result<()> {
/// let sum: u64 = squares(5)?.sum::<Result<u64, _>>()?;
/// assert_eq!(sum, 30);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it ends the run and closes the pools"]
pub struct IntoOutputs<L, R: Runner + 'static, S: Runner + 'static = R> {
    /// `None` only while it is taken out.
    owned: Option<L>,
    access: LineAccess<L, R, S>,
    outputs: Exclusive<LineOutputs<(), TypesOf<R>, TypesOf<S>>>,
}

/// How the line of a pool or a pipeline is reached.
pub(super) struct LineAccess<L, R: Runner, S: Runner> {
    pub(super) line: for<'a> fn(&'a L) -> &'a LineOf<'a, R, S>,
    pub(super) line_mut: for<'a> fn(&'a mut L) -> &'a mut LineOf<'a, R, S>,
}

const HELD: &str = "it is taken out only by a method that consumes this value";

impl<L, R: Runner + 'static, S: Runner + 'static> IntoOutputs<L, R, S> {
    pub(super) fn new<J>(
        mut owned: L,
        access: LineAccess<L, R, S>,
        source: GatedSource<J, R::Input>,
    ) -> Self
    where
        J: Iterator + Send + 'static,
    {
        let outputs = LineOutputs::begin_elsewhere((access.line_mut)(&mut owned), source);
        IntoOutputs { owned: Some(owned), access, outputs: Exclusive::new(outputs) }
    }

    /// Counts the items of the input by outcome. Items in flight are not counted yet; those that the end of the run left
    /// undone count as cancelled.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?;
    /// let mut outputs = pool.into_outputs(0..9);
    /// outputs.next().transpose()?;
    /// assert_eq!(outputs.account().ok, 1);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn account(&self) -> Account {
        self.outputs.look().account(self.line())
    }

    /// Returns the [report](Pool::report) of the run, as far as it has come.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?;
    /// let mut outputs = pool.into_outputs(0..9);
    /// assert_eq!(outputs.by_ref().count(), 9);
    /// println!("{}", outputs.report());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn report(&self) -> RunReport {
        self.line().report()
    }

    fn line(&self) -> &LineOf<'_, R, S> {
        (self.access.line)(self.owned.as_ref().expect(HELD))
    }

    /// Ends the run, and returns what the iterator owns.
    pub(super) fn take_out(mut self) -> L {
        self.end();
        self.owned.take().expect(HELD)
    }

    fn end(&mut self) {
        if let Some(owned) = &mut self.owned {
            self.outputs.get_mut().end((self.access.line_mut)(owned));
        }
    }
}

impl<R: Runner + 'static, O> IntoOutputs<Pool<R, O>, R> {
    /// Ends the run, and returns the pool with its producers.
    ///
    /// What is in progress is cancelled. Waits for the hooks that are running, and not for a source that
    /// blocks.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut outputs = pool.into_outputs(1..);
    /// assert_eq!(outputs.nth(2).transpose()?, Some(9));
    /// let mut pool = outputs.into_pool();
    /// assert_eq!(pool.run([5])?, [25]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_pool(self) -> Pool<R, O> {
        self.take_out()
    }
}

impl<L, R: Runner + 'static, S: Runner + 'static> Iterator for IntoOutputs<L, R, S> {
    type Item = Result<S::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = (self.access.line_mut)(self.owned.as_mut().expect(HELD));
        self.outputs.get_mut().next(line)
    }

    /// At most what the input had at the start, less what was yielded. An error of the whole run, such as a cancel or
    /// one failure too many, may come after the last output, as one item more.
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.outputs.look().size_hint()
    }
}

impl<L, R: Runner + 'static, S: Runner + 'static> FusedIterator for IntoOutputs<L, R, S> {}

impl<L, R: Runner + 'static, S: Runner + 'static> Drop for IntoOutputs<L, R, S> {
    fn drop(&mut self) {
        // The engines log the errors of their end.
        self.end();
    }
}

impl<L, R: Runner + 'static, S: Runner + 'static> fmt::Debug for IntoOutputs<L, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoOutputs").field("account", &self.account()).finish_non_exhaustive()
    }
}
