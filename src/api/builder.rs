//! The settings of a runner.

// In the order in which the documentation shows their methods.
mod placement;

mod batching;

#[cfg(all(feature = "processes", target_os = "linux"))]
mod processes;

mod survival;

mod lifespan;

mod telling;

mod checks;

mod elsewhere;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use gangline_scheduler::batch::{Batch, Batching};

use super::pool::{OrderKind, Pool};
use crate::backends::threads::producer;
use crate::base::Measure;
use crate::base::Order;
use crate::cfg::{CfgError, CfgNode};
use crate::concurrency::cancel::CancelToken;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::{DeviceError, DeviceMemory, Devices, GpuLock};
use crate::engine::pool::Engine;
use crate::error::{BuildError, Error};
use crate::journal::Journal;
use crate::observe::event_log::ObserveOptions;
use crate::observe::observing::Observers;
use crate::policy::Policy;
use crate::producers::pool_backend::PoolBackend;
use crate::producers::pool_settings::PoolSettings;
use crate::producers::producer_factory::ProducerFactory;
use crate::producers::startup::FirstInit;
use crate::producers::thread_wrapper::ThreadWrapper;
use crate::run::measures::Measures;
use crate::run::run_settings::{CopyFn, HashFn, NameFn, Overdue, RunSettings};
use crate::run::time_limits::TimeLimits;
use crate::runner::Runner;

/// Builds a runner: see [`Pool::builder`].
///
/// | to | call |
/// |---|---|
/// | say where it works | [`devices`](Builder::devices), [`lock_gpus`](Builder::lock_gpus), [`stack_size`](Builder::stack_size), [`around_producers`](Builder::around_producers); `cpu_threads` (feature `rayon`) |
/// | work in child processes | `processes` (feature `processes`) |
/// | work on many machines | `cluster`, of the crate [gangline-nats](https://docs.rs/gangline-nats) |
/// | give it parameters | [`cfg`](Builder::cfg), [`seed`](Builder::seed) |
/// | choose the order, and how much is in flight | [`order`](Builder::order), [`window`](Builder::window), [`window_memory`](Builder::window_memory), [`least_open`](Builder::least_open) |
/// | work on many items at a time | [`batch`](Builder::batch), [`max_batch_cost`](Builder::max_batch_cost), [`max_padded_size`](Builder::max_padded_size) |
/// | go on after an item that failed | [`on_error`](Builder::on_error), [`max_failures`](Builder::max_failures), [`classify`](Builder::classify) |
/// | try again, or in two places | [`retries`](Builder::retries), [`backoff`](Builder::backoff), [`speculate`](Builder::speculate) |
/// | go on without a device that fails | [`quarantine_after`](Builder::quarantine_after), [`min_producers`](Builder::min_producers), [`replace_lost`](Builder::replace_lost) |
/// | limit times | [`item_timeout`](Builder::item_timeout), [`init_timeout`](Builder::init_timeout), [`run_timeout`](Builder::run_timeout), [`end_timeout`](Builder::end_timeout) |
/// | make states again that leak | [`recycle_after`](Builder::recycle_after) |
/// | end it from another thread | [`cancel_token`](Builder::cancel_token) |
/// | resume after a crash | [`journal`](Builder::journal), [`hashed_by`](Builder::hashed_by) |
/// | name items and the work | [`key`](Builder::key), [`describe`](Builder::describe) |
/// | see what happens | [`observer`](Builder::observer), [`timeline`](Builder::timeline); `progress`, `progress_desc` (feature `progress`) |
/// | build it, or begin before all devices are ready | [`build`](Builder::build), [`init_in_run`](Builder::init_in_run) |
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
    seed: u64,
    order: Order,
    window: Option<usize>,
    batch: Option<Batch>,
    measures: Measures<R::Input, R::Output>,
    stack_size: Option<usize>,
    wrapper: Option<ThreadWrapper>,
    first_init: FirstInit,
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
    /// One of each name.
    backends: Vec<Box<dyn PoolBackend<R::Input, R::Output>>>,
    #[cfg(test)]
    memory: Option<DeviceMemory>,
    kind: PhantomData<fn() -> O>,
}

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    pub(super) fn new(runner: R) -> Self {
        Builder {
            runner,
            devices: None,
            cfg: CfgNode::new(),
            seed: 0,
            order: O::ORDER,
            window: None,
            batch: None,
            measures: Measures::default(),
            stack_size: None,
            wrapper: None,
            first_init: FirstInit::default(),
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
            backends: vec![],
            #[cfg(test)]
            memory: None,
            kind: PhantomData,
        }
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
        if !self.backends.is_empty() {
            return self.build_elsewhere();
        }
        self.build_with(producer::factory)
    }

    /// Sets the memory of the devices.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn device_memory(mut self, memory: DeviceMemory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Adds a value to the configuration.
    pub(crate) fn add_to_cfg(mut self, path: &str, value: &str) -> Result<Self, CfgError> {
        self.cfg = self.cfg.thawed().with(path, value)?;
        Ok(self)
    }

    /// [Builds](Builder::build) a runner with the producers that `factory` makes.
    pub(crate) fn build_with(
        mut self,
        factory: impl FnOnce(Arc<R>) -> ProducerFactory<R::Input, R::Output>,
    ) -> Result<Pool<R, O>, Error> {
        let devices = self.devices.take().unwrap_or_else(|| Ok(Devices::available()))?;
        self.check_batch()?;
        let mut batching = batching(self.batch, &self.measures)?;
        if let (Some(batching), Some(window)) = (&mut batching, self.window) {
            batching.limit_to_window(window, devices.len());
        }
        self.check_survival(devices.len())?;
        self.check_lifespan()?;
        #[cfg(feature = "rayon")]
        if self.cpu_threads == CpuThreads::Exactly(0) {
            return Err(BuildError::CpuThreads {}.into());
        }
        self.told.settings = self.listed();
        let factory = factory(Arc::new(self.runner));
        let places = devices.places_with_gpus();
        let memory = DeviceMemory::new(&devices);
        #[cfg(test)]
        let memory = self.memory.unwrap_or(memory);
        let settings = PoolSettings {
            devices,
            order: self.order,
            window: self.window,
            batching: batching.filter(|_| !factory.forms_batches()),
            stack_size: self.stack_size,
            wrapper: self.wrapper,
            first_init: self.first_init,
            replacements: self.replacements,
            end_timeout: self.limits.end.filter(|_| factory.overdue() == Overdue::Abandoned),
            gpu_lock: self.gpu_lock.map(GpuLock::anchored),
            seed: self.seed,
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads,
            token: self.token,
        };
        let measures = self.measures.is_some().then_some(self.measures);
        let run_settings = RunSettings {
            measures,
            policy: self.policy,
            places,
            memory,
            copy: self.copy,
            // In a run, only states that are recycled end.
            limits: TimeLimits {
                end: self.limits.end.filter(|_| self.recycle_after.is_some()),
                ..self.limits
            },
            recycle_after: self.recycle_after,
            bypass: factory.bypass(),
            overdue: factory.overdue(),
            name: self.name,
            hash: self.hash,
            journal: self.journal.map(Journal::anchored),
        };
        let engine =
            Engine::new(factory, self.cfg, settings, run_settings, self.told, self.observers)?;
        Ok(Pool::new_with(engine))
    }
}

/// Combines the batch rule with the limits that were given.
fn batching<I, T>(
    batch: Option<Batch>,
    measures: &Measures<I, T>,
) -> Result<Option<Batching>, Error> {
    for measure in [Measure::Cost, Measure::Padded, Measure::Memory] {
        match measures.most(measure) {
            Some(0) => return Err(BuildError::Limit { measure }.into()),
            Some(_) if batch.is_none() && measure != Measure::Memory => {
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
