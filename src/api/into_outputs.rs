//! The outputs of a pool as an iterator that owns the pool.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use crate::api::pool::Pool;
use crate::engine::own_feeder::FedOutputs;
use crate::error::Error;
use crate::observe::account::Account;
use crate::observe::report::RunReport;
use crate::runner::Runner;

/// The outputs of a pool as an iterator that owns the pool, in the pool's order, without its consumer hooks.
///
/// Made by [`into_outputs`](Pool::into_outputs) and [`try_into_outputs`](Pool::try_into_outputs). A thread of
/// its own pulls the input, from the start and as far as the window allows. So the producers are busy while
/// the caller works, and a source that pauses delays no result that is ready.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the iterator
/// cancels what is in progress, waits for the hooks that are running, and closes the pool. If the source
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
#[must_use = "dropping it ends the run and closes the pool"]
pub struct IntoOutputs<R: Runner + 'static, O> {
    /// `None` only while the pool is taken out.
    outputs: Option<FedOutputs<R>>,
    order: PhantomData<fn() -> O>,
}

impl<R: Runner + 'static, O> IntoOutputs<R, O> {
    pub(crate) fn new(outputs: FedOutputs<R>) -> Self {
        IntoOutputs { outputs: Some(outputs), order: PhantomData }
    }

    /// Counts the items by outcome. Items in flight are not counted yet; those that the end of the run left
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
        self.fed().engine().account()
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
        self.fed().engine().report()
    }

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
    pub fn into_pool(mut self) -> Pool<R, O> {
        let outputs = self.outputs.take().expect(HELD);
        Pool::new_with(outputs.into_engine())
    }

    fn fed(&self) -> &FedOutputs<R> {
        self.outputs.as_ref().expect(HELD)
    }
}

const HELD: &str = "it is taken out only by a method that consumes this value";

impl<R: Runner + 'static, O> Iterator for IntoOutputs<R, O> {
    type Item = Result<R::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.outputs.as_mut().expect(HELD).next()
    }

    /// At most what the input had at the start, less what was yielded. A cancel after the last output yields
    /// one error more.
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.fed().size_hint()
    }
}

impl<R: Runner + 'static, O> FusedIterator for IntoOutputs<R, O> {}

impl<R: Runner + 'static, O> Drop for IntoOutputs<R, O> {
    fn drop(&mut self) {
        // The engine logs an error of its end.
        self.outputs.iter_mut().for_each(|outputs| outputs.end(None));
    }
}

impl<R: Runner + 'static, O> fmt::Debug for IntoOutputs<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoOutputs").field("account", &self.account()).finish_non_exhaustive()
    }
}
