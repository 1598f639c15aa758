//! Pipelines in which one item becomes many, and many become one.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::gather::{Gather, GatherFn, GatherIntoFn, GatherResultsFn};
use super::pipeline::Pipeline;
use super::pool::{fallible, sound};
use super::stage::{IntoStage, LineOf};
use crate::engine::expand::{Expanding, Expansion, Unfold};
use crate::engine::gather::{AddOrder, FoldParts};
use crate::engine::line::linked;
use crate::engine::link::Direct;
use crate::error::{BoxError, Error, Result};
use crate::runner::Runner;

/// A pipeline that ends with an expansion into parts, made by [`Pool::expand`](crate::Pool::expand) and [`Pipeline::expand`].
///
/// [`then`](Expand::then) adds the runner of the parts.
#[must_use = "an expansion needs a stage for its parts: `.then(&mut pool)`"]
pub struct Expand<'h, R: Runner, S: Runner, U> {
    stages: Box<LineOf<'h, R, S>>,
    unfold: U,
    most: Option<usize>,
}

/// A pipeline that ends with stages of parts, made by [`Expand::then`]. The parts are those of items of the type `T`.
///
/// It has no `run`: [gather](OpenPipeline::gather) the parts, and add a stage for what they become. Then they may be
/// expanded again.
#[must_use = "parts need to be gathered: `.gather(..).then(&mut pool)`"]
pub struct OpenPipeline<'h, R: Runner, S: Runner, T> {
    line: Box<LineOf<'h, R, S>>,
    expansion: Arc<Expansion<T>>,
}

impl<'h, R, S, U> Expand<'h, R, S, U>
where
    R: Runner + 'static,
    S: Runner + 'static,
    S::Output: Sync,
    U: Unfold<S::Output>,
{
    pub(super) fn new(stages: Box<LineOf<'h, R, S>>, unfold: U) -> Self {
        Expand { stages, unfold, most: None }
    }

    /// Sets how many parents may be open at once: expanded, and not yet handed on by the gathering.
    ///
    /// The default is twice the producers of the stage before the expansion. Each open parent stays in
    /// memory, and its parts can fill a batch. So let the open parents have more parts than a batch has items.
    ///
    /// # Panics
    ///
    /// If `most` is 0.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let counts = OrderedRunner::new(map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = counts
    ///     .expand(|n| 0..**n)
    ///     .open_parents(16)
    ///     .then(squares)
    ///     .gather(|_: &u64| 0, |sum, _, _, square| *sum += square)
    ///     .then(sums)
    ///     .run([3, 0, 2])?;
    /// assert_eq!(seen, [5, 0, 1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn open_parents(self, most: usize) -> Self {
        assert!(most > 0, "open_parents must be at least 1, got 0");
        Expand { most: Some(most), ..self }
    }

    /// Adds the runner of the parts: they are its inputs.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let counts = OrderedRunner::new(map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let open = counts.expand(|n| 0..**n).then(squares);
    /// # drop(open);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn then<N>(self, next: N) -> OpenPipeline<'h, R, N::Runner, S::Output>
    where
        N: IntoStage<'h, Runner: Runner<Input = U::Part>>,
    {
        let Expand { stages, unfold, most } = self;
        let expansion = Arc::new(Expansion::new(most));
        let joint = Expanding { unfold: Arc::new(unfold), expansion: expansion.clone() };
        OpenPipeline { line: linked(stages, joint, next.into_stage().0), expansion }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Pipeline<'h, R, S> {
    /// Expands each output of the stage that was last so far into *parts*: see [`Pool::expand`](crate::Pool::expand).
    ///
    /// Parts are not expanded: gather them first, then expand what they have become.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pass = || map(|_| Ok(()), |_, _, text: String| Ok(text));
    /// let (pages, lines) = (OrderedRunner::new(pass(), 1)?, OrderedRunner::new(pass(), 1)?);
    /// let words = OrderedRunner::new(map(|_| Ok(()), |_, _, word: String| Ok(word.len())), 2)?;
    /// type Counted = (std::sync::Arc<String>, usize);
    /// let counts = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, n): Counted| Ok(n)), 1)?;
    /// let letters = pages
    ///     .then(lines)
    ///     .expand(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    ///     .then(words)
    ///     .gather(|_| 0, |letters, _, _, n| *letters += n)
    ///     .then(counts)
    ///     .run(["ab c".to_owned(), "efg".to_owned()])?;
    /// assert_eq!(letters, [3, 3]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn expand<F, I>(self, expand: F) -> Expand<'h, R, S, ExpandFn<F, I>>
    where
        S::Output: Sync,
        F: Fn(&Arc<S::Output>) -> I + Send + Sync + 'static,
        I: IntoIterator<Item: Send> + 'static,
        I::IntoIter: Send + 'static,
    {
        Expand::new(self.into_line(), ExpandFn::new(expand))
    }

    /// [Expands](Pipeline::expand) outputs into parts that can fail: see [`Pool::try_expand`](crate::Pool::try_expand).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pass = || map(|_| Ok(()), |_, _, list: &'static str| Ok(list));
    /// let (a, b) = (OrderedRunner::new(pass(), 1)?, OrderedRunner::new(pass(), 1)?);
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 1)?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = a
    ///     .then(b)
    ///     .try_expand(|list| list.split(',').map(str::parse::<u64>))
    ///     .then(squares)
    ///     .gather(|_: &&str| 0, |sum, _, _, square| *sum += square)
    ///     .then(sums)
    ///     .run(["1,2", "3"])?;
    /// assert_eq!(seen, [5, 9]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_expand<F, I, T, E>(self, expand: F) -> Expand<'h, R, S, TryExpandFn<F, I>>
    where
        S::Output: Sync,
        F: Fn(&Arc<S::Output>) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = Result<T, E>> + 'static,
        I::IntoIter: Send + 'static,
        T: Send,
        E: Into<BoxError>,
    {
        Expand::new(self.into_line(), TryExpandFn::new(expand))
    }
}

impl<'h, R, S, T> OpenPipeline<'h, R, S, T>
where
    R: Runner + 'static,
    S: Runner + 'static,
    T: Send + Sync + 'static,
{
    /// Adds `next` as the last stage of the parts; its inputs are the outputs of the stage that was last so far.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pass = || map(|_| Ok(()), |_, _, n: u64| Ok(n));
    /// let (counts, parts) = (OrderedRunner::new(pass(), 1)?, OrderedRunner::new(pass(), 2)?);
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = counts
    ///     .expand(|n| 0..**n)
    ///     .then(parts)
    ///     .then(squares)
    ///     .gather(|_: &u64| 0, |sum, _, _, square| *sum += square)
    ///     .then(sums)
    ///     .run([3, 4])?;
    /// assert_eq!(seen, [5, 14]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn then<N>(self, next: N) -> OpenPipeline<'h, R, N::Runner, T>
    where
        N: IntoStage<'h, Runner: Runner<Input = S::Output>>,
    {
        let OpenPipeline { line, expansion } = self;
        OpenPipeline { line: linked(line, Direct, next.into_stage().0), expansion }
    }

    /// Folds the outputs for the parts of one parent together, in the order of the last stage.
    ///
    /// `init` begins a parent, and `add` adds the output for the part of it with this index. The inputs of the runner
    /// given to [`then`](Gather::then) are the parents, each with what was gathered. Both functions are called on
    /// a thread of the pipeline, one parent at a time, so leave long work to that runner.
    ///
    /// If all stages of the expansion are [ordered](crate::OrderedRunner), parts are added in their order, and
    /// parents leave in theirs. Behind an unordered stage, parts are added and parents leave as they are done.
    ///
    /// # Errors
    ///
    /// If the run goes on after a part failed, because the [policy](crate::Builder::on_error) of its runner is to
    /// skip, its parent fails with it: the other parts of that parent are withdrawn, and the parent is a skipped
    /// item of the next stage. [`gather_results`](OpenPipeline::gather_results) gathers the failure instead. If
    /// `init` or `add` panics, the parent fails as an item of the next runner, by that runner's policy.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let lists = OrderedRunner::new(map(|_| Ok(()), |_, _, list: &'static str| Ok(list)), 1)?;
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<u64>()?));
    /// let mut parse = OrderedRunner::builder(parse).devices(2).on_error(OnError::Skip).build()?;
    /// let mut sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = lists
    ///     .expand(|list| list.split(','))
    ///     .then(&mut parse)
    ///     .gather(|_| 0, |sum, _, _, x| *sum += x)
    ///     .then(&mut sums)
    ///     .run(["1,2", "3,x,5", "6"])?;
    /// assert_eq!(seen, [3, 6]);
    /// assert_eq!(sums.failures()[0].to_string(), "item 1, part 1 failed");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn gather<G, I, A>(self, init: I, add: A) -> Gather<'h, R, S, T, GatherFn<I, A>>
    where
        G: Send + 'static,
        I: Fn(&T) -> G + Send + Sync + 'static,
        A: Fn(&mut G, &T, u64, S::Output) + Send + Sync + 'static,
    {
        self.gathered(GatherFn { init, add }, AddOrder::OfStage)
    }

    /// [Gathers](OpenPipeline::gather) parts, and has `finish` make the input of the next stage of the parent and what was
    /// gathered.
    ///
    /// So the stage behind the gathering may have the type of those before, and a pipeline can be put together at run
    /// time: its type does not grow with its stages.
    ///
    /// ```
    /// use gangline::closures::BoxRunner;
    /// use gangline::{OrderedRunner, Pipeline, Result, each};
    ///
    /// type Stage = BoxRunner<Vec<u64>, Vec<u64>, Vec<Vec<u64>>>;
    ///
    /// fn pool(add: u64) -> Result<OrderedRunner<Stage>> {
    ///     let work = each(move |xs: Vec<u64>| Ok(xs.into_iter().map(|x| x + add).collect()));
    ///     Ok(OrderedRunner::new(Stage::new(work), 1)?)
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let mut parts = Pipeline::new(pool(0)?).expand(|xs| xs.iter().map(|x| vec![*x]).collect::<Vec<_>>()).then(pool(1)?);
    /// for add in [10, 100] {
    ///     parts = parts.then(pool(add)?);
    /// }
    /// let mut whole: Pipeline<Stage, Stage> = parts
    ///     .gather_into(|_| vec![], |sums, _, _, xs| sums.extend(xs), |_, sums| sums)
    ///     .then(pool(1000)?);
    /// for add in [10_000, 100_000] {
    ///     whole = whole.then(pool(add)?);
    /// }
    /// assert_eq!(whole.run([vec![1, 2], vec![]])?, [vec![111_112, 111_113], vec![]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`gather`](OpenPipeline::gather). If `finish` panics, the parent fails as an item of the next runner.
    pub fn gather_into<G, N, I, A, E>(
        self,
        init: I,
        add: A,
        finish: E,
    ) -> Gather<'h, R, S, T, GatherIntoFn<GatherFn<I, A>, E>>
    where
        G: Send + 'static,
        N: Send + 'static,
        I: Fn(&T) -> G + Send + Sync + 'static,
        A: Fn(&mut G, &T, u64, S::Output) + Send + Sync + 'static,
        E: Fn(Arc<T>, G) -> N + Send + Sync + 'static,
    {
        self.gathered(GatherIntoFn { fold: GatherFn { init, add }, finish }, AddOrder::OfStage)
    }

    /// [Gathers](OpenPipeline::gather) parts as they come, even behind ordered stages.
    ///
    /// No part waits for an earlier one of its parent. Parents still leave in their order.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let counts = OrderedRunner::new(map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = counts
    ///     .expand(|n| 0..**n)
    ///     .then(squares)
    ///     .gather_unordered(|_: &u64| 0, |sum, _, _, square| *sum += square)
    ///     .then(sums)
    ///     .run([3, 4])?;
    /// assert_eq!(seen, [5, 14]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn gather_unordered<G, I, A>(self, init: I, add: A) -> Gather<'h, R, S, T, GatherFn<I, A>>
    where
        G: Send + 'static,
        I: Fn(&T) -> G + Send + Sync + 'static,
        A: Fn(&mut G, &T, u64, S::Output) + Send + Sync + 'static,
    {
        self.gathered(GatherFn { init, add }, AddOrder::Completion)
    }

    /// [Gathers](OpenPipeline::gather) parts, with the failure of a part in the part's place.
    ///
    /// `add` gets an `Err` for a part that its runner [skips](crate::Builder::on_error). The part counts as
    /// failed, and the parent goes on. If the iterator of a parent's parts panics, parts are missing, so the
    /// parent fails all the same.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let lists = OrderedRunner::new(map(|_| Ok(()), |_, _, list: &'static str| Ok(list)), 1)?;
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<u64>()?));
    /// let mut parse = OrderedRunner::builder(parse).devices(2).on_error(OnError::Skip).build()?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let seen = lists
    ///     .expand(|list| list.split(','))
    ///     .then(&mut parse)
    ///     .gather_results(|_| 0, |sum, _, _, x| *sum += x.unwrap_or(100))
    ///     .then(sums)
    ///     .run(["1,2", "3,x,5"])?;
    /// assert_eq!(seen, [3, 108]);
    /// assert_eq!(parse.account().failed, 1);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn gather_results<G, I, A>(
        self,
        init: I,
        add: A,
    ) -> Gather<'h, R, S, T, GatherResultsFn<I, A>>
    where
        G: Send + 'static,
        I: Fn(&T) -> G + Send + Sync + 'static,
        A: Fn(&mut G, &T, u64, Result<S::Output, Error>) + Send + Sync + 'static,
    {
        self.expansion.gather_holes();
        self.gathered(GatherResultsFn { init, add }, AddOrder::OfStage)
    }

    fn gathered<F>(self, fold: F, order: AddOrder) -> Gather<'h, R, S, T, F>
    where
        F: FoldParts<T, S::Output>,
    {
        Gather::new(self.line, fold, self.expansion, order)
    }
}

/// Expands by a closure that returns an iterator of parts.
pub struct ExpandFn<F, I> {
    expand: F,
    parts: PhantomData<fn() -> I>,
}

impl<F, I> ExpandFn<F, I> {
    pub(super) fn new(expand: F) -> Self {
        ExpandFn { expand, parts: PhantomData }
    }
}

impl<P, F, I> Unfold<P> for ExpandFn<F, I>
where
    F: Fn(&Arc<P>) -> I + Send + Sync + 'static,
    I: IntoIterator<Item: Send> + 'static,
    I::IntoIter: Send + 'static,
{
    type Part = I::Item;
    type Parts = I::IntoIter;

    fn parts(&self, parent: &Arc<P>) -> I::IntoIter {
        (self.expand)(parent).into_iter()
    }

    #[inline]
    fn next(parts: &mut I::IntoIter) -> Option<Result<I::Item, BoxError>> {
        sound(parts)
    }
}

/// Expands by a closure that returns an iterator of parts that can fail.
pub struct TryExpandFn<F, I> {
    expand: F,
    parts: PhantomData<fn() -> I>,
}

impl<F, I> TryExpandFn<F, I> {
    pub(super) fn new(expand: F) -> Self {
        TryExpandFn { expand, parts: PhantomData }
    }
}

impl<P, F, I, T, E> Unfold<P> for TryExpandFn<F, I>
where
    F: Fn(&Arc<P>) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = Result<T, E>> + 'static,
    I::IntoIter: Send + 'static,
    T: Send,
    E: Into<BoxError>,
{
    type Part = T;
    type Parts = I::IntoIter;

    fn parts(&self, parent: &Arc<P>) -> I::IntoIter {
        (self.expand)(parent).into_iter()
    }

    #[inline]
    fn next(parts: &mut I::IntoIter) -> Option<Result<T, BoxError>> {
        fallible(parts)
    }
}

impl<R: Runner, S: Runner, U> fmt::Debug for Expand<'_, R, S, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expand").finish_non_exhaustive()
    }
}

impl<R: Runner, S: Runner, T> fmt::Debug for OpenPipeline<'_, R, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages = self.line.engines().len();
        f.debug_struct("OpenPipeline").field("stages", &stages).finish_non_exhaustive()
    }
}
