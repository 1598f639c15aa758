//! Runners made of closures.

use std::fmt;
use std::marker::PhantomData;

use super::sink::{Format, Sink, ToSink};
use super::task_results::TaskResults;
use crate::error::Result;
use crate::runner::{BatchHook, ConsumerContext, ProducerContext, Runner, forward_hooks};

/// Makes a runner of two closures: `init` makes a producer's state, `work` makes an output of an input. The
/// outputs are collected: the summary of a run is a `Vec` of them.
///
/// Without a state, [`each`] needs one closure. For work that is faster on many items at once, as on a GPU, use
/// [`map_batches`](crate::map_batches). A type of your own implements [`Work`](crate::Work), or all of [`Runner`].
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let lengths = map(
///     |cx| Ok(format!("seen on {}: ", cx.device())),
///     |_, prefix: &mut String, word: &str| Ok(format!("{prefix}{word}").len()),
/// );
/// let mut runner = OrderedRunner::new(lengths, 2)?;
/// assert_eq!(runner.run(["one", "three"])?, [16, 18]);
/// # Ok(())
/// # }
/// ```
pub fn map<S, I, O, Init, Work>(init: Init, work: Work) -> Map<Init, Work, S, I, O>
where
    I: Send,
    O: Send,
    Init: Fn(&ProducerContext<'_>) -> Result<S> + Send + Sync,
    Work: Fn(&ProducerContext<'_>, &mut S, I) -> Result<O> + Send + Sync,
{
    Map { init, work, types: PhantomData }
}

/// Makes a runner of one closure, which makes an output of an input and needs no state. The outputs are
/// collected: the summary of a run is a `Vec` of them.
///
/// It is [`map`] without a state and without a context.
///
/// ```
/// use gangline::{OrderedRunner, each};
///
/// # fn main() -> gangline::Result<()> {
/// let mut runner = OrderedRunner::new(each(|text: &str| Ok(text.parse::<i32>()?)), 2)?;
/// assert_eq!(runner.run(["1", "20"])?, [1, 20]);
/// let error = runner.run(["1", "two"]).unwrap_err();
/// assert_eq!(error.item(), Some(1));
/// # Ok(())
/// # }
/// ```
#[expect(clippy::type_complexity, reason = "the closures in it have no names")]
pub fn each<I, O, F>(
    f: F,
) -> Map<
    impl Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync,
    impl Fn(&ProducerContext<'_>, &mut (), I) -> Result<O> + Send + Sync,
    (),
    I,
    O,
>
where
    I: Send,
    O: Send,
    F: Fn(I) -> Result<O> + Send + Sync,
{
    map(|_| Ok(()), move |_, (), input| f(input))
}

/// The runner of [`map`].
pub struct Map<Init, Work, S, I, O> {
    init: Init,
    work: Work,
    /// A function pointer, since no value of these types is held: the runner is `Send` and `Sync` even if they
    /// are not.
    types: PhantomData<fn(S, I) -> O>,
}

/// A [`Map`] of functions instead of closures, which has a name: for a field, or for a recipe of child
/// processes.
///
/// ```
/// use gangline::closures::FnMap;
/// use gangline::{OrderedRunner, ProducerContext, Result, map};
///
/// fn init(_: &ProducerContext<'_>) -> Result<u64> {
///     Ok(2)
/// }
/// fn work(_: &ProducerContext<'_>, factor: &mut u64, x: u64) -> Result<u64> {
///     Ok(x * *factor)
/// }
/// fn doubled() -> FnMap<u64, u64, u64> {
///     map(init, work)
/// }
/// assert_eq!(OrderedRunner::new(doubled(), 2)?.run([1, 2])?, [2, 4]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub type FnMap<S, I, O> = Map<
    fn(&ProducerContext<'_>) -> Result<S>,
    fn(&ProducerContext<'_>, &mut S, I) -> Result<O>,
    S,
    I,
    O,
>;

impl<Init, Work, S, I, O> Map<Init, Work, S, I, O> {
    /// Replaces the consumer: `init` makes a state, and `f` takes each output into it.
    ///
    /// The summary of a run is that state, instead of the collected outputs.
    ///
    /// ```
    /// use gangline::{UnorderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let sum = squares.fold(
    ///     |_| Ok(0),
    ///     |_, sum, y| {
    ///         *sum += y;
    ///         Ok(())
    ///     },
    /// );
    /// assert_eq!(UnorderedRunner::new(sum, 3)?.run(0..100)?, 328_350);
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

    /// Collects a result for each item, in input order: its output, or its failure. The summary of a run is
    /// a `Vec` of [`TaskResult`](crate::closures::TaskResult)s.
    ///
    /// Use it where errors are [skipped](crate::Builder::on_error): a run that stops at the first error has
    /// no summary. The results have the items' [keys](crate::Builder::key).
    ///
    /// ```
    /// use gangline::{OnError, UnorderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let parse = map(|_| Ok(()), |_, _, (_, text): (&str, &str)| Ok(text.parse::<i32>()?));
    /// let mut pool = UnorderedRunner::builder(parse.results())
    ///     .devices(2)
    ///     .on_error(OnError::Skip)
    ///     .key(|&(id, _)| id)
    ///     .build()?;
    /// let results = pool.run([("w", "1"), ("x", "two"), ("y", "3")])?;
    /// assert_eq!(results[0].result, Ok(1));
    /// let failed: Vec<_> = results.iter().filter(|task| task.result.is_err()).collect();
    /// assert_eq!(failed[0].key.as_deref(), Some("x"));
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
    /// use gangline::{OrderedRunner, map, sink};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("gangline-map-{}", std::process::id()));
    /// let squares = map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
    /// let mut pool = OrderedRunner::new(squares.sink(sink::lines(&path)), 2)?;
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

/// The runner of [`Map::fold`] and [`MapBatches::fold`](crate::closures::MapBatches::fold).
pub struct Fold<M, Init, F, T> {
    map: M,
    init: Init,
    f: F,
    state: PhantomData<fn() -> T>,
}

impl<M, Init, F, T> Fold<M, Init, F, T> {
    pub(super) fn new(map: M, init: Init, f: F) -> Self {
        Fold { map, init, f, state: PhantomData }
    }
}

impl<Init, Work, S, I, O> Runner for Map<Init, Work, S, I, O>
where
    Init: Fn(&ProducerContext<'_>) -> Result<S> + Send + Sync,
    Work: Fn(&ProducerContext<'_>, &mut S, I) -> Result<O> + Send + Sync,
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
        (self.work)(cx, state, input)
    }

    fn batch_hook(&self) -> BatchHook {
        BatchHook::Missing
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

impl<M, Init, F, T> Runner for Fold<M, Init, F, T>
where
    M: Runner,
    Init: Fn(&ConsumerContext<'_>) -> Result<T> + Send + Sync,
    F: Fn(&ConsumerContext<'_>, &mut T, M::Output) -> Result<()> + Send + Sync,
    T: Send,
{
    type Input = M::Input;
    type Output = M::Output;
    type ProducerState = M::ProducerState;
    type ConsumerState = T;
    type Summary = T;

    forward_hooks!(self, self.map => producer);

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<T> {
        (self.init)(cx)
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut T,
        output: M::Output,
    ) -> Result<()> {
        (self.f)(cx, state, output)
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, state: T) -> Result<T> {
        Ok(state)
    }
}

impl<Init, Work, S, I, O> fmt::Debug for Map<Init, Work, S, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}

impl<M, Init, F, T> fmt::Debug for Fold<M, Init, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fold").finish_non_exhaustive()
    }
}
