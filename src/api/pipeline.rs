//! Pipelines of runners.

use std::fmt;

#[cfg(feature = "futures")]
use futures_core::Stream;
use gangline_report::{Account, RunReport};

use super::into_outputs::{IntoOutputs, LineAccess};
use super::outputs::Outputs;
use super::pool::{fallible, sound};
use super::stage::{IntoStage, LineOf, StageFailure};
#[cfg(feature = "futures")]
use super::streams::{OutputsStream, RunStream};
use crate::concurrency::cancel::CancelToken;
use crate::engine::consume::consumer_of;
use crate::engine::feed::Source;
use crate::engine::line::linked;
use crate::engine::link::Direct;
use crate::engine::own_feeder::GatedSource;
use crate::engine::run_driver::run;
use crate::error::{BoxError, Error};
use crate::runner::Runner;

#[doc = include_str!("pipeline.md")]
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'h, R: Runner, S: Runner> {
    line: Box<LineOf<'h, R, S>>,
}

impl<'h, R: Runner + 'static> Pipeline<'h, R, R> {
    /// A pipeline of one stage, to which [`then`](Pipeline::then) adds others.
    ///
    /// It owns the pool, or borrows it if it is given `&mut` of it.
    ///
    /// ```
    /// use gangline::{OrderedRunner, Pipeline, map};
    ///
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// assert_eq!(Pipeline::new(&mut square).then(&mut show).run([3, 4])?, ["9", "16"]);
    /// assert_eq!((square.account().ok, show.account().ok), (2, 2));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn new(pool: impl IntoStage<'h, Runner = R>) -> Self {
        Pipeline { line: Box::new(pool.into_stage().0) }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Pipeline<'h, R, S> {
    const ACCESS: LineAccess<Self, R, S> =
        LineAccess { line: |pipeline| &*pipeline.line, line_mut: |pipeline| &mut *pipeline.line };

    pub(super) fn of(line: Box<LineOf<'h, R, S>>) -> Self {
        Pipeline { line }
    }

    pub(super) fn into_line(self) -> Box<LineOf<'h, R, S>> {
        self.line
    }

    /// Adds `next` as the last stage; its inputs are the outputs of the stage that was last so far.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let parse = OrderedRunner::new(map(|_| Ok(()), |_, _, s: &str| Ok(s.parse::<u64>()?)), 1)?;
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// assert_eq!(parse.then(square).then(show).run(["3", "4"])?, ["9", "16"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn then<N>(self, next: N) -> Pipeline<'h, R, N::Runner>
    where
        N: IntoStage<'h, Runner: Runner<Input = S::Output>>,
    {
        Pipeline::of(linked(self.line, Direct, next.into_stage().0))
    }

    /// Runs all of `items` through all stages, and returns the summary of the last.
    ///
    /// The calling thread pulls the iterator lazily, as in [`Pool::run`](crate::Pool::run): no further ahead than the
    /// window of the first stage, and not before `consumer_init` of the last stage has returned.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// assert_eq!(both.run([3, 4])?, ["9", "16"]);
    /// assert_eq!(both.run([5])?, ["25"], "the same producers again");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a hook of any stage fails or panics, if the iterator panics, if the token of any stage cancels
    /// the run, or if any of the runners is closed. All runners stay usable.
    pub fn run(&mut self, items: impl IntoIterator<Item = R::Input>) -> Result<S::Summary, Error> {
        run(&mut *self.line, consumer_of::<S>, Source::new(items, sound), sound)
    }

    /// Does a [`run`](Pipeline::run), and returns the [report](Pipeline::report) beside its result.
    ///
    /// ```
    /// use gangline::{OrderedRunner, each};
    ///
    /// let parse = OrderedRunner::new(each(|text: &str| Ok(text.parse::<i32>()?)), 1)?;
    /// let double = OrderedRunner::new(each(|x: i32| Ok(2 * x)), 1)?;
    /// let (result, report) = parse.then(double).run_with_report(["1", "2"]);
    /// assert_eq!((result?, report.stages.len()), (vec![2, 4], 2));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first value of the pair has the errors of [`run`](Pipeline::run).
    pub fn run_with_report(
        &mut self,
        items: impl IntoIterator<Item = R::Input>,
    ) -> (Result<S::Summary, Error>, RunReport) {
        let result = self.run(items);
        (result, self.report())
    }

    /// [Runs](Pipeline::run) an input that can fail: an `Err` of the iterator takes an item's place.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, line: String| Ok(line.len())), 2)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 1)?;
    /// let file = std::io::Cursor::new("one\nthree\n");
    /// assert_eq!(lengths.then(squares).try_run(std::io::BufRead::lines(file))?, [9, 25]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Pool::try_run`](crate::Pool::try_run).
    pub fn try_run<E: Into<BoxError>>(
        &mut self,
        items: impl IntoIterator<Item = Result<R::Input, E>>,
    ) -> Result<S::Summary, Error> {
        run(&mut *self.line, consumer_of::<S>, Source::new(items, fallible), fallible)
    }

    /// Returns the outputs of the last stage for `items` as an iterator, without consumer hooks.
    ///
    /// The thread that calls `next` also pulls the input, as in [`Pool::outputs`](crate::Pool::outputs), and all stages
    /// work meanwhile. The iterator yields every error, also the one of a closed runner. A
    /// [journal](crate::Builder::journal) is an error.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let first: Result<Vec<_>, _> = square.then(show).outputs(1..).take(3).collect();
    /// assert_eq!(first?, ["1", "4", "9"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn outputs<I>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter, S>
    where
        I: IntoIterator<Item = R::Input>,
    {
        Outputs::new(&mut *self.line, Source::new(items, sound))
    }

    /// Returns the [`outputs`](Pipeline::outputs) for an input that can fail: an `Err` of `items` takes an item's
    /// place, as an error for which [`is_input`](Error::is_input) is true.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// let mut outputs = both.try_outputs(["3", "x"].map(str::parse::<u64>));
    /// assert_eq!(outputs.next().transpose()?.as_deref(), Some("9"));
    /// assert!(outputs.next().is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_outputs<I, E>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter, S>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        Outputs::new(&mut *self.line, Source::new(items, fallible))
    }

    /// Returns a future that [runs](Pipeline::run) the items of a stream of async code.
    ///
    /// See [`Pool::run_stream`](crate::Pool::run_stream) for the task that polls the stream, and [`RunStream`] for what
    /// dropping the future does.
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// assert_eq!(square.then(show).run_stream(stream::iter([3, 4])).await?, ["9", "16"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Pipeline::run). A panic of the stream is [`Error::InputPanicked`].
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn run_stream<T>(&mut self, stream: T) -> RunStream<'_, R, T, S>
    where
        T: Stream<Item = R::Input>,
    {
        RunStream::new(&mut *self.line, Source::polled(stream, sound))
    }

    /// Returns a future that [runs](Pipeline::run_stream) a stream that can fail: an `Err` of the stream takes an
    /// item's place, as for [`try_run`](Pipeline::try_run).
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let numbers = ["3", "x"].map(str::parse::<u64>);
    /// let mut both = square.then(show);
    /// assert!(both.try_run_stream(stream::iter(numbers)).await.unwrap_err().is_input());
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_run_stream<T, E>(&mut self, stream: T) -> RunStream<'_, R, T, S>
    where
        T: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        RunStream::new(&mut *self.line, Source::polled(stream, fallible))
    }

    /// Returns the [`outputs`](Pipeline::outputs) for a stream of async code, as another stream.
    ///
    /// [`Pool::outputs_stream`](crate::Pool::outputs_stream) does so for one runner. See [`OutputsStream`] for what
    /// dropping the stream does.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// let mut outputs = both.outputs_stream(stream::iter(3..));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("9"));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("16"));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn outputs_stream<T>(&mut self, stream: T) -> OutputsStream<'_, R, T, S>
    where
        T: Stream<Item = R::Input>,
    {
        OutputsStream::new(&mut *self.line, Source::polled(stream, sound))
    }

    /// Returns a stream of the [outputs](Pipeline::outputs_stream) for an input that can fail: an `Err` of `stream`
    /// takes an item's place.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// let mut outputs = both.try_outputs_stream(stream::iter(["3", "x"].map(str::parse::<u64>)));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("9"));
    /// assert!(outputs.next().await.is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_outputs_stream<T, E>(&mut self, stream: T) -> OutputsStream<'_, R, T, S>
    where
        T: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        OutputsStream::new(&mut *self.line, Source::polled(stream, fallible))
    }

    /// Turns the pipeline into an iterator over the outputs of the last stage for `items`, without consumer hooks.
    ///
    /// A thread of its own pulls `items`, as in [`Pool::into_outputs`](crate::Pool::into_outputs), and starts at once.
    /// Dropping the iterator closes the pools that the pipeline owns; [`into_pipeline`](IntoOutputs::into_pipeline)
    /// returns it.
    ///
    /// ```
    /// use gangline::{Error, OrderedRunner, Result, map};
    ///
    /// fn shown(to: u64) -> Result<impl Iterator<Item = Result<String, Error>>> {
    ///     let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    ///     let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    ///     Ok(square.then(show).into_outputs(0..to))
    /// }
    ///
    /// assert_eq!(shown(3)?.collect::<Result<Vec<_>, _>>()?, ["0", "1", "4"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_outputs<I>(self, items: I) -> IntoOutputs<Self, R, S>
    where
        I: IntoIterator<Item = R::Input>,
        I::IntoIter: Send + 'static,
    {
        IntoOutputs::new(self, Self::ACCESS, GatedSource::new(items, sound))
    }

    /// Turns the pipeline [into the outputs](Pipeline::into_outputs) for an input that can fail: an `Err` of `items`
    /// takes an item's place.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut outputs = square.then(show).try_into_outputs(["3", "x"].map(str::parse::<u64>));
    /// assert_eq!(outputs.next().transpose()?.as_deref(), Some("9"));
    /// assert!(outputs.next().is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_into_outputs<I, E>(self, items: I) -> IntoOutputs<Self, R, S>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        I::IntoIter: Send + 'static,
        E: Into<BoxError>,
    {
        IntoOutputs::new(self, Self::ACCESS, GatedSource::new(items, fallible))
    }

    /// Counts the items of the input of the last run by outcome, also if it failed.
    ///
    /// An item is `ok` once the last consumer has it, and `failed` whichever stage it failed in. Each pool
    /// has the [account](crate::Pool::account) of its own stage. Before the first run all counts are 0.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let root = map(|_| Ok(()), |_, _, x: i32| Ok(x.checked_isqrt().ok_or("negative")?));
    /// let mut parse = OrderedRunner::builder(parse).devices(2).on_error(OnError::Skip).build()?;
    /// let mut root = OrderedRunner::builder(root).devices(1).on_error(OnError::Skip).build()?;
    /// let mut both = parse.then(&mut root);
    /// both.run(["16", "x", "-1", "25"])?;
    /// assert_eq!((both.account().ok, both.account().failed), (2, 2));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn account(&self) -> Account {
        self.line.account()
    }

    /// Reports on the last run of all stages, also on one that failed.
    ///
    /// It says which stage limited the run and what to change there, and has the producers of all stages in one
    /// list, page and trace. Its [`stages`](RunReport::stages) are the reports of the pools. A stage is named by
    /// [`describe`](crate::Builder::describe), or else by its number. Before the first run the report is empty.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let show = map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string()));
    /// let mut square = OrderedRunner::builder(square).devices(2).describe("square").build()?;
    /// let mut show = OrderedRunner::builder(show).devices(1).describe("show").build()?;
    /// let mut both = square.then(&mut show);
    /// both.run(0..100)?;
    /// let report = both.report();
    /// assert_eq!((report.account.ok, report.producers.len()), (100, 3));
    /// assert_eq!(report.stages[1].name, "show");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn report(&self) -> RunReport {
        self.line.report()
    }

    /// Returns the token of the last stage. As that of any stage, it ends the runs of the pipeline.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// let token = both.cancel_token();
    /// let shown = both.run((0..).inspect(|&x| if x == 9 { token.drain() }))?;
    /// assert_eq!(shown.len(), 10, "what was read is completed");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn cancel_token(&self) -> CancelToken {
        self.line.last().settings().token.clone()
    }

    /// Ends the producers of all stages, also of pools that are lent: see [`Pool::close`](crate::Pool::close).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(show);
    /// both.close()?;
    /// assert!(both.run([3]).unwrap_err().is_closed());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first failure of a `producer_end`, in the order of the stages.
    pub fn close(&mut self) -> Result<(), Error> {
        self.line.close()
    }

    /// Returns the items that the stages [skipped](crate::Builder::on_error) in the last run: the first 10,000.
    ///
    /// They are in the order in which the last consumer met them.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let root = map(|_| Ok(()), |_, _, x: i32| Ok(x.checked_isqrt().ok_or("negative")?));
    /// let parse = OrderedRunner::builder(parse).key(|text| *text).on_error(OnError::Skip).build()?;
    /// let mut root = OrderedRunner::builder(root).devices(1).on_error(OnError::Skip).build()?;
    /// let mut both = parse.then(&mut root);
    /// both.run(["16", "x", "-1", "25"])?;
    /// let failures = both.failures();
    /// assert_eq!((failures[0].stage(), failures[0].item(), failures[0].key()), (1, Some(1), Some("x")));
    /// assert_eq!((failures[1].stage(), failures[1].item(), failures[1].key()), (2, Some(2), Some("-1")));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn failures(&self) -> Vec<StageFailure<'_>> {
        let names = self.line.names();
        let failures = self.line.failures().into_iter();
        failures.map(|failure| StageFailure::new(failure, names[failure.stage])).collect()
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> IntoOutputs<Pipeline<'h, R, S>, R, S> {
    /// Ends the run, and returns the pipeline with its producers: see [`into_pool`](IntoOutputs::into_pool).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut outputs = square.then(show).into_outputs(1..);
    /// assert_eq!(outputs.nth(2).transpose()?.as_deref(), Some("9"));
    /// let mut pipeline = outputs.into_pipeline();
    /// assert_eq!(pipeline.run([5])?, ["25"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_pipeline(self) -> Pipeline<'h, R, S> {
        self.take_out()
    }
}

impl<R: Runner, S: Runner> fmt::Debug for Pipeline<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("stages", &self.line.engines().len())
            .finish_non_exhaustive()
    }
}
