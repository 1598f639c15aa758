//! The settings of a runner.

mod batching;
mod lifespan;
mod survival;
mod telling;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;

use super::pool::{OrderKind, Pool, RuntimeOrder};
use crate::backend::threads::limits::Limits as TimeLimits;
use crate::backend::threads::measures::Measures;
use crate::backend::threads::producer_factory::ProducerFactory;
use crate::backend::threads::run_settings::{CopyFn, HashFn, NameFn, RunSettings};
use crate::base::Measure;
use crate::base::Order;
use crate::cfg::CfgNode;
use crate::concurrency::cancel::CancelToken;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::{DeviceError, Devices, GpuLock, IntoDevices};
use crate::engine::session::Engine;
use crate::engine::settings::Settings;
use crate::error::{BuildError, Error};
use crate::journal::Journal;
use crate::observe::event_log::{ObserveOptions, Observers};
use crate::runner::{BatchHook, Runner};
use crate::scheduler::batch::{Batch, Batching};
use crate::scheduler::policy::Policy;

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
    /// The error of a bad value waits here for `build`.
    devices: Option<Result<Devices, DeviceError>>,
    cfg: CfgNode,
    order: Order,
    window: Option<usize>,
    batch: Option<Batch>,
    measures: Measures<R::Input>,
    stack_size: Option<usize>,
    replacements: usize,
    recycle_after: Option<u64>,
    policy: Policy,
    copy: Option<CopyFn<R::Input>>,
    limits: TimeLimits,
    name: Option<Box<NameFn<R::Input>>>,
    hash: Option<Box<HashFn<R::Input>>>,
    journal: Option<Journal>,
    told: ObserveOptions,
    /// Never locked, since a builder is passed by value. The mutex makes the builder `Sync`; observers need
    /// not be.
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
            replacements: 0,
            recycle_after: None,
            policy: Policy::default(),
            copy: None,
            limits: TimeLimits::default(),
            name: None,
            hash: None,
            journal: None,
            told: ObserveOptions::default(),
            observers: Mutex::default(),
            gpu_lock: None,
            #[cfg(feature = "rayon")]
            cpu_threads: CpuThreads::default(),
            token: CancelToken::new(),
            kind: PhantomData,
        }
    }

    /// Sets where the producers work: one producer for each place. The default is [`Devices::available`].
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x))).devices("cpu*2").build()?;
    /// assert_eq!(pool.devices().len(), 2);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn devices(mut self, devices: impl IntoDevices) -> Self {
        self.devices = Some(devices.into_devices());
        self
    }

    /// Sets the configuration that the hooks read. The default is empty.
    ///
    /// ```
    /// use gangline::{CfgNode, OrderedRunner, map};
    ///
    /// let scaled = map(|cx| Ok(cx.cfg().get::<u64>("factor")?), |_, factor: &mut u64, x: u64| Ok(x * *factor));
    /// let cfg = CfgNode::new().with("factor", 10)?;
    /// let mut pool = OrderedRunner::builder(scaled).devices(2).cfg(cfg).build()?;
    /// assert_eq!(pool.run([1, 2])?, [10, 20]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn cfg(mut self, cfg: CfgNode) -> Self {
        self.cfg = cfg;
        self
    }

    /// Sets the window: the largest number of items in flight. 1 makes the run serial; 0 is refused.
    ///
    /// By default the window starts at three items for each producer, at three of the largest
    /// [batches](Builder::batch), or at sixteen of those if they are [padded](Builder::max_padded_size). It
    /// grows while items are fast, to about 2 ms of work for each producer and at most 8,192 items. It
    /// shrinks when slow items follow.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let doubled = map(|_| Ok(()), |_, _, x: u64| Ok(2 * x));
    /// let mut pool = OrderedRunner::builder(doubled).devices(2).window(4).build()?;
    /// assert_eq!(pool.run(0..100)?.len(), 100);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn window(mut self, items: usize) -> Self {
        self.window = Some(items);
        self
    }

    /// Sets the token that ends what is in progress, also the building. By default the runner has one of
    /// its own: [`Pool::cancel_token`].
    ///
    /// One token can serve several runners, and exist before any of them, as for Ctrl-C.
    ///
    /// ```
    /// use gangline::{CancelToken, OrderedRunner, map};
    ///
    /// let token = CancelToken::new();
    /// let same = map(|_| Ok(()), |_, _, x: u64| Ok(x));
    /// let mut pool = OrderedRunner::builder(same).devices(2).cancel_token(token.clone()).build()?;
    /// let items = (0..).inspect(|&x| if x == 100 { token.cancel() });
    /// assert!(pool.run(items).unwrap_err().is_cancelled());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.token = token;
        self
    }

    /// Sets the stack size of the runner's threads, in bytes. The default is that of [`std::thread`].
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let deep = map(|_| Ok(()), |_, _, x: u64| Ok(x));
    /// let mut pool = OrderedRunner::builder(deep).devices(2).stack_size(16 << 20).build()?;
    /// assert_eq!(pool.run([1])?, [1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Locks the GPUs of the devices, so that no other run of this machine that locks them uses them too.
    ///
    /// They are locked from before the first `producer_init` until the producers have ended. By default no
    /// lock is taken, and no other run's lock is looked at.
    ///
    /// ```
    /// use gangline::gpu::GpuLock;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x))).devices(2);
    /// let mut pool = builder.lock_gpus(GpuLock::or_fail()).build()?; // no GPU among two CPU producers
    /// assert_eq!(pool.run([1])?, [1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn lock_gpus(mut self, lock: GpuLock) -> Self {
        self.gpu_lock = Some(lock);
        self
    }

    /// Sets the number of threads of each CPU producer; by default its share of the cores.
    ///
    /// candle, and many other libraries, compute with rayon on as many threads as there are cores. If
    /// several producers do so at once, they compete for the cores, and the same results take longer. So if
    /// several places have the CPU, each such producer gets a rayon pool of its own, and its hooks are
    /// called in it. Parallel iterators, `join`, `scope` and candle's convolutions and matrix products stay
    /// in that pool. With one producer for each core, as in [`Devices::available`], a pool has one thread,
    /// and the work of a hook stays on the producer's own thread.
    ///
    /// ```
    /// use gangline::device::CpuThreads;
    /// use gangline::{OrderedRunner, map};
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
    /// A producer without the CPU in its place, such as `cuda:0`, gets no pool, and neither does the
    /// consumer: there rayon uses its global pool. Places made with
    /// [`names_only`](crate::Devices::names_only) count like devices.
    ///
    /// # Threads
    ///
    /// The producer's own thread, `gangline-p0`, is the first of its pool. The others are named
    /// `gangline-p0-1` and so on, and have the runner's [stack size](Builder::stack_size). They start
    /// before `producer_init` and are joined when the runner is closed. If the operating system refuses
    /// one, building fails with [`Error::Thread`], which names it. Nothing is leaked, however often a
    /// runner is closed and activated. `close` waits for work that a hook gave to `rayon::spawn`.
    ///
    /// # What is not limited
    ///
    /// - Since 0.11, candle processes tensors of 65,536 elements or more, elementwise or quantized, with
    ///   threads that are not rayon's. The whole process has one set of them, which serves one caller at a
    ///   time and stays until the process ends. If there are as many producers as cores, set the variable
    ///   `CANDLE_NUM_THREADS=1` to do without it.
    /// - MKL has threads of its own, and the variables `MKL_NUM_THREADS` and `OMP_NUM_THREADS`.
    /// - A hook that installs itself in another pool, by `ThreadPool::install` or candle's
    ///   `Device::with_context`, is in that one.
    ///
    /// # When to take the global pool
    ///
    /// - If a hook gives work to `rayon::spawn` and waits for it by other means than rayon's, say a
    ///   channel: a pool of one thread has no thread left to do it, and the hook waits for ever.
    ///   `rayon::scope` and `join` do the work themselves while they wait.
    /// - If a hook makes its own thread the first of a pool (`use_current_thread`): rayon refuses that on a
    ///   thread that belongs to a pool already.
    #[cfg(feature = "rayon")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
    pub fn cpu_threads(mut self, threads: impl Into<CpuThreads>) -> Self {
        self.cpu_threads = threads.into();
        self
    }

    /// Builds the runner: starts all producers at once, and returns when every `producer_init` has
    /// returned.
    ///
    /// # Errors
    ///
    /// If a setting is not allowed; if the devices cannot be locked, or not used by this build on this
    /// machine; if a thread cannot be started; if a `producer_init` fails or panics; or if the token
    /// cancels the building. The other producers are ended first.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let error = builder.devices(2).window(0).build().err().expect("a window of 0 is refused");
    /// println!("{error}");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn build(self) -> Result<Pool<R, O>, Error> {
        self.build_with(ProducerFactory::threads)
    }

    /// Like [`build`](Builder::build), with the producers that `factory` makes.
    pub(crate) fn build_with(
        mut self,
        factory: impl FnOnce(R) -> ProducerFactory<R>,
    ) -> Result<Pool<R, O>, Error> {
        let devices = self.devices.take().unwrap_or_else(|| Ok(Devices::available()))?;
        let most = self.batch.map_or(1, |batch| batch.most());
        if most == 0 {
            return Err(BuildError::Batch {}.into());
        }
        if self.batch.is_some() && self.runner.batch_hook() == BatchHook::Missing {
            return Err(BuildError::SingleItems {}.into());
        }
        let batching = batching(self.batch, &self.measures)?;
        self.check_survival(devices.len())?;
        self.check_lifespan()?;
        if let Some(window) = self.window.filter(|&window| window < most) {
            return Err(BuildError::Window { window, least: most }.into());
        }
        #[cfg(feature = "rayon")]
        if self.cpu_threads == CpuThreads::Exactly(0) {
            return Err(BuildError::CpuThreads {}.into());
        }
        self.told.settings = self.listed();
        let places = devices.places_with_gpus();
        let settings = Settings {
            devices,
            order: self.order,
            window: self.window,
            batching,
            stack_size: self.stack_size,
            replacements: self.replacements,
            end_timeout: self.limits.end,
            gpu_lock: self.gpu_lock,
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads,
            token: self.token,
        };
        let measures = self.measures.is_some().then_some(self.measures);
        let factory = factory(self.runner);
        let run_settings = RunSettings {
            measures,
            policy: self.policy,
            places,
            copy: self.copy,
            // In a run, only states that are recycled end.
            limits: TimeLimits {
                end: self.limits.end.filter(|_| self.recycle_after.is_some()),
                ..self.limits
            },
            recycle_after: self.recycle_after,
            bypass: factory.bypass(),
            name: self.name,
            hash: self.hash,
            journal: self.journal,
        };
        let engine =
            Engine::new(factory, self.cfg, settings, run_settings, self.told, self.observers)?;
        Ok(Pool::new_with(engine))
    }
}

impl<R: Runner + 'static> Builder<R, RuntimeOrder> {
    /// Sets the order in which the consumer sees results. The default is [`Order::Input`].
    ///
    /// ```
    /// use gangline::{AnyOrderRunner, Order, map};
    ///
    /// let builder = AnyOrderRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let pool = builder.devices(2).order(Order::Completion).build()?;
    /// assert_eq!(pool.order(), Order::Completion);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

/// Combines the batch rule with the limits that were given.
fn batching<I>(batch: Option<Batch>, measures: &Measures<I>) -> Result<Option<Batching>, Error> {
    for measure in [Measure::Cost, Measure::Padded, Measure::Weight] {
        match measures.most(measure) {
            Some(0) => return Err(BuildError::Limit { measure }.into()),
            Some(_) if batch.is_none() && measure != Measure::Weight => {
                return Err(BuildError::NoBatch { measure }.into());
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
        f.field("replacements", &self.replacements);
        f.field("recycle_after", &self.recycle_after);
        f.field("policy", &self.policy);
        f.field("limits", &self.limits);
        f.field("gpu_lock", &self.gpu_lock);
        #[cfg(feature = "rayon")]
        f.field("cpu_threads", &self.cpu_threads);
        f.finish_non_exhaustive()
    }
}
