//! What can be set before a runner is built.

mod survival;
mod telling;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;

use super::{OrderKind, Pool, RuntimeOrder};
use crate::batch::{Batch, Batching};
use crate::cancel::CancelToken;
use crate::cfg::CfgNode;
#[cfg(feature = "rayon")]
use crate::cpu_threads::CpuThreads;
use crate::device::{Devices, GpuLock, IntoDevices};
use crate::engine::chronicle::Observers;
use crate::engine::session::{Engine, Settings};
use crate::engine::telling::Told;
use crate::engine::terms::{CopyFn, HashFn, NameFn, Terms};
use crate::error::Error;
use crate::journal::Journal;
use crate::limits::Limits as TimeLimits;
use crate::measures::{Amount, Measure, Measures};
use crate::order::Order;
use crate::policy::Policy;
use crate::runner::Runner;

/// Builds a runner: see [`Pool::builder`].
///
/// ```
/// use gangline::{CfgNode, Order, AnyOrderRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let powers = map(
///     |cx| Ok(cx.cfg().get::<u32>("exponent")?),
///     |_, exponent: &mut u32, x: u64| Ok(x.pow(*exponent)),
/// );
/// let mut runner = AnyOrderRunner::builder(powers)
///     .devices("cpu*2")
///     .order(Order::Input)
///     .window(16)
///     .cfg(CfgNode::new().with("exponent", 3)?)
///     .build()?;
/// assert_eq!(runner.run([1, 2, 3])?, [1, 8, 27]);
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<R: Runner, O> {
    runner: R,
    /// A bad value's error waits here for `build`.
    devices: Option<Result<Devices, Error>>,
    cfg: CfgNode,
    order: Order,
    window: Option<usize>,
    batch: Option<Batch>,
    measures: Measures<R::Input>,
    stack_size: Option<usize>,
    policy: Policy,
    copy: Option<CopyFn<R::Input>>,
    limits: TimeLimits,
    name: Option<Box<NameFn<R::Input>>>,
    hash: Option<Box<HashFn<R::Input>>>,
    journal: Option<Journal>,
    told: Told,
    /// Never locked, since a builder is passed by value: it makes it `Sync`, which observers need not be.
    observers: Mutex<Observers>,
    gpu_lock: Option<GpuLock>,
    #[cfg(feature = "rayon")]
    cpu_threads: CpuThreads,
    token: CancelToken,
    kind: PhantomData<fn() -> O>,
}

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    pub(super) fn new(runner: R) -> Self {
        Builder {
            runner,
            devices: None,
            cfg: CfgNode::new(),
            order: O::ORDER,
            window: None,
            batch: None,
            measures: Measures::default(),
            stack_size: None,
            policy: Policy::default(),
            copy: None,
            limits: TimeLimits::default(),
            name: None,
            hash: None,
            journal: None,
            told: Told::default(),
            observers: Mutex::default(),
            gpu_lock: None,
            #[cfg(feature = "rayon")]
            cpu_threads: CpuThreads::default(),
            token: CancelToken::new(),
            kind: PhantomData,
        }
    }

    /// Where the producers work: one producer for each place. Without it,
    /// [`Devices::available`].
    pub fn devices(mut self, devices: impl IntoDevices) -> Self {
        self.devices = Some(devices.into_devices());
        self
    }

    /// The configuration that the hooks see. Empty without it.
    pub fn cfg(mut self, cfg: CfgNode) -> Self {
        self.cfg = cfg;
        self
    }

    /// Has producers take several items at once, for
    /// [`producer_work_batch`](Runner::producer_work_batch), which is then called instead of
    /// [`producer_work`](Runner::producer_work), also for a batch of one. The consumer sees single
    /// outputs all the same, in the runner's order.
    ///
    /// A runner without that hook works on the items of a batch one by one, which gains nothing, and so does one of
    /// closures, by [`map`](crate::map): give closures [lists](crate::Batches) as inputs instead.
    ///
    /// A batch of 0 items is refused by [`build`](Builder::build), and so is one that the
    /// [window](Builder::window) has no room for.
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Bounds what the items of a [batch](Builder::batch) cost together, as `cost` tells for each: tokens,
    /// pixels, bytes. An incomplete batch counts as full where the next item would be too much for it.
    ///
    /// `cost` is called once for each item, on the thread that feeds, when the item was pulled. An item
    /// that alone costs more than `most` fails with [`Error::TooLarge`] before any hook sees it, and one
    /// for which `cost` panics with [`Error::MeasurePanicked`].
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner};
    ///
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
    /// # fn main() -> gangline::Result<()> {
    /// // `Lengths` is a type that implements `producer_work_batch`.
    /// let mut runner = OrderedRunner::builder(Lengths)
    ///     .devices(2)
    ///     .batch(Batch::up_to(32))
    ///     .max_batch_cost(4_096, |text| text.len())
    ///     .build()?;
    /// assert_eq!(runner.run(["mush".to_owned(), "whoa".to_owned()])?, [4, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A `most` of 0 is refused by [`build`](Builder::build), and so is a cost without a `batch`.
    pub fn max_batch_cost<N: Amount>(
        mut self,
        most: N,
        cost: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Cost, most, cost);
        self
    }

    /// Bounds what a [batch](Builder::batch) comes to when its items are padded to the largest of them:
    /// the largest `size` times the number of items. So items of like sizes go together, none more than
    /// twice as large as another: those nearest to the first that waits, whatever came in between. The
    /// consumer sees the runner's order all the same.
    ///
    /// When no more can come, for the reasons that [`Batch`] names, the batch with the first item goes
    /// first; before that, one that is full may overtake it. The more items the
    /// [window](Builder::window) has to choose from, the less is padded.
    ///
    /// `size` is called like the function of [`max_batch_cost`](Builder::max_batch_cost), and items fail likewise. Both limits
    /// may be given: then a batch keeps both.
    ///
    /// What a device has memory for is then learnt as a padded size too, and so are the
    /// [ceilings](crate::Pool::learned_batch_limits): a simulated device counts
    /// [items](crate::testing::Script::out_of_memory_above) all the same.
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner};
    ///
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
    /// # fn main() -> gangline::Result<()> {
    /// // `Lengths` is a type that implements `producer_work_batch`.
    /// let mut runner = OrderedRunner::builder(Lengths)
    ///     .devices(2)
    ///     .batch(Batch::up_to(32))
    ///     .max_padded_size(8_192, |text| text.len())
    ///     .build()?;
    /// assert_eq!(runner.run([3, 500, 4].map(|length| "x".repeat(length)))?, [3, 500, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_padded_size<N: Amount>(
        mut self,
        most: N,
        size: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Padded, most, size);
        self
    }

    /// Bounds what the items weigh together that are given out and not yet consumed, beside their number:
    /// bytes of memory, say. An item that was pulled and has no room waits for it, so there may be one
    /// more in memory; one that alone weighs more than `most` is given out when all others are consumed.
    ///
    /// `weight` is called once for each item, on the thread that feeds; an item for which it panics fails
    /// with [`Error::MeasurePanicked`]. A `most` of 0 is refused by [`build`](Builder::build).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let lengths = map(|_| Ok(()), |_, _, image: Vec<u8>| Ok(image.len()));
    /// let mut runner = OrderedRunner::builder(lengths)
    ///     .devices(2)
    ///     .window_weight(1 << 30, |image| image.len())
    ///     .build()?;
    /// assert_eq!(runner.run([vec![0; 1 << 20], vec![0; 5]])?, [1 << 20, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn window_weight<N: Amount>(
        mut self,
        most: N,
        weight: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Weight, most, weight);
        self
    }

    /// How many items may be given out and not yet consumed: exactly `items`. 1 makes
    /// everything serial; 0 is refused.
    ///
    /// Without it the window starts with three items for each producer, or three of the largest
    /// [batches](Builder::batch), or sixteen of those where they are [padded](Builder::max_padded_size). It grows
    /// while items are fast: to about 2 ms of work for each producer, and to 8,192 items at most, and shrinks
    /// when slow ones follow.
    pub fn window(mut self, items: usize) -> Self {
        self.window = Some(items);
        self
    }

    /// A token that ends what is in progress, also the building. Without it the runner gets one of
    /// its own: [`Pool::cancel_token`].
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.token = token;
        self
    }

    /// The size in bytes of the stacks of the runner's threads. Without it, that of
    /// [`std::thread`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Locks the GPUs of the devices from before the first `producer_init` until the producers have
    /// ended, so that this run and others of this machine that ask for it too do not meet on a GPU.
    /// Without it nobody asks whether a GPU is in use.
    pub fn lock_gpus(mut self, lock: GpuLock) -> Self {
        self.gpu_lock = Some(lock);
        self
    }

    /// How many threads each producer on the CPU computes with; by default its share of the cores.
    ///
    /// candle, and much else, computes with rayon on as many threads as there are cores. Several
    /// producers that do so at once fight over the cores: the same results cost more time. So
    /// each producer whose place has the CPU, where there are several, gets a rayon pool of its own, in
    /// which its hooks are called: parallel iterators, `join`, `scope` and candle's convolutions and matrix products
    /// stay in there. With one producer for each core, as in
    /// [`Devices::available`], that is one thread each, and work
    /// of a hook stays on the producer's own thread.
    ///
    /// ```
    /// use gangline::{CpuThreads, OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let ask = map(|_| Ok(()), |_, (), _: u64| Ok(rayon::current_num_threads()));
    /// let mut runner = OrderedRunner::builder(ask).devices("cpu*2").cpu_threads(3).build()?;
    /// assert_eq!(runner.run([0, 1, 2])?, [3, 3, 3]);
    ///
    /// let draw = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    /// let global = OrderedRunner::builder(draw).cpu_threads(CpuThreads::Global).build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A producer without the CPU in its place, such as `cuda:0`, gets no pool, and neither does
    /// the consumer: where they use rayon, it is the global pool. Names taken with
    /// [`names_only`](crate::Devices::names_only) count like devices.
    ///
    /// # Threads
    ///
    /// The producer's own thread, `gangline-p0`, is the first of its pool; the others are named
    /// `gangline-p0-1` and so on, have the runner's [stack size](Builder::stack_size), start before
    /// `producer_init` and are joined when the runner is closed. One that the operating system
    /// refuses fails the building with [`Error::Thread`], which names it. Nothing is leaked,
    /// however often a runner is closed and activated. What a hook gave to `rayon::spawn` and is not
    /// done yet, `close` waits for.
    ///
    /// # What is not limited
    ///
    /// - Since 0.11, candle works on tensors of 65,536 elements or more, one by one or quantized, with
    ///   threads that are not rayon's: one set for the whole process, which takes one caller at a
    ///   time and stays until the process ends. Set the variable `CANDLE_NUM_THREADS=1` to do without
    ///   it where there are as many producers as cores.
    /// - MKL has threads of its own, and the variables `MKL_NUM_THREADS` and `OMP_NUM_THREADS`.
    /// - A hook that installs itself in another pool, by `ThreadPool::install` or candle's
    ///   `Device::with_context`, is in that one.
    ///
    /// # When to take the global pool
    ///
    /// - Where a hook gives work to `rayon::spawn` and waits for it by other means than rayon's,
    ///   say a channel: in a pool of one thread nobody is there to do it, and the hook waits for ever.
    ///   `rayon::scope` and `join` do the work themselves while they wait.
    /// - Where a hook makes its own thread the first of a pool (`use_current_thread`): rayon refuses
    ///   to do that on a thread that belongs to one.
    #[cfg(feature = "rayon")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
    pub fn cpu_threads(mut self, threads: impl Into<CpuThreads>) -> Self {
        self.cpu_threads = threads.into();
        self
    }

    /// Builds the runner: starts all producers at once, and returns when every `producer_init` has.
    ///
    /// # Errors
    ///
    /// When a value that was set is not allowed, when the devices cannot be used by this build on
    /// this machine or locked, when a thread cannot be started, when a `producer_init` fails or panics, or when
    /// the token cancels the building. The other producers are ended first.
    pub fn build(mut self) -> Result<Pool<R, O>, Error> {
        let devices = self.devices.take().unwrap_or_else(|| Ok(Devices::available()))?;
        let most = self.batch.map_or(1, |batch| batch.most());
        if most == 0 {
            return Err(Error::Batch {});
        }
        let batching = batching(self.batch, &self.measures)?;
        self.check_survival(devices.len())?;
        if let Some(window) = self.window.filter(|&window| window < most) {
            return Err(Error::Window { window, least: most });
        }
        #[cfg(feature = "rayon")]
        if self.cpu_threads == CpuThreads::Exactly(0) {
            return Err(Error::CpuThreads {});
        }
        let places = devices.places_with_gpus();
        let settings = Settings {
            devices,
            order: self.order,
            window: self.window,
            batching,
            stack_size: self.stack_size,
            gpu_lock: self.gpu_lock,
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads,
            token: self.token,
        };
        let measures = self.measures.is_some().then_some(self.measures);
        let terms = Terms {
            measures,
            policy: self.policy,
            places,
            copy: self.copy,
            limits: self.limits,
            name: self.name,
            hash: self.hash,
            journal: self.journal,
        };
        let engine =
            Engine::new(self.runner, self.cfg, settings, terms, self.told, self.observers)?;
        Ok(Pool { engine, order: PhantomData })
    }
}

impl<R: Runner + 'static> Builder<R, RuntimeOrder> {
    /// The order in which the consumer sees results.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

/// How batches are formed, within the limits that were given.
fn batching<I>(batch: Option<Batch>, measures: &Measures<I>) -> Result<Option<Batching>, Error> {
    for measure in [Measure::Cost, Measure::Padded, Measure::Weight] {
        match measures.most(measure) {
            Some(0) => return Err(Error::Limit { measure }),
            Some(_) if batch.is_none() && measure != Measure::Weight => {
                return Err(Error::NoBatch { measure });
            }
            _ => {}
        }
    }
    Ok(batch.map(|rule| {
        let mut batching = Batching::new(rule);
        measures.most(Measure::Cost).into_iter().for_each(|most| batching.limit_cost(most));
        measures.most(Measure::Padded).into_iter().for_each(|most| batching.limit_padded(most));
        batching
    }))
}

impl<R: Runner, O> fmt::Debug for Builder<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Builder");
        f.field("devices", &self.devices);
        f.field("order", &self.order);
        f.field("window", &self.window);
        f.field("batch", &self.batch);
        f.field("measures", &self.measures);
        f.field("stack_size", &self.stack_size);
        f.field("policy", &self.policy);
        f.field("limits", &self.limits);
        f.field("gpu_lock", &self.gpu_lock);
        #[cfg(feature = "rayon")]
        f.field("cpu_threads", &self.cpu_threads);
        f.finish_non_exhaustive()
    }
}
