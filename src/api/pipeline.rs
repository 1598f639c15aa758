//! Pipelines of runners.

use std::fmt;

#[cfg(feature = "futures")]
use futures_core::Stream;

use super::pipeline_outputs::PipelineOutputs;
#[cfg(feature = "futures")]
use super::pipeline_streams::{PipelineOutputsStream, PipelineRunStream};
use super::pool::{Pool, fallible, sound};
use super::stage_failure::StageFailure;
use crate::engine::feed::Source;
use crate::engine::joint::Direct;
#[cfg(feature = "futures")]
use crate::engine::polled::Polled;
use crate::engine::session::Engine;
use crate::engine::stages::Stages;
use crate::error::{BoxError, Error};
use crate::observe::account::Account;
use crate::observe::report::RunReport;
use crate::runner::Runner;

/// A pipeline of runners, each fed by the one before: from the inputs of `R` to the summary of `S`.
///
/// Made by [`Pool::then`]; [`then`](Pipeline::then) adds another stage. The caller feeds the first stage.
/// Each stage has its own producers, window, order and batches, and all stages work at the same time. The
/// consumer hooks of the *last* stage are called, and their summary is what the run returns. The outputs of
/// the other stages go to the next stage instead.
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
/// [`outputs`](Pipeline::outputs) gives the results as an iterator instead, without consumer hooks.
///
/// # Parts
///
/// With [`expand`](Pool::expand) each output of a stage becomes any number of *parts*, the inputs of the next.
/// [`gather`](Pipeline::gather) folds the outputs for the parts of one output together again. Until then the
/// type of the pipeline names the open expansions in `P`, and it cannot be run. Accounts, names and journals of the
/// pipeline are about the items of its input, which the gathered items stand for.
///
/// # Order, windows
///
/// Ordered stages keep the order of the input from end to end, and an item has the same index in all of
/// them: its place in the input. An unordered stage passes its results on as they are finished. The next
/// stage counts them from 0, so from there on the indices are not those of the input.
///
/// Each stage keeps its own window, so the sum of the windows bounds the items in flight, whichever stage
/// is slow. A stage takes a result of the one before only when its window has room. An output that the caller has is
/// in flight until it asks for the next.
///
/// # Errors
///
/// A failure of an item goes on through the later stages in the item's place. So in input order everything
/// before it is consumed, and of several failures the first in order is the run's error. From that moment
/// no input is pulled. The error is that of the stage where it happened. Only in that stage's
/// [`account`](Pool::account) has the item `failed`.
///
/// Each stage has its own [policy](crate::Builder::on_error). An item that a stage skips leaves a gap in
/// the stages that follow, and the last consumer gets a call of
/// [`consumer_skipped`](Runner::consumer_skipped). [`failures`](Pipeline::failures) has the errors of all
/// stages, and so has [`failures`](Pool::failures) of the last pool.
///
/// An item keeps its [key](crate::Builder::key) through the stages that follow, unless one has a key of its
/// own.
///
/// # Ending early
///
/// A [`cancel`](crate::CancelToken::cancel) of any stage's token ends all of them. After a
/// [`drain`](crate::CancelToken::drain) of any the first stage reads no more input, and the items in flight
/// are completed. If the last consumer [stops](crate::ConsumerContext::stop) the run, the items in flight
/// in the stages before it are dropped too.
///
/// # Accounts and reports
///
/// [`account`](Pipeline::account), [`report`](Pipeline::report) and [`failures`](Pipeline::failures) are about
/// the items of the input and all stages. They belong to the pipeline's own runs, so keep the pipeline:
/// `let mut p = a.then(&mut b)`. A [`Progress`](crate::event::Observer) on the builder of the last stage shows
/// the items of the input, and the failures of all stages.
///
/// Each pool has the [`account`](Pool::account) and the [`report`](Pool::report) of its own stage. There `ok`
/// counts the results that were passed on to the next stage. `unread` of the stages after the first is 0 if
/// everything came through, and otherwise unknown.
///
/// # Resuming
///
/// With a [journal](crate::Builder::journal) on the first stage, items that the last consumer has had in an
/// earlier run are passed over before the first stage. Keys, hashes and positions are those of the input. The
/// journal belongs to the configurations of all stages. A journal on a later stage is an error.
///
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'h, R: Runner, S: Runner, P = ()> {
    line: Stages<'h, R, S>,
    /// The expansions that are not gathered yet.
    open: P,
}

impl<'h, R: Runner + 'static, S: Runner<Input = R::Output> + 'static> Pipeline<'h, R, S> {
    pub(super) fn new(first: &'h mut Engine<R>, second: &'h mut Engine<S>) -> Self {
        Pipeline { line: Stages::linked(Box::new(first), Direct, second), open: () }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static, P> Pipeline<'h, R, S, P> {
    pub(super) fn with_open(line: Stages<'h, R, S>, open: P) -> Self {
        Pipeline { line, open }
    }

    pub(super) fn into_parts(self) -> (Stages<'h, R, S>, P) {
        (self.line, self.open)
    }

    /// Adds `next` as the last stage; its inputs are the outputs of the stage that was last so far.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut parse = OrderedRunner::new(map(|_| Ok(()), |_, _, s: &str| Ok(s.parse::<u64>()?)), 1)?;
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// assert_eq!(parse.then(&mut square).then(&mut show).run(["3", "4"])?, ["9", "16"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn then<T, Q>(self, next: &'h mut Pool<T, Q>) -> Pipeline<'h, R, T, P>
    where
        T: Runner<Input = S::Output> + 'static,
    {
        let Pipeline { line, open } = self;
        Pipeline { line: Stages::linked(Box::new(line), Direct, next.engine_mut()), open }
    }
}

impl<'h, R: Runner + 'static, S: Runner + 'static> Pipeline<'h, R, S> {
    /// Bounds the total weight of the items in flight in all stages: bytes of memory, say.
    ///
    /// Each stage weighs an input by the function given to [`Builder::window_weight`](crate::Builder::window_weight),
    /// and has that weight in flight until the next stage takes its output. So if a coordinate of 12 bytes becomes a
    /// tile of 196 kB, let the function return the 196 kB. A stage without a function counts as 0.
    /// `window_weight(u64::MAX, ..)` weighs without a limit of the stage's own. When the last stage is slow, the room
    /// fills up, and the first stage waits.
    ///
    /// A stage without items may always take one. So the weights may exceed `most` by one item of each stage.
    /// Parents of open expansions, and what is gathered of their parts, are bounded by
    /// [`open_parents`](crate::expansion::Expand::open_parents) instead.
    ///
    /// # Panics
    ///
    /// If `most` is 0.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let decode = map(|_| Ok(()), |_, _, size: usize| Ok(vec![1_u8; size]));
    /// let sum = map(|_| Ok(()), |_, _, image: Vec<u8>| Ok(image.iter().map(|&x| u64::from(x)).sum::<u64>()));
    /// let mut decode = OrderedRunner::builder(decode).devices(2).build()?;
    /// let weighed = OrderedRunner::builder(sum).devices(1).window_weight(u64::MAX, |image| image.len() as u64);
    /// let mut sum = weighed.build()?;
    /// let mut both = decode.then(&mut sum).window_weight(1 << 20);
    /// assert_eq!(both.run([3, 1000])?, [3, 1000]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn window_weight(mut self, most: u64) -> Self {
        assert!(most > 0, "window_weight must be at least 1, got 0");
        self.line.limit(most);
        self
    }

    /// Runs all of `items` through all stages, and returns the summary of the last.
    ///
    /// As [`Pool::run`]: the calling thread pulls the iterator lazily, no further ahead than the window of
    /// the first stage, and not before `consumer_init` of the last stage has returned.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
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
        self.line.run(Source::new(items, sound), sound)
    }

    /// As [`run`](Pipeline::run), for an input that can fail: an `Err` of the iterator takes an item's
    /// place.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, line: String| Ok(line.len())), 2)?;
    /// let mut squares = OrderedRunner::new(map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 1)?;
    /// let file = std::io::Cursor::new("one\nthree\n");
    /// assert_eq!(lengths.then(&mut squares).try_run(std::io::BufRead::lines(file))?, [9, 25]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run`](Pipeline::run). In addition an `Err` of the iterator ends the run, unless errors are
    /// skipped. [`is_input`](Error::is_input) is true for its error, which has the item's index and the
    /// cause.
    pub fn try_run<E: Into<BoxError>>(
        &mut self,
        items: impl IntoIterator<Item = Result<R::Input, E>>,
    ) -> Result<S::Summary, Error> {
        self.line.run(Source::new(items, fallible), fallible)
    }

    /// Returns the outputs of the last stage for `items` as an iterator, without consumer hooks.
    ///
    /// As [`Pool::outputs`]: the thread that calls `next` also pulls the input, and all stages work meanwhile. The
    /// iterator yields every error, also the one of a closed runner. A [journal](crate::Builder::journal) is an
    /// error.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
    /// let first: Result<Vec<String>, _> = both.outputs(1..).take(3).collect();
    /// assert_eq!(first?, ["1", "4", "9"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn outputs<I>(&mut self, items: I) -> PipelineOutputs<'_, 'h, R, S, I::IntoIter>
    where
        I: IntoIterator<Item = R::Input>,
    {
        PipelineOutputs::new(&mut self.line, Source::new(items, sound))
    }

    /// As [`outputs`](Pipeline::outputs), for an input that can fail: an `Err` of the iterator takes an item's
    /// place.
    ///
    /// It comes out as an error for which [`is_input`](Error::is_input) is true.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
    /// let mut outputs = both.try_outputs(["3", "x"].map(str::parse::<u64>));
    /// assert_eq!(outputs.next().transpose()?.as_deref(), Some("9"));
    /// assert!(outputs.next().is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_outputs<I, E>(&mut self, items: I) -> PipelineOutputs<'_, 'h, R, S, I::IntoIter>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        PipelineOutputs::new(&mut self.line, Source::new(items, fallible))
    }

    /// As [`run`](Pipeline::run), for a stream of async code.
    ///
    /// As [`Pool::run_stream`]: no runtime is needed, the task that awaits the future polls the stream, and only while
    /// the window of the first stage has room. See [`PipelineRunStream`] for what dropping it does.
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
    /// assert_eq!(both.run_stream(stream::iter([3, 4])).await?, ["9", "16"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run`](Pipeline::run). A panic of the stream is [`Error::InputPanicked`].
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn run_stream<T>(&mut self, stream: T) -> PipelineRunStream<'_, 'h, R, S, T>
    where
        T: Stream<Item = R::Input>,
    {
        PipelineRunStream::new(&mut self.line, Source::new(Polled::new(stream), sound))
    }

    /// As [`run_stream`](Pipeline::run_stream), for an input that can fail: an `Err` of the stream takes an item's
    /// place, as for [`try_run`](Pipeline::try_run).
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let numbers = ["3", "x"].map(str::parse::<u64>);
    /// let mut both = square.then(&mut show);
    /// assert!(both.try_run_stream(stream::iter(numbers)).await.unwrap_err().is_input());
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`try_run`](Pipeline::try_run).
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_run_stream<T, E>(&mut self, stream: T) -> PipelineRunStream<'_, 'h, R, S, T>
    where
        T: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        PipelineRunStream::new(&mut self.line, Source::new(Polled::new(stream), fallible))
    }

    /// As [`outputs`](Pipeline::outputs), from a stream of async code to another.
    ///
    /// As [`Pool::outputs_stream`]: no runtime is needed, the task that polls it polls the input too, and only while the
    /// window of the first stage has room. See [`PipelineOutputsStream`] for what dropping it does.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
    /// let mut outputs = both.outputs_stream(stream::iter(3..));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("9"));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("16"));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn outputs_stream<T>(&mut self, stream: T) -> PipelineOutputsStream<'_, 'h, R, S, T>
    where
        T: Stream<Item = R::Input>,
    {
        PipelineOutputsStream::new(&mut self.line, Source::new(Polled::new(stream), sound))
    }

    /// As [`outputs_stream`](Pipeline::outputs_stream), for an input that can fail: an `Err` of the stream takes an
    /// item's place.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut square = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut show = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x.to_string())), 1)?;
    /// let mut both = square.then(&mut show);
    /// let mut outputs = both.try_outputs_stream(stream::iter(["3", "x"].map(str::parse::<u64>)));
    /// assert_eq!(outputs.next().await.transpose()?.as_deref(), Some("9"));
    /// assert!(outputs.next().await.is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_outputs_stream<T, E>(&mut self, stream: T) -> PipelineOutputsStream<'_, 'h, R, S, T>
    where
        T: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        PipelineOutputsStream::new(&mut self.line, Source::new(Polled::new(stream), fallible))
    }

    /// Counts the items of the input of the last run by outcome, also if it failed.
    ///
    /// An item is `ok` once the last consumer has it, and `failed` whichever stage it failed in. Each pool
    /// has the [account](Pool::account) of its own stage. Before the first run all counts are 0.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let root = map(|_| Ok(()), |_, _, x: i32| Ok(x.checked_isqrt().ok_or("negative")?));
    /// let mut parse = OrderedRunner::builder(parse).devices(2).on_error(OnError::Skip).build()?;
    /// let mut root = OrderedRunner::builder(root).devices(1).on_error(OnError::Skip).build()?;
    /// let mut both = parse.then(&mut root);
    /// assert_eq!(both.run(["16", "x", "-1", "25"])?, [4, 5]);
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
    /// println!("{report}");
    /// assert_eq!((report.account.ok, report.producers.len()), (100, 3));
    /// assert_eq!(report.stages[1].name, "show");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn report(&self) -> RunReport {
        self.line.report()
    }

    /// Returns the items that the stages [skipped](crate::Builder::on_error) in the last run: the first 10,000.
    ///
    /// They are in the order in which the last consumer met them. [`account`](Pipeline::account) counts them
    /// all.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let root = map(|_| Ok(()), |_, _, x: i32| Ok(x.checked_isqrt().ok_or("negative")?));
    /// let parse = OrderedRunner::builder(parse).devices(2).key(|text| *text);
    /// let mut parse = parse.on_error(OnError::Skip).build()?;
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

impl<R: Runner, S: Runner, P> fmt::Debug for Pipeline<'_, R, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("stages", &self.line.stages()).finish_non_exhaustive()
    }
}
