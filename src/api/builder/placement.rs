//! Settings of what runs where, and of the order and the window.

use super::Builder;
use crate::api::pool::{OrderKind, RuntimeOrder};
use crate::base::Order;
use crate::cfg::CfgNode;
use crate::concurrency::cancel::CancelToken;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::{GpuLock, IntoDevices};
use crate::producers::thread_wrapper::ThreadWrapper;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Sets where the producers work: one producer for each place. The default is
    /// [`Devices::available`](crate::Devices::available).
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

    /// Sets the number of threads of each CPU producer; by default its share of the cores.
    ///
    /// candle, and many other libraries, compute with rayon on as many threads as there are cores. If
    /// several producers do so at once, they compete for the cores, and the same results take longer. So if
    /// several places have the CPU, each such producer gets a rayon pool of its own, and its hooks are
    /// called in it. Parallel iterators, `join`, `scope` and candle's convolutions and matrix products stay
    /// in that pool. With one producer for each core, as in
    /// [`Devices::available`](crate::Devices::available), a pool has one thread, and the work of a
    /// hook stays on the producer's own thread.
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
    /// one, building fails with [`Error::Thread`](crate::Error::Thread), which
    /// names it. Nothing is leaked, however often a
    /// runner is closed and activated. `close` waits for work that a hook gave to `rayon::spawn`.
    ///
    /// # What is not limited
    ///
    /// - Before each matrix product, candle looks for `RAYON_NUM_THREADS` in the environment, whatever the size of
    ///   the pool. If it is not set, candle counts the cores; small networks spend most of their time on that. It
    ///   splits large products into that number of parts. A pool of fewer threads computes the parts in turn, which
    ///   costs nothing. [`candle_threads`](crate::device::candle_threads) sets the variable.
    /// - Since 0.11, candle processes tensors of 65,536 elements or more, elementwise or quantized, with
    ///   threads that are not rayon's. The whole process has one set of them, which serves one caller at a
    ///   time and stays until the process ends. With several producers on the CPU,
    ///   [`candle_threads`](crate::device::candle_threads) sets `CANDLE_NUM_THREADS=1`, to do without it.
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

    /// Sets the stack size of the runner's threads, in bytes. The default is that of [`std::thread`].
    ///
    /// The hooks of a child process (`Builder::processes`) run on its main thread by default, whose stack the system
    /// sizes; with this, on a thread of their own.
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

    /// Calls the life of each producer's thread within a function.
    ///
    /// The function is called on the thread of the producer, and has to call its argument once. All hooks of the producer
    /// run within that call, from its `producer_init` to its `producer_end`, also after a state was lost; and so does the
    /// thread's wait for items. It is for what a thread has to do once, before it uses a library and after: attach to the
    /// runtime of a language, initialise COM, or hold a pool of objects to release.
    ///
    /// With `cpu_threads`, only the first thread of a pool, on which the hooks run, is within the function. A
    /// producer that [replaces](Builder::replace_lost) a lost one has a thread of its own, for which it is called again.
    ///
    /// It has no effect if the hooks run elsewhere: in child processes (`Builder::processes`), whose `main` can do the
    /// same around `worker_main`, or in a cluster.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) fails with [`Error::Wrapper`](crate::Error::Wrapper) if the function returns or panics
    /// without having called its argument. If it panics afterwards, or calls it again, which does nothing,
    /// [`close`](crate::Pool::close) has that error.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// use gangline::{OrderedRunner, map};
    ///
    /// thread_local! {
    ///     static IS_ATTACHED: Cell<bool> = const { Cell::new(false) };
    /// }
    ///
    /// let attached = map(|_| Ok(()), |_, _, _: u64| Ok(IS_ATTACHED.get()));
    /// let builder = OrderedRunner::builder(attached).devices(2).around_producers(|producer| {
    ///     IS_ATTACHED.set(true);
    ///     producer();
    ///     IS_ATTACHED.set(false);
    /// });
    /// assert_eq!(builder.build()?.run(0..3)?, [true; 3]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn around_producers(
        mut self,
        function: impl Fn(&mut (dyn FnMut() + Send)) + Send + Sync + 'static,
    ) -> Self {
        self.wrapper = Some(ThreadWrapper::new(function));
        self
    }

    /// Sets the seed of a run, from which [`item_seed`](crate::ProducerContext::item_seed) derives the seeds of
    /// the items. The default is 0, so each run has the same random numbers.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let seeds = |seed, producers| {
    ///     let drawn = map(|_| Ok(()), |cx, _, _: u64| Ok(cx.item_seed()));
    ///     OrderedRunner::builder(drawn).devices(producers).seed(seed).build()?.run(0..9)
    /// };
    /// assert_eq!(seeds(7, 1)?, seeds(7, 3)?);
    /// assert_ne!(seeds(7, 1)?, seeds(8, 1)?);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
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

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Sets the window: the largest number of items in flight. 1 makes the run serial; 0 is refused.
    ///
    /// By default the window starts at three items for each producer, at three of the largest
    /// [batches](Builder::batch), or at sixteen of those if they are [padded](Builder::max_padded_size). It
    /// grows while items are fast, to about 2 ms of work for each producer and at most 8,192 items. It
    /// shrinks when slow items follow. In input order it also grows while one slow item holds the results of
    /// others back: to 16 items (or batches) for each producer, and to 64 while the process has grown by less than a
    /// tenth of the memory that it may have (Linux).
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
    /// its own: [`Pool::cancel_token`](crate::Pool::cancel_token).
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
}
