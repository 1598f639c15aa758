//! The handles that users hold.

mod builder;

use std::fmt;
use std::marker::PhantomData;

pub use self::builder::Builder;
use crate::account::Account;
use crate::cancel::CancelToken;
use crate::cfg::CfgNode;
use crate::device::{Devices, IntoDevices};
use crate::engine::session::Engine;
use crate::engine::source::Source;
use crate::error::{BoxError, Error};
use crate::order::Order;
use crate::outputs::Outputs;
use crate::report::RunReport;
use crate::runner::Runner;

/// A runner with its producers, whose consumer sees results in input order.
pub type OrderedRunner<R> = Pool<R, InputOrder>;

/// A runner with its producers, whose consumer sees results in the order in which they are finished.
pub type UnorderedRunner<R> = Pool<R, CompletionOrder>;

/// A runner with its producers, whose order is chosen when it is built, with
/// [`Builder::order`]; input order if it is not.
pub type AnyOrderRunner<R> = Pool<R, RuntimeOrder>;

/// A runner with its producers: what [`OrderedRunner`], [`UnorderedRunner`] and [`AnyOrderRunner`] are.
///
/// Building it starts one thread for each place of the device list and calls
/// [`producer_init`](Runner::producer_init) on all of them at the same time. The producers and
/// their states live until [`close`](Pool::close) or drop, through any number of runs.
///
/// On Linux, where there are no more CPUs than producers, a run moves its own threads (producers and the
/// consumer, never the caller's) to other CPUs when two are on one for long. It leaves none bound there: a
/// thread keeps the set of CPUs that it may run on, also one that a hook has set.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 3)?;
/// assert_eq!(runner.run(0..5)?, [0, 1, 4, 9, 16]);
/// assert_eq!(runner.run([7])?, [49], "the same producers again");
/// runner.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Pool<R: Runner, O> {
    engine: Engine<R>,
    order: PhantomData<fn() -> O>,
}

/// Marks [`OrderedRunner`].
#[derive(Debug)]
pub enum InputOrder {}

/// Marks [`UnorderedRunner`].
#[derive(Debug)]
pub enum CompletionOrder {}

/// Marks [`AnyOrderRunner`].
#[derive(Debug)]
pub enum RuntimeOrder {}

/// The order that a kind of handle starts with.
pub trait OrderKind: sealed::Sealed {
    #[doc(hidden)]
    const ORDER: Order;
}

impl OrderKind for InputOrder {
    const ORDER: Order = Order::Input;
}
impl OrderKind for CompletionOrder {
    const ORDER: Order = Order::Completion;
}
impl OrderKind for RuntimeOrder {
    const ORDER: Order = Order::Input;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::InputOrder {}
    impl Sealed for super::CompletionOrder {}
    impl Sealed for super::RuntimeOrder {}
}

impl<R: Runner + 'static, O: OrderKind> Pool<R, O> {
    /// Builds a runner on `devices`, with an empty configuration.
    ///
    /// `devices` is a number of CPU producers, a text such as `"cuda:0,cuda:1"`, a
    /// [`Devices`], or a list of texts or of [`Device`](crate::Device)s.
    ///
    /// # Errors
    ///
    /// When the devices cannot be used, when a thread cannot be started, or when a `producer_init`
    /// fails or panics: then the other producers are ended first.
    pub fn new(runner: R, devices: impl IntoDevices) -> Result<Self, Error> {
        Self::builder(runner).devices(devices).build()
    }

    /// Builds a runner on `devices`, whose hooks see `cfg`.
    ///
    /// # Errors
    ///
    /// As [`new`](Pool::new).
    pub fn with_cfg(runner: R, devices: impl IntoDevices, cfg: CfgNode) -> Result<Self, Error> {
        Self::builder(runner).devices(devices).cfg(cfg).build()
    }

    /// Everything that can be set before a runner is built.
    pub fn builder(runner: R) -> Builder<R, O> {
        Builder::new(runner)
    }

    /// Runs all of `items` through the producers and the consumer, and returns the summary.
    ///
    /// The calling thread pulls the iterator, lazily and no further ahead than the window; so it may
    /// borrow (its items may not: they go to threads), need not be `Send`, and may be endless where the consumer
    /// [stops](crate::ConsumerContext::stop) the run. It is not pulled before `consumer_init`
    /// returned, and not asked again after it ended or panicked. The run can only end when `next()`
    /// returns: for a source that may block for ever see [`CancelToken::guard`].
    ///
    /// # Errors
    ///
    /// When a hook fails or panics, when the iterator panics, when the run is cancelled, or when the
    /// runner is closed. Of several failures in input order the first in order; otherwise the one
    /// noticed first. [`account`](Pool::account) says what became of the items. The runner
    /// stays usable, and nothing of this run reaches the next.
    pub fn run(&mut self, items: impl IntoIterator<Item = R::Input>) -> Result<R::Summary, Error> {
        self.engine.run(Source::new(items, sound), sound)
    }

    /// As [`run`](Pool::run), with the [report](Pool::report) beside what came of it.
    ///
    /// # Errors
    ///
    /// In the first of the two, as [`run`](Pool::run).
    pub fn run_with_report(
        &mut self,
        items: impl IntoIterator<Item = R::Input>,
    ) -> (Result<R::Summary, Error>, RunReport) {
        let result = self.run(items);
        (result, self.report())
    }

    /// As [`run`](Pool::run), for an input that can fail, such as the lines of a file or the
    /// [`Outputs`] of another runner: an `Err` of the iterator takes an item's place. (From one runner
    /// straight to the next there is [`then`](Pool::then), which does not wait with the source.)
    ///
    /// # Errors
    ///
    /// As [`run`](Pool::run); in addition an `Err` of the iterator ends the run, unless errors are
    /// [skipped](Builder::on_error), with an error for which [`is_input`](Error::is_input) is true, and which has the item's index and the cause.
    pub fn try_run<E: Into<BoxError>>(
        &mut self,
        items: impl IntoIterator<Item = Result<R::Input, E>>,
    ) -> Result<R::Summary, Error> {
        self.engine.run(Source::new(items, fallible), fallible)
    }

    /// The outputs for `items` as an iterator, in the runner's order, without the consumer hooks.
    ///
    /// Returns at once, unless a panic has cost a producer its state: then it waits until that is
    /// made anew.
    ///
    /// Errors come out of the iterator: also that the runner is closed.
    pub fn outputs<I>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter>
    where
        I: IntoIterator<Item = R::Input>,
    {
        Outputs::new(&mut self.engine, Source::new(items, sound))
    }

    /// As [`outputs`](Pool::outputs), for an input that can fail: an `Err` of the iterator takes an
    /// item's place, and comes out as an error for which [`is_input`](Error::is_input) is true.
    pub fn try_outputs<I, E>(&mut self, items: I) -> Outputs<'_, R, I::IntoIter>
    where
        I: IntoIterator<Item = Result<R::Input, E>>,
        E: Into<BoxError>,
    {
        Outputs::new(&mut self.engine, Source::new(items, fallible))
    }

    /// Starts the producers of a closed runner again, each with a new `producer_init`, which sees the
    /// configuration that [`set_cfg`](Pool::set_cfg) gave. Does nothing when the runner is active.
    ///
    /// # Errors
    ///
    /// As [`new`](Pool::new); the runner then stays closed.
    pub fn activate(&mut self) -> Result<(), Error> {
        self.engine.activate()
    }
}

impl<R: Runner, O> Pool<R, O> {
    /// The runner value.
    pub fn runner(&self) -> &R {
        self.engine.runner()
    }

    /// The devices, one place for each producer.
    pub fn devices(&self) -> &Devices {
        &self.engine.settings().devices
    }

    /// The order in which the consumer sees results.
    pub fn order(&self) -> Order {
        self.engine.settings().order
    }

    /// What became of the items of the last run or stream, also when it failed.
    pub fn account(&self) -> Account {
        self.engine.account()
    }

    /// What happened in the last run or stream, also one that failed, or in the stream in progress.
    ///
    /// It is made from what was told of that run, so it is worth keeping and not asking for again. Of a
    /// pipeline each handle has the report of its own stage. Before the first run it is empty.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let mut runner = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// runner.run(0..100)?;
    /// let report = runner.report();
    /// assert_eq!(report.account.ok, 100);
    /// println!("{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn report(&self) -> RunReport {
        self.engine.report()
    }

    /// The errors of the items that the last run [skipped over](Builder::on_error), in the order in which
    /// the consumer met them: the first 10,000. [`account`](Pool::account) counts them all.
    ///
    /// Not those of a stream, which yields them. After a [pipeline](Pool::then) the handle of its last
    /// stage has those of all stages.
    pub fn failures(&self) -> &[Error] {
        self.engine.failures()
    }

    /// For each producer, how large its batches are at most since its device ran out of memory: `None` if
    /// it never did since the runner was built or activated. Empty while the runner is closed.
    ///
    /// The number counts what limits a batch: the padded size if [`max_padded_size`](Builder::max_padded_size) was given,
    /// else the cost if [`max_batch_cost`](Builder::max_batch_cost) was, else items. It falls to what there is memory for, and
    /// rises slowly when batches of that size go well; see
    /// [`producer_work_batch`](Runner::producer_work_batch).
    pub fn learned_batch_limits(&self) -> Vec<Option<u64>> {
        self.engine.ceilings()
    }

    /// The token that ends what this runner has in progress.
    pub fn cancel_token(&self) -> CancelToken {
        self.engine.settings().token.clone()
    }

    /// Whether the producers are there: true from building until [`close`](Pool::close).
    pub fn is_active(&self) -> bool {
        self.engine.is_active()
    }

    /// Ends the producers: `producer_end` is called for each that has a state, and all threads are
    /// joined. Does nothing when the runner is closed.
    ///
    /// # Errors
    ///
    /// The first failure of a `producer_end`, in the order of the places, or [`Error::TimedOut`] for a
    /// producer that has lost an item to another and did not return from it in time: see
    /// [`speculate`](Builder::speculate). The runner is closed all the same.
    pub fn close(&mut self) -> Result<(), Error> {
        self.engine.close()
    }

    /// Replaces the configuration of a closed runner; the next [`activate`](Pool::activate) uses
    /// it.
    ///
    /// # Errors
    ///
    /// When the runner is active: hooks may be reading the configuration that it has.
    pub fn set_cfg(&mut self, cfg: CfgNode) -> Result<(), Error> {
        self.engine.set_cfg(cfg)
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Engine<R> {
        &mut self.engine
    }
}

/// What [`run`](Pool::run) asks its iterator for.
pub(crate) fn sound<I: Iterator>(items: &mut I) -> Option<Result<I::Item, BoxError>> {
    items.next().map(Ok)
}

/// What [`try_run`](Pool::try_run) asks its iterator for.
pub(crate) fn fallible<I, T, E>(items: &mut I) -> Option<Result<T, BoxError>>
where
    I: Iterator<Item = Result<T, E>>,
    E: Into<BoxError>,
{
    items.next().map(|item| item.map_err(E::into))
}

impl<R: Runner, O> fmt::Debug for Pool<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("order", &self.order())
            .field("devices", self.devices())
            .field("is_active", &self.is_active())
            .finish_non_exhaustive()
    }
}
