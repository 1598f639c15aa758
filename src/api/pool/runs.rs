//! Builds pools and runs items through them.

use std::sync::Arc;

#[cfg(feature = "futures")]
use futures_core::Stream;
use gangline_report::RunReport;

use super::{OrderKind, Pool, fallible, sound};
use crate::api::builder::Builder;
use crate::api::expand::{Expand, ExpandFn, TryExpandFn};
use crate::api::into_outputs::{IntoOutputs, LineAccess};
use crate::api::outputs::Outputs;
use crate::api::pipeline::Pipeline;
use crate::api::service::Service;
use crate::api::stage::IntoStage;
#[cfg(feature = "futures")]
use crate::api::streams::{OutputsStream, RunStream};
use crate::cfg::CfgNode;
use crate::device::IntoDevices;
use crate::engine::consume::consumer_of;
use crate::engine::feed::Source;
use crate::engine::own_feeder::GatedSource;
use crate::engine::run_driver::run;
use crate::engine::service::ServiceHost;
use crate::error::{BoxError, Error};
use crate::runner::Runner;

impl<R: Runner + 'static, O> Pool<R, O> {
    const ACCESS: LineAccess<Self, R, R> =
        LineAccess { line: |pool| &pool.stage, line_mut: |pool| &mut pool.stage };

    /// Turns the pool into a [`Service`], which answers calls from any thread and from async code.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?.into_service();
    /// assert_eq!(service.call(7)?, 49);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_service(self) -> Service<R> {
        Service::new(ServiceHost::begin(self.into_engine()))
    }

    /// Turns the pool into an iterator over the outputs for `items`, in the pool's order, without the consumer
    /// hooks.
    ///
    /// The iterator owns the pool, unlike that of [`outputs`](Pool::outputs), and a thread of its own pulls `items`.
    /// It starts at once. Dropping the iterator closes the pool; [`into_pool`](IntoOutputs::into_pool)
    /// returns it.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// fn lengths(words: Vec<String>) -> gangline::Result<impl Iterator<Item = usize>> {
    ///     let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, word: String| Ok(word.len())), 2)?;
    ///     Ok(pool.into_outputs(words).map_while(Result::ok))
    /// }
    ///
    /// let words = ["one", "three"].map(String::from).to_vec();
    /// assert_eq!(lengths(words)?.collect::<Vec<_>>(), [3, 5]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_outputs<I>(self, items: I) -> IntoOutputs<Self, R>
    where
        I: IntoIterator<Item = R::Input>,
        I::IntoIter: Send + 'static,
    {
        IntoOutputs::new(self, Self::ACCESS, GatedSource::new(items, sound))
    }

    /// Turns the pool [into the outputs](Pool::into_outputs) for an input that can fail: an `Err` of `items` takes an
    /// item's place.
    ///
    /// ```
    /// use std::io::BufRead;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, line: String| Ok(line.len())), 2)?;
    /// let file = std::io::Cursor::new("one\nthree\n");
    /// let lengths: Result<Vec<_>, _> = pool.try_into_outputs(file.lines()).collect();
    /// assert_eq!(lengths?, [3, 5]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_into_outputs<I, E>(self, items: I) -> IntoOutputs<Self, R>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        I::IntoIter: Send + 'static,
        E: Into<BoxError>,
    {
        IntoOutputs::new(self, Self::ACCESS, GatedSource::new(items, fallible))
    }
}

impl<R: Runner + 'static, O: OrderKind> Pool<R, O> {
    /// Builds a runner on `devices`, with an empty configuration.
    ///
    /// `devices` is a number of CPU producers, a text such as `"cuda:0,cuda:1"`, a [`Devices`](crate::Devices), or a list
    /// of texts or of [`Device`](crate::Device)s.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), "cpu*2")?;
    /// assert_eq!(pool.run([1, 2, 3])?, [1, 4, 9]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the devices cannot be used, a thread cannot be started, or a `producer_init` fails or panics. The
    /// other producers are ended first.
    pub fn new(runner: R, devices: impl IntoDevices) -> Result<Self, Error> {
        Self::builder(runner).devices(devices).build()
    }

    /// Builds a runner on `devices`, with `cfg` as the configuration that its hooks read.
    ///
    /// ```
    /// use gangline::{CfgNode, OrderedRunner, map};
    ///
    /// let scaled = map(|cx| Ok(cx.cfg().get::<u64>("factor")?), |_, factor: &mut u64, x: u64| Ok(x * *factor));
    /// let mut pool = OrderedRunner::with_cfg(scaled, 2, CfgNode::new().with("factor", 10)?)?;
    /// assert_eq!(pool.run([1, 2])?, [10, 20]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Pool::new).
    pub fn with_cfg(runner: R, devices: impl IntoDevices, cfg: CfgNode) -> Result<Self, Error> {
        Self::builder(runner).devices(devices).cfg(cfg).build()
    }

    /// Starts a [`Builder`], which has every setting of a runner.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let doubled = map(|_| Ok(()), |_, _, x: u64| Ok(2 * x));
    /// let mut pool = OrderedRunner::builder(doubled).devices("cpu*2").window(8).build()?;
    /// assert_eq!(pool.run([1, 2])?, [2, 4]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn builder(runner: R) -> Builder<R, O> {
        Builder::new(runner)
    }

    /// Runs all of `items` through the producers and the consumer, and returns the summary.
    ///
    /// The calling thread pulls the iterator lazily, no further ahead than the window. So the iterator may
    /// borrow, need not be `Send`, and may be endless if the consumer [stops](crate::ConsumerContext::stop)
    /// the run. Its items go to other threads, so they may not borrow.
    ///
    /// The iterator is first pulled after `consumer_init` has returned, and never again after it has ended
    /// or panicked. A run can end only when `next()` returns: for a source that may block for ever see
    /// [`CancelToken::guard`](crate::CancelToken::guard).
    ///
    /// ```
    /// use gangline::{UnorderedRunner, map};
    ///
    /// let total = map(|_| Ok(()), |_, _, text: String| Ok(text.len())).fold(|_| Ok(0), |_, sum, n| {
    ///     *sum += n;
    ///     Ok(())
    /// });
    /// let lines = ["one", "three"];
    /// let mut pool = UnorderedRunner::new(total, 2)?;
    /// assert_eq!(pool.run(lines.iter().map(|line| line.to_string()))?, 8);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a hook fails or panics, the iterator panics, the run is cancelled, or the runner is closed. Of
    /// several failures an ordered run returns the first in input order, and an unordered run the first
    /// that was noticed. [`account`](Pool::account) counts the items by outcome. The runner stays usable,
    /// and nothing of this run reaches the next.
    pub fn run(&mut self, items: impl IntoIterator<Item = R::Input>) -> Result<R::Summary, Error> {
        run(&mut self.stage, consumer_of::<R>, Source::new(items, sound), sound)
    }

    /// Does a [`run`](Pool::run), and returns the [report](Pool::report) beside its result.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let (result, report) = OrderedRunner::new(parse, 1)?.run_with_report(["1", "two"]);
    /// assert_eq!(result.unwrap_err().item(), Some(1));
    /// assert_eq!((report.account.ok, report.account.failed), (1, 1));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first value of the pair has the errors of [`run`](Pool::run).
    pub fn run_with_report(
        &mut self,
        items: impl IntoIterator<Item = R::Input>,
    ) -> (Result<R::Summary, Error>, RunReport) {
        let result = self.run(items);
        (result, self.report())
    }

    /// [Runs](Pool::run) an input that can fail: an `Err` of the iterator takes an item's place.
    ///
    /// Such inputs are the lines of a file, or the [`Outputs`] of another runner. To join two runners,
    /// [`then`](Pool::then) is better: it does not wait with the source.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, line: String| Ok(line.len())), 2)?;
    /// let file = std::io::Cursor::new("one\nthree\n");
    /// assert_eq!(lengths.try_run(std::io::BufRead::lines(file))?, [3, 5]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Pool::run). In addition an `Err` of the iterator ends the run, unless errors are
    /// [skipped](crate::Builder::on_error). Its error has the item's index and the cause, and
    /// [`is_input`](Error::is_input) is true for it.
    pub fn try_run<E: Into<BoxError>>(
        &mut self,
        items: impl IntoIterator<Item = Result<R::Input, E>>,
    ) -> Result<R::Summary, Error> {
        run(&mut self.stage, consumer_of::<R>, Source::new(items, fallible), fallible)
    }

    /// Returns the outputs for `items` as an iterator, in the runner's order, without the consumer hooks.
    ///
    /// Returns at once, unless a panic has cost a producer its state: then it waits until that state is
    /// rebuilt.
    ///
    /// The iterator yields every error, also the one of a closed runner. While the input blocks, so does the
    /// iterator, even if a result is ready. For an input that pauses use [`run`](Pool::run), or
    /// [`into_outputs`](Pool::into_outputs), which pulls on a thread of its own.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// for square in squares.outputs(1..).take(3) {
    ///     println!("{}", square?);
    /// }
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn outputs<I>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter>
    where
        I: IntoIterator<Item = R::Input>,
    {
        Outputs::new(&mut self.stage, Source::new(items, sound))
    }

    /// Returns the [`outputs`](Pool::outputs) for an input that can fail: an `Err` of `items` takes an item's place.
    ///
    /// It comes out as an error for which [`is_input`](Error::is_input) is true.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut outputs = squares.try_outputs(["3", "x"].map(str::parse::<u64>));
    /// assert_eq!(outputs.next().transpose()?, Some(9));
    /// assert!(outputs.next().is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_outputs<I, E>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        Outputs::new(&mut self.stage, Source::new(items, fallible))
    }

    /// Returns a future that [runs](Pool::run) the items of a stream of async code.
    ///
    /// No runtime is needed. The task that awaits the future polls the stream, and only while the window has room.
    /// The hooks run on threads of the pool. The future does not block: while a producer rebuilds a state that a
    /// panic has cost it, the others go on. See [`RunStream`] for what dropping it does.
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// assert_eq!(pool.run_stream(stream::iter([1, 2, 3])).await?, [1, 4, 9]);
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Pool::run). A panic of the stream is [`Error::InputPanicked`].
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn run_stream<S>(&mut self, stream: S) -> RunStream<'_, R, S>
    where
        S: Stream<Item = R::Input>,
    {
        RunStream::new(&mut self.stage, Source::polled(stream, sound))
    }

    /// Returns a future that [runs](Pool::run_stream) a stream that can fail: an `Err` of the stream takes an item's
    /// place, as for [`try_run`](Pool::try_run).
    ///
    /// ```
    /// use futures_lite::stream;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let numbers = ["1", "x"].map(str::parse::<u64>);
    /// assert!(pool.try_run_stream(stream::iter(numbers)).await.unwrap_err().is_input());
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`try_run`](Pool::try_run).
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_run_stream<S, E>(&mut self, stream: S) -> RunStream<'_, R, S>
    where
        S: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        RunStream::new(&mut self.stage, Source::polled(stream, fallible))
    }

    /// Returns the [`outputs`](Pool::outputs) for a stream of async code, as another stream.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let mut squares = pool.outputs_stream(stream::iter(1..));
    /// assert_eq!(squares.next().await.transpose()?, Some(1));
    /// assert_eq!(squares.next().await.transpose()?, Some(4));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn outputs_stream<S>(&mut self, stream: S) -> OutputsStream<'_, R, S>
    where
        S: Stream<Item = R::Input>,
    {
        OutputsStream::new(&mut self.stage, Source::polled(stream, sound))
    }

    /// Returns a stream of the [outputs](Pool::outputs_stream) for an input that can fail: an `Err` of `stream` takes
    /// an item's place.
    ///
    /// ```
    /// use futures_lite::{StreamExt, stream};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # smol::block_on(async {
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?;
    /// let numbers = ["3", "x"].map(str::parse::<u64>);
    /// let mut squares = pool.try_outputs_stream(stream::iter(numbers));
    /// assert_eq!(squares.next().await.transpose()?, Some(9));
    /// assert!(squares.next().await.is_some_and(|second| second.unwrap_err().is_input()));
    /// # Ok::<(), gangline::BoxError>(())
    /// # })?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn try_outputs_stream<S, E>(&mut self, stream: S) -> OutputsStream<'_, R, S>
    where
        S: Stream<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        OutputsStream::new(&mut self.stage, Source::polled(stream, fallible))
    }
}

impl<R: Runner + 'static, O> Pool<R, O> {
    /// Makes this runner the first stage of a [`Pipeline`], and `next` the second. The second takes this
    /// runner's outputs as its inputs.
    ///
    /// The pipeline owns this pool, and `next` unless that is `&mut`. To lend this one too, begin with
    /// [`Pipeline::new`]`(&mut pool)`.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, s: String| Ok(s.len())), 2)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 2)?;
    /// let mut both = lengths.then(squares);
    /// assert_eq!(both.run(["one", "three"].map(String::from))?, [9, 25]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn then<'h, N>(self, next: N) -> Pipeline<'h, R, N::Runner>
    where
        N: IntoStage<'h, Runner: Runner<Input = R::Output>>,
        R: 'h,
    {
        Pipeline::new(self).then(next)
    }

    /// Expands each output of this runner into *parts*, the inputs of the runner that is given to
    /// [`then`](Expand::then).
    ///
    /// `expand` is called once for each output, its *parent*. The iterator that it returns is pulled lazily, on a
    /// thread of the pipeline, with the permits of the next runner's window. [`gather`](crate::expansion::OpenPipeline::gather) folds the
    /// outputs for the parts of one parent together.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let split = map(|_| Ok(()), |_, _, text: &str| Ok(text.to_owned()));
    /// let length = map(|_| Ok(()), |_, _, word: String| Ok(word.len()));
    /// let show = map(|_| Ok(()), |_, _, (text, longest): (std::sync::Arc<String>, usize)| {
    ///     Ok(format!("{text}: {longest}"))
    /// });
    /// let mut split = OrderedRunner::new(split, 1)?;
    /// let mut length = OrderedRunner::new(length, 2)?;
    /// let mut show = OrderedRunner::new(show, 1)?;
    /// let lines = split
    ///     .expand(|text| text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    ///     .then(&mut length)
    ///     .gather(|_| 0, |longest, _, _, length| *longest = length.max(*longest))
    ///     .then(&mut show)
    ///     .run(["one three", "four"])?;
    /// assert_eq!(lines, ["one three: 5", "four: 4"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn expand<'h, F, I>(self, expand: F) -> Expand<'h, R, R, ExpandFn<F, I>>
    where
        R::Output: Sync,
        F: Fn(&Arc<R::Output>) -> I + Send + Sync + 'static,
        I: IntoIterator<Item: Send> + 'static,
        I::IntoIter: Send + 'static,
    {
        Pipeline::new(self).expand(expand)
    }

    /// [Expands](Pool::expand) outputs into parts that can fail: an `Err` of the iterator takes a part's place.
    ///
    /// The policy of the next runner decides whether it ends the run. Its error is a
    /// [`PartFailed`](Error::PartFailed), and [`is_input`](Error::is_input) is true for it.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let lists = OrderedRunner::new(map(|_| Ok(()), |_, _, list: &str| Ok(list.to_owned())), 1)?;
    /// let squares = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 1)?;
    /// let sums = OrderedRunner::new(map(|_| Ok(()), |_, _, (_, sum): (_, u64)| Ok(sum)), 1)?;
    /// let mut pipeline = lists
    ///     .try_expand(|list| list.split(',').map(str::parse::<u64>).collect::<Vec<_>>())
    ///     .then(squares)
    ///     .gather(|_: &String| 0, |sum, _, _, square| *sum += square)
    ///     .then(sums);
    /// assert_eq!(pipeline.run(["1,2", "3"])?, [5, 9]);
    /// let error = pipeline.run(["1,2", "3,x"]).unwrap_err();
    /// assert_eq!((error.item(), error.part()), (Some(1), Some(1)));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_expand<'h, F, I, T, E>(self, expand: F) -> Expand<'h, R, R, TryExpandFn<F, I>>
    where
        R::Output: Sync,
        F: Fn(&Arc<R::Output>) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = Result<T, E>> + 'static,
        I::IntoIter: Send + 'static,
        T: Send,
        E: Into<BoxError>,
    {
        Pipeline::new(self).try_expand(expand)
    }
}
