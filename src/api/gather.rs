//! Pipelines in which many items become one.

use std::fmt;
use std::sync::Arc;

use super::pipeline::Pipeline;
use super::stage::{IntoStage, LineOf};
use crate::engine::expand::Expansion;
use crate::engine::gather::{AddOrder, FoldParts, Gathering};
use crate::engine::line::linked;
use crate::error::{Error, Result};
use crate::runner::Runner;

/// A pipeline that ends with a gathering of parts, made by
/// [`OpenPipeline::gather`](crate::expansion::OpenPipeline::gather).
///
/// [`then`](Gather::then) adds the runner of the gathered items. So a gathering is never the last element of a
/// pipeline: what a run returns is the summary of a runner's consumer.
#[must_use = "gathered items need a stage: `.then(&mut pool)`"]
pub struct Gather<'h, R: Runner, S: Runner, T, F> {
    line: Box<LineOf<'h, R, S>>,
    fold: F,
    expansion: Arc<Expansion<T>>,
    order: AddOrder,
}

impl<'h, R, S, T, F> Gather<'h, R, S, T, F>
where
    R: Runner + 'static,
    S: Runner + 'static,
    T: Send + Sync + 'static,
    F: FoldParts<T, S::Output>,
{
    pub(super) fn new(
        line: Box<LineOf<'h, R, S>>,
        fold: F,
        expansion: Arc<Expansion<T>>,
        order: AddOrder,
    ) -> Self {
        Gather { line, fold, expansion, order }
    }

    /// Adds parts as they come, even behind ordered stages.
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
    ///     .gather_results(|_: &u64| 0, |sum, _, _, square| *sum += square.unwrap_or(0))
    ///     .unordered()
    ///     .then(sums)
    ///     .run([3, 4])?;
    /// assert_eq!(seen, [5, 14]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn unordered(self) -> Self {
        Gather { order: AddOrder::Completion, ..self }
    }

    /// Adds the runner of the gathered parents. Its inputs are the parents, each with what was gathered; behind
    /// [`gather_into`](crate::expansion::OpenPipeline::gather_into), they are what its `finish` returns.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let counts = OrderedRunner::new(map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = map(|_| Ok(()), |_, _, (n, all): (std::sync::Arc<u64>, Vec<u64>)| Ok(format!("{n}: {all:?}")));
    /// let mut show = OrderedRunner::new(show, 1)?;
    /// let seen = counts
    ///     .expand(|n| 0..**n)
    ///     .then(squares)
    ///     .gather(|_| vec![], |all, _, _, square| all.push(square))
    ///     .then(&mut show)
    ///     .run([3])?;
    /// assert_eq!(seen, ["3: [0, 1, 4]"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn then<N>(self, next: N) -> Pipeline<'h, R, N::Runner>
    where
        N: IntoStage<'h, Runner: Runner<Input = F::Item>>,
    {
        let Gather { line, fold, expansion, order } = self;
        let joint = Gathering { fold: Arc::new(fold), expansion, order };
        Pipeline::of(linked(line, joint, next.into_stage().0))
    }
}

/// Gathers parents that have all their parts.
pub struct GatherFn<I, A> {
    pub(super) init: I,
    pub(super) add: A,
}

impl<P, X, G, I, A> FoldParts<P, X> for GatherFn<I, A>
where
    P: Send + Sync + 'static,
    G: Send + 'static,
    I: Fn(&P) -> G + Send + Sync + 'static,
    A: Fn(&mut G, &P, u64, X) + Send + Sync + 'static,
{
    type Gathered = G;
    type Item = (Arc<P>, G);

    fn init(&self, parent: &P) -> G {
        (self.init)(parent)
    }

    #[inline]
    fn add(&self, gathered: &mut G, parent: &P, part: u64, output: Result<X, Error>) {
        if let Ok(output) = output {
            (self.add)(gathered, parent, part, output);
        }
    }

    fn finish(&self, parent: Arc<P>, gathered: G) -> (Arc<P>, G) {
        (parent, gathered)
    }
}

/// Gathers parents as the fold `F` does, and makes the items of the next stage of them.
pub struct GatherIntoFn<F, E> {
    pub(super) fold: F,
    pub(super) finish: E,
}

impl<P, X, N, F, E> FoldParts<P, X> for GatherIntoFn<F, E>
where
    N: Send + 'static,
    F: FoldParts<P, X>,
    E: Fn(Arc<P>, F::Gathered) -> N + Send + Sync + 'static,
{
    type Gathered = F::Gathered;
    type Item = N;

    fn init(&self, parent: &P) -> F::Gathered {
        self.fold.init(parent)
    }

    #[inline]
    fn add(&self, gathered: &mut F::Gathered, parent: &P, part: u64, output: Result<X, Error>) {
        self.fold.add(gathered, parent, part, output);
    }

    fn finish(&self, parent: Arc<P>, gathered: F::Gathered) -> N {
        (self.finish)(parent, gathered)
    }
}

/// Gathers parts that may have failed.
pub struct GatherResultsFn<I, A> {
    pub(super) init: I,
    pub(super) add: A,
}

impl<P, X, G, I, A> FoldParts<P, X> for GatherResultsFn<I, A>
where
    P: Send + Sync + 'static,
    G: Send + 'static,
    I: Fn(&P) -> G + Send + Sync + 'static,
    A: Fn(&mut G, &P, u64, Result<X, Error>) + Send + Sync + 'static,
{
    type Gathered = G;
    type Item = (Arc<P>, G);

    fn init(&self, parent: &P) -> G {
        (self.init)(parent)
    }

    #[inline]
    fn add(&self, gathered: &mut G, parent: &P, part: u64, output: Result<X, Error>) {
        (self.add)(gathered, parent, part, output);
    }

    fn finish(&self, parent: Arc<P>, gathered: G) -> (Arc<P>, G) {
        (parent, gathered)
    }
}

impl<R: Runner, S: Runner, T, F> fmt::Debug for Gather<'_, R, S, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").field("stages", &self.line.engines().len()).finish_non_exhaustive()
    }
}
