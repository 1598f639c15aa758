//! Runners made of closures that work on batches.

use std::fmt;
use std::marker::PhantomData;

use super::map::Fold;
use super::sink::{Format, Sink, ToSink};
use super::task_results::TaskResults;
use crate::error::{OutputCount, Result};
use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// Makes a runner of two closures: `init` makes a producer's state, `work` makes the outputs of a batch of
/// inputs. The outputs are collected: the summary of a run is a `Vec` of them.
///
/// It is [`map`](crate::map()) for work that is faster on many items at once. The builder's
/// [`batch`](crate::Builder::batch) says how many items a call gets; without it, a call gets 1.
///
/// `work` returns one element for each input, in their order. An `Err` among them fails that item alone. If
/// `work` itself returns an `Err` or panics, the batch is divided to find the item that caused it, as
/// [`producer_work_batch`](Runner::producer_work_batch) describes. That needs all inputs, so read them in
/// place (`inputs.iter()`) if the work can fail. Take them out (`inputs.drain(..)`) if it cannot.
///
/// ```
/// use gangline::{Batch, OrderedRunner, map_batches};
///
/// # fn main() -> gangline::Result<()> {
/// let scaled = map_batches(
///     |_| Ok(0.5),
///     |cx, scale: &mut f64, inputs: &mut Vec<f64>| {
///         assert!(inputs.len() <= 4 && inputs.len() == cx.items().len());
///         Ok(inputs.drain(..).map(|x| Ok(x * *scale)).collect())
///     },
/// );
/// let mut runner = OrderedRunner::builder(scaled).devices(2).batch(Batch::up_to(4)).build()?;
/// assert_eq!(runner.run([2.0, 4.0, 6.0])?, [1.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub fn map_batches<S, I, O, Init, Work>(init: Init, work: Work) -> MapBatches<Init, Work, S, I, O>
where
    I: Send,
    O: Send,
    Init: Fn(&ProducerContext<'_>) -> Result<S> + Send + Sync,
    Work: Fn(&ProducerContext<'_>, &mut S, &mut Vec<I>) -> Result<Vec<Result<O>>> + Send + Sync,
{
    MapBatches { init, work, types: PhantomData }
}

/// The runner of [`map_batches`].
pub struct MapBatches<Init, Work, S, I, O> {
    init: Init,
    work: Work,
    /// A function pointer, since no value of these types is held: it is `Send` and `Sync` also if they are
    /// not.
    types: PhantomData<fn(S, I) -> O>,
}

impl<Init, Work, S, I, O> MapBatches<Init, Work, S, I, O> {
    /// Replaces the consumer: `init` makes a state, and `f` takes each output into it, as
    /// [`Map::fold`](crate::closures::Map::fold) does.
    ///
    /// ```
    /// use gangline::{Batch, UnorderedRunner, map_batches};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let squares = map_batches(
    ///     |_| Ok(()),
    ///     |_, (), xs: &mut Vec<u64>| Ok(xs.iter().map(|x| Ok(x * x)).collect()),
    /// );
    /// let sum = squares.fold(
    ///     |_| Ok(0),
    ///     |_, sum, y| {
    ///         *sum += y;
    ///         Ok(())
    ///     },
    /// );
    /// let mut pool = UnorderedRunner::builder(sum).devices(3).batch(Batch::of(8)).build()?;
    /// assert_eq!(pool.run(0..100)?, 328_350);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fold<T, FoldInit, F>(self, init: FoldInit, f: F) -> Fold<Self, FoldInit, F, T>
    where
        FoldInit: Fn(&ConsumerContext<'_>) -> Result<T> + Send + Sync,
        F: Fn(&ConsumerContext<'_>, &mut T, O) -> Result<()> + Send + Sync,
    {
        Fold::new(self, init, f)
    }

    /// Collects a result for each item, in input order: its output, or its failure, as
    /// [`Map::results`](crate::closures::Map::results) does.
    ///
    /// ```
    /// use gangline::{Batch, OnError, OrderedRunner, map_batches};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let parse = map_batches(
    ///     |_| Ok(()),
    ///     |_, (), texts: &mut Vec<&str>| {
    ///         Ok(texts.iter().map(|text| Ok(text.parse::<i32>()?)).collect())
    ///     },
    /// );
    /// let mut pool = OrderedRunner::builder(parse.results())
    ///     .devices(2)
    ///     .batch(Batch::up_to(4))
    ///     .on_error(OnError::Skip)
    ///     .build()?;
    /// let results = pool.run(["1", "two", "3"])?;
    /// assert_eq!(results[0].result, Ok(1));
    /// assert!(results[1].result.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn results(self) -> TaskResults<Self> {
        TaskResults::new(self)
    }

    /// Writes the outputs to a file, whole and exactly once, instead of collecting them: see
    /// [`sink`](crate::sink).
    ///
    /// The summary of a run is [`Written`](crate::sink::Written).
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner, map_batches, sink};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("gangline-map-batches-{}", std::process::id()));
    /// let squares = map_batches(
    ///     |_| Ok(()),
    ///     |_, (), xs: &mut Vec<u64>| Ok(xs.iter().map(|x| Ok(x * x)).collect()),
    /// );
    /// let builder = OrderedRunner::builder(squares.sink(sink::lines(&path))).devices(2);
    /// let mut pool = builder.batch(Batch::up_to(8)).build()?;
    /// assert_eq!(pool.run(0..3)?.outputs, 3);
    /// assert_eq!(std::fs::read_to_string(&path)?, "0\n1\n4\n");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sink<F: Format<O>>(self, sink: Sink<F>) -> ToSink<Self, F> {
        ToSink::new(self, sink)
    }
}

impl<Init, Work, S, I, O> Runner for MapBatches<Init, Work, S, I, O>
where
    Init: Fn(&ProducerContext<'_>) -> Result<S> + Send + Sync,
    Work: Fn(&ProducerContext<'_>, &mut S, &mut Vec<I>) -> Result<Vec<Result<O>>> + Send + Sync,
    I: Send,
    O: Send,
{
    type Input = I;
    type Output = O;
    type ProducerState = S;
    type ConsumerState = Vec<O>;
    type Summary = Vec<O>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<S> {
        (self.init)(cx)
    }

    fn producer_work(&self, cx: &ProducerContext<'_>, state: &mut S, input: I) -> Result<O> {
        let mut outputs = (self.work)(cx, state, &mut vec![input])?;
        match outputs.len() {
            1 => outputs.remove(0),
            outputs => Err(OutputCount { inputs: 1, outputs }.into()),
        }
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut S,
        inputs: &mut Vec<I>,
    ) -> Result<Vec<Result<O>>> {
        (self.work)(cx, state, inputs)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<O>> {
        Ok(Vec::new())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<O>, output: O) -> Result<()> {
        all.push(output);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<O>) -> Result<Vec<O>> {
        Ok(all)
    }
}

impl<Init, Work, S, I, O> fmt::Debug for MapBatches<Init, Work, S, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapBatches").finish_non_exhaustive()
    }
}
