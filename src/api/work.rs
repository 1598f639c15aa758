//! The producers' half of a runner. Its outputs are collected.

use std::fmt;

use crate::error::Result;
use crate::runner::{ConsumerContext, ProducerContext, Runner, forward_hooks, one_by_one};

/// The producers' half of a [`Runner`].
///
/// [`collect`](Work::collect) adds the other half: a consumer that collects the outputs into a `Vec`.
///
/// Use it for a type of your own, where [`map`](crate::map()) of two closures is too small. Its hooks are
/// those of `Runner` with the same names. To do something else with the outputs, implement `Runner` instead:
/// the hooks stay as they are.
///
/// ```
/// use gangline::{OrderedRunner, ProducerContext, Result, Work};
///
/// struct Scale {
///     factor: f64,
/// }
///
/// impl Work for Scale {
///     type Input = f64;
///     type Output = f64;
///     type ProducerState = f64;
///
///     fn producer_init(&self, _: &ProducerContext<'_>) -> Result<f64> {
///         Ok(self.factor) // on each device, once: load the model
///     }
///     fn producer_work(&self, _: &ProducerContext<'_>, factor: &mut f64, x: f64) -> Result<f64> {
///         Ok(x * *factor)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let mut runner = OrderedRunner::new(Scale { factor: 0.5 }.collect(), 2)?;
/// assert_eq!(runner.run([1.0, 2.0, 3.0])?, [0.5, 1.0, 1.5]);
/// # Ok(())
/// # }
/// ```
pub trait Work: Send + Sync {
    /// One item, as the caller's iterator yields it: see [`Runner::Input`].
    type Input: Send;
    /// What a producer makes of one item: see [`Runner::Output`].
    type Output: Send;
    /// What a producer keeps, such as a loaded model: see [`Runner::ProducerState`].
    type ProducerState;

    /// Makes the state of one producer: see [`Runner::producer_init`].
    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Self::ProducerState>;

    /// Makes one output of one input: see [`Runner::producer_work`].
    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        input: Self::Input,
    ) -> Result<Self::Output>;

    /// Makes the outputs of several inputs at once: see [`Runner::producer_work_batch`]. The default calls
    /// [`producer_work`](Work::producer_work) for each.
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner, ProducerContext, Result, Work};
    ///
    /// struct Double;
    ///
    /// impl Work for Double {
    ///     type Input = f32;
    ///     type Output = f32;
    ///     type ProducerState = ();
    ///
    ///     fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
    ///         Ok(())
    ///     }
    ///     fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: f32) -> Result<f32> {
    ///         Ok(2.0 * x)
    ///     }
    ///     fn producer_work_batch(
    ///         &self,
    ///         _: &ProducerContext<'_>,
    ///         (): &mut (),
    ///         inputs: &mut Vec<f32>,
    ///     ) -> Result<Vec<Result<f32>>> {
    ///         // One call of the device for all. An input that fails alone is an `Err` in its place.
    ///         let outputs: Vec<f32> = inputs.iter().map(|x| 2.0 * x).collect();
    ///         Ok(outputs.into_iter().map(Ok).collect())
    ///     }
    /// }
    ///
    /// let builder = OrderedRunner::builder(Double.collect()).devices(2).batch(Batch::up_to(8));
    /// assert_eq!(builder.build()?.run([1.0, 2.0, 3.0])?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        inputs: &mut Vec<Self::Input>,
    ) -> Result<Vec<Result<Self::Output>>> {
        Ok(one_by_one(cx, inputs, |cx, input| self.producer_work(cx, state, input)))
    }

    /// Ends one producer: see [`Runner::producer_end`]. The default drops the state.
    fn producer_end(&self, cx: &ProducerContext<'_>, state: Self::ProducerState) -> Result<()> {
        let _ = cx;
        drop(state);
        Ok(())
    }

    /// Makes a runner that collects the outputs. The summary of a run is a `Vec` of them, in the order of the run.
    fn collect(self) -> Collect<Self>
    where
        Self: Sized,
    {
        Collect { work: self }
    }
}

/// The runner of [`Work::collect`].
pub struct Collect<W> {
    work: W,
}

impl<W: Work> Runner for Collect<W> {
    type Input = W::Input;
    type Output = W::Output;
    type ProducerState = W::ProducerState;
    type ConsumerState = Vec<W::Output>;
    type Summary = Vec<W::Output>;

    forward_hooks!(
        self, self.work => producer_init, producer_work, producer_work_batch, producer_end
    );

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<W::Output>> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        all: &mut Vec<W::Output>,
        output: W::Output,
    ) -> Result<()> {
        all.push(output);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<W::Output>) -> Result<Vec<W::Output>> {
        Ok(all)
    }
}

impl<W> fmt::Debug for Collect<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collect").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Batch, OrderedRunner};

    /// Counts what is called.
    #[derive(Default)]
    struct Counted {
        batched: Arc<AtomicU64>,
        ended: Arc<AtomicU64>,
    }

    impl Work for Counted {
        type Input = u64;
        type Output = u64;
        type ProducerState = ();

        fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
            Ok(())
        }

        fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
            Ok(x * x)
        }

        fn producer_work_batch(
            &self,
            _: &ProducerContext<'_>,
            (): &mut (),
            inputs: &mut Vec<u64>,
        ) -> Result<Vec<Result<u64>>> {
            self.batched.fetch_add(inputs.len() as u64, Ordering::Relaxed);
            Ok(inputs.drain(..).map(|x| Ok(x * x)).collect())
        }

        fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> Result<()> {
            self.ended.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn all_hooks_of_the_producers_are_called() {
        let work = Counted::default();
        let (batched, ended) = (work.batched.clone(), work.ended.clone());
        let builder = OrderedRunner::builder(work.collect()).devices(3).batch(Batch::up_to(4));
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(0..10).unwrap(), (0..10).map(|x| x * x).collect::<Vec<_>>());
        pool.close().unwrap();
        assert_eq!(batched.load(Ordering::Relaxed), 10);
        assert_eq!(ended.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_batch_without_a_hook_of_its_own_is_worked_on_one_by_one() {
        struct Halves;
        impl Work for Halves {
            type Input = u64;
            type Output = u64;
            type ProducerState = ();

            fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
                Ok(())
            }

            fn producer_work(&self, cx: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
                assert_eq!(cx.items(), [x]);
                Ok(x / 2)
            }
        }
        let builder = OrderedRunner::builder(Halves.collect()).devices(2).batch(Batch::up_to(3));
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(0..5).unwrap(), [0, 0, 1, 1, 2]);
    }
}
