//! The pool types that users hold.

mod runs;

use std::fmt;
use std::marker::PhantomData;

use gangline_report::{Account, RunReport};

use super::terminator::Terminator;
use crate::base::Order;
use crate::cfg::CfgNode;
use crate::concurrency::cancel::CancelToken;
use crate::device::Devices;
use crate::engine::line::Single;
use crate::engine::pool::Engine;
use crate::error::{BoxError, Error};
use crate::runner::Runner;

/// A pool that gives its consumer the results in input order.
pub type OrderedRunner<R> = Pool<R, InputOrder>;

/// A pool that gives its consumer the results in the order in which they are finished.
pub type UnorderedRunner<R> = Pool<R, CompletionOrder>;

/// A pool with an order that is chosen when it is built: see [`Builder::order`](crate::Builder::order). The default is input order.
pub type AnyOrderRunner<R> = Pool<R, RuntimeOrder>;

/// A runner with its running producers.
///
/// [`OrderedRunner`], [`UnorderedRunner`] and [`AnyOrderRunner`] are aliases of it, one for each order.
///
/// Building it starts one thread for each place of the device list and calls
/// [`producer_init`](Runner::producer_init) on all of them at the same time. The producers and their states
/// live until [`close`](Pool::close) or drop, through any number of runs.
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
///
/// # After a fork
///
/// A forked child has a copy of the pool, but none of its threads. There every run, also of a pipeline or a service,
/// fails with [`Error::Forked`]. Dropping the copy waits for nothing, runs no destructor, and leaves the parent's files
/// alone. Build the pool in the child, or call [`close`](Pool::close) and [`activate`](Pool::activate) there.
pub struct Pool<R: Runner + 'static, O> {
    stage: Single<'static, R::Input, R::Output>,
    kind: PhantomData<fn() -> (R, O)>,
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

/// The order that a kind of pool starts with.
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
    #[expect(unnameable_types, reason = "no other crate implements it")]
    pub trait Sealed {}
    impl Sealed for super::InputOrder {}
    impl Sealed for super::CompletionOrder {}
    impl Sealed for super::RuntimeOrder {}
}

impl<R: Runner + 'static, O> Pool<R, O> {
    pub(super) fn new_with(engine: Engine<R::Input, R::Output>) -> Self {
        Pool { stage: Single::new(engine), kind: PhantomData }
    }
}

impl<R: Runner + 'static, O> Pool<R, O> {
    /// Returns the runner value.
    ///
    /// ```
    /// use gangline::testing::Simulated;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let mut pool = OrderedRunner::new(Simulated::new(squares), 1)?;
    /// pool.run(0..3)?;
    /// assert_eq!(pool.runner().calls().len(), 3, "what the runner itself recorded");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn runner(&self) -> &R {
        self.stage.runner()
    }

    /// Returns the devices, one place for each producer.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), "cpu*3")?;
    /// assert_eq!(pool.devices().to_string(), "cpu*3");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn devices(&self) -> &Devices {
        &self.stage.settings().devices
    }

    /// Returns the order in which the consumer sees results.
    ///
    /// ```
    /// use gangline::{Order, UnorderedRunner, map};
    ///
    /// let pool = UnorderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?;
    /// assert_eq!(pool.order(), Order::Completion);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn order(&self) -> Order {
        self.stage.settings().order
    }

    /// Counts the items of the last run or `outputs` call by outcome, also if it failed.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let mut pool = OrderedRunner::new(parse, 1)?;
    /// assert!(pool.run(["1", "two"]).is_err());
    /// assert_eq!((pool.account().ok, pool.account().failed), (1, 1));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn account(&self) -> Account {
        self.stage.account()
    }

    /// Reports on the last run or `outputs` call, also on one that failed or is still in progress.
    ///
    /// Each call builds the report anew, so keep it rather than ask again. In a pipeline each pool reports
    /// on its own stage. Before the first run the report is empty.
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
        self.stage.report()
    }

    /// Returns the errors of the items that the last run [skipped](crate::Builder::on_error): the first 10,000.
    ///
    /// They are in the order in which the consumer met them. [`account`](Pool::account) counts them all.
    ///
    /// Errors that [`outputs`](Pool::outputs) has yielded are not kept. After a [pipeline](Pool::then) the
    /// pool of its last stage has those of all stages.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let mut pool = OrderedRunner::builder(parse).devices(2).on_error(OnError::Skip).build()?;
    /// assert_eq!(pool.run(["1", "two", "3"])?, [1, 3]);
    /// assert_eq!(pool.failures()[0].item(), Some(1));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn failures(&self) -> &[Error] {
        self.stage.failures()
    }

    /// Returns for each producer the batch limit learned when its device ran out of memory.
    ///
    /// `None`: it has not run out since the runner was built or activated. Empty while the runner is
    /// closed.
    ///
    /// The number counts what limits a batch: the padded size if
    /// [`max_padded_size`](crate::Builder::max_padded_size) was given, else the cost if
    /// [`max_batch_cost`](crate::Builder::max_batch_cost) was, else items. It falls to a size that fits in memory,
    /// and rises slowly while batches of that size succeed: see
    /// [`producer_work_batch`](Runner::producer_work_batch).
    ///
    /// ```
    /// use gangline::testing::{Script, Simulated};
    /// use gangline::{Batch, OrderedRunner, map_batches};
    ///
    /// let same = map_batches(|_| Ok(()), |_, (), xs: &mut Vec<u64>| Ok(xs.drain(..).map(Ok).collect()));
    /// let device = Simulated::new(same).everywhere(Script::new().out_of_memory_above(3));
    /// let mut pool = OrderedRunner::builder(device).devices(1).batch(Batch::of(8)).build()?;
    /// assert_eq!(pool.run(0..8)?.len(), 8);
    /// assert_eq!(pool.learned_batch_limits(), [Some(2)]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn learned_batch_limits(&self) -> Vec<Option<u64>> {
        self.stage.ceilings()
    }

    /// Returns the token that ends what this runner has in progress.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// let token = pool.cancel_token();
    /// let outputs = pool.run((0..).inspect(|&x| if x == 99 { token.drain() }))?;
    /// assert_eq!(outputs.len(), 100, "what was read is completed");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn cancel_token(&self) -> CancelToken {
        self.stage.settings().token.clone()
    }

    /// Returns what ends child processes in the middle of their hooks, from any thread, also during a run.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// let terminator = pool.terminator();
    /// std::thread::spawn(move || terminator.terminate()).join().expect("it does not panic");
    /// assert!(pool.run([1]).is_err());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn terminator(&self) -> Terminator {
        Terminator::new(self.cancel_token(), self.stage.shared())
    }

    /// Returns whether the producers are running: true from building until [`close`](Pool::close).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?;
    /// assert!(pool.is_active());
    /// pool.close()?;
    /// assert!(!pool.is_active());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn is_active(&self) -> bool {
        self.stage.is_active()
    }

    /// Starts the producers of a closed runner again, each with a new `producer_init`.
    ///
    /// The hooks see the configuration that was last given to [`set_cfg`](Pool::set_cfg). Does nothing if
    /// the runner is active.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// pool.close()?; // frees the devices, for another program
    /// pool.activate()?;
    /// assert_eq!(pool.run([1])?, [1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Pool::new); the runner then stays closed.
    pub fn activate(&mut self) -> Result<(), Error> {
        self.stage.activate()
    }

    /// Ends the producers: calls `producer_end` for each live state, and joins all threads.
    ///
    /// Does nothing if the runner is closed. Dropping the runner does the same, and logs an error instead
    /// of returning it.
    ///
    /// # Errors
    ///
    /// The first failure of a `producer_end`, in the order of the places. [`Error::TimedOut`] if a `producer_end`
    /// exceeded the [end timeout](crate::Builder::end_timeout), or if another producer finished a producer's item
    /// first, and the producer did not return from it in time: see [`speculate`](crate::Builder::speculate). The
    /// runner is closed all the same.
    ///
    /// `close` does not wait for a hook that was abandoned in a run and has not returned. When it returns, its
    /// thread calls `producer_end` and ends.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
    /// pool.close()?;
    /// assert!(pool.run([1]).unwrap_err().is_closed());
    /// pool.activate()?;
    /// assert_eq!(pool.run([1])?, [1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn close(&mut self) -> Result<(), Error> {
        self.stage.close()
    }

    /// Replaces the configuration of a closed runner; the next [`activate`](Pool::activate) uses it.
    ///
    /// ```
    /// use gangline::{CfgNode, OrderedRunner, map};
    ///
    /// let scaled = map(|cx| Ok(cx.cfg().get::<u64>("factor")?), |_, factor: &mut u64, x: u64| Ok(x * *factor));
    /// let mut pool = OrderedRunner::with_cfg(scaled, 2, CfgNode::new().with("factor", 10)?)?;
    /// pool.close()?;
    /// pool.set_cfg(CfgNode::new().with("factor", 100)?)?;
    /// pool.activate()?;
    /// assert_eq!(pool.run([1])?, [100]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the runner is active: hooks may be reading its configuration.
    pub fn set_cfg(&mut self, cfg: CfgNode) -> Result<(), Error> {
        self.stage.set_cfg(cfg)
    }

    pub(super) fn into_engine(self) -> Engine<R::Input, R::Output> {
        self.stage.into_engine().expect("a pool owns its engine")
    }

    pub(super) fn into_stage(self) -> Single<'static, R::Input, R::Output> {
        self.stage
    }

    pub(super) fn lend(&mut self) -> Single<'_, R::Input, R::Output> {
        self.stage.lend()
    }
}

/// Asks the iterator of [`run`](Pool::run) for an item.
pub(crate) fn sound<I: Iterator>(items: &mut I) -> Option<Result<I::Item, BoxError>> {
    items.next().map(Ok)
}

/// Asks the iterator of [`try_run`](Pool::try_run) for an item.
pub(crate) fn fallible<I, T, E>(items: &mut I) -> Option<Result<T, BoxError>>
where
    I: Iterator<Item = Result<T, E>>,
    E: Into<BoxError>,
{
    items.next().map(|item| item.map_err(E::into))
}

impl<R: Runner + 'static, O> fmt::Debug for Pool<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("order", &self.order())
            .field("devices", self.devices())
            .field("is_active", &self.is_active())
            .finish_non_exhaustive()
    }
}
