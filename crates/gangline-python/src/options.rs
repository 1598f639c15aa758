//! The options of a pool, as the package's Python has checked them, and the pool that they make.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use gangline::device::IntoDevices;
use gangline::gpu::{GpuList, GpuLock};
use gangline::order::RuntimeOrder;
use gangline::process::{ForkServer, Processes, Recipe};
use gangline::{
    AnyOrderRunner, Batch, Builder, CancelToken, CfgNode, Devices, Error, Runner, Verdict,
};
use gangline_nats::ClusterBuilder;
use pyo3::prelude::*;

use crate::cluster::ClusterOption;
use crate::errors::{self, Refused};
use crate::messages::{FailedLoad, Messages, Shown};
use crate::objects::HeldObjects;
use crate::prints::PrintSender;
use crate::runner::{Functions, PyRunner, WorkShape};
use crate::setup::Setup;
use crate::shared;
use crate::threads::Threads;
use crate::times::read_time;

/// The options of a pool, with their names there. Times are texts: `5ms`, or a number of seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    /// The functions as a worker process rebuilds them; or what makes a worker in this process.
    functions: FunctionsOption,
    placement: Placement,
    /// The broker of the workers, if they are on other machines.
    cluster: Option<ClusterOption>,
    /// How a worker is started: the interpreter, and its arguments.
    command: (OsString, Vec<OsString>),
    /// What forks the workers instead, if something does.
    fork_server: Option<ForkServerOption>,
    /// The largest number of inputs in a list; `None` for single inputs.
    batch: Option<ListSize>,
    limits: Limits,
    /// How many calls may be open.
    queue: Option<usize>,
    lock_gpus: Option<LockGpus>,
    /// Whether failed attempts are shown.
    verbose: bool,
}

/// What the workers of a pool or of a stage share with the others of the same driver.
pub(crate) struct Surroundings<'a> {
    pub(crate) prints: &'a PrintSender,
    pub(crate) failed: &'a FailedLoad,
    pub(crate) objects: &'a Arc<HeldObjects>,
    pub(crate) token: &'a CancelToken,
    /// The name of the stage, for messages. `None` in a pool.
    pub(crate) stage: Option<&'a str>,
}

/// Where the workers run.
#[derive(Debug, Clone, FromPyObject)]
#[pyo3(from_item_all)]
struct Placement {
    gpus: Option<String>,
    devices: Option<String>,
    workers: Option<usize>,
    share: bool,
    threads: Option<usize>,
    sees_all: bool,
}

/// What bounds failures and times.
#[derive(Debug, Clone, FromPyObject)]
#[pyo3(from_item_all)]
struct Limits {
    retries: u32,
    min_workers: Option<usize>,
    max_restarts: usize,
    retry_delay: Option<String>,
    timeout: Option<String>,
    start_timeout: Option<String>,
    end_timeout: Option<String>,
    batch_wait: Option<String>,
    latency: Option<String>,
}

/// The functions of a pool, as the package's Python gives them.
#[derive(Debug, FromPyObject)]
enum FunctionsOption {
    #[pyo3(transparent)]
    Pickled(Vec<u8>),
    /// For other machines.
    #[pyo3(transparent)]
    Text(String),
    #[pyo3(transparent)]
    Here(Py<PyAny>),
}

/// How workers are forked.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
struct ForkServerOption {
    /// Those of the interpreter.
    arguments: Vec<OsString>,
    /// What `gangline._fork_server` reads.
    preparation: Vec<u8>,
}

/// How many inputs a list has.
#[derive(Debug, Clone, Copy, FromPyObject)]
enum ListSize {
    #[pyo3(transparent)]
    Most(usize),
    /// By the times of the lists before: the largest is given, or `None`.
    Chosen((Option<usize>,)),
}

/// Whether a GPU that another run has is waited for.
#[derive(Debug, Clone, FromPyObject)]
struct LockGpus {
    #[pyo3(item)]
    waits: bool,
}

impl Options {
    /// Makes the runner of a pool, or of this stage of a pipeline. Functions for threads are given to `objects`.
    pub(crate) fn runner(
        &self,
        stage: Option<usize>,
        objects: &Arc<HeldObjects>,
    ) -> Result<PyRunner, Refused> {
        let devices = self.placement.devices()?;
        let threads = Threads::of(self.placement.threads, devices.len());
        let shape = if self.batch.is_some() { WorkShape::List } else { WorkShape::Single };
        let functions = match &self.functions {
            FunctionsOption::Pickled(pickled) => {
                let setup = Setup::new(pickled);
                Functions::Sent(setup.map_err(|error| Refused::Cfg { source: error.into() })?)
            }
            FunctionsOption::Text(text) => Functions::SentAway(text.clone()),
            FunctionsOption::Here(start) => {
                let start = Python::attach(|py| start.clone_ref(py));
                Functions::Here(objects.hold(start))
            }
        };
        let gpus = match self.cluster {
            None => gpu_ids(&devices),
            // Each worker knows its own.
            Some(_) => vec![],
        };
        let runner = PyRunner::new(functions, gpus, threads.count, shape, objects.clone());
        Ok(runner.of_stage(stage))
    }

    /// Makes the builder of a pool of this runner, and what its workers are started with.
    pub(crate) fn builder<R>(
        &self,
        runner: R,
        cfg: CfgNode,
        recipe: &'static Recipe<R>,
        around: &Surroundings<'_>,
    ) -> Result<PoolBuilder<R>, Refused>
    where
        R: Runner<Input: Clone> + 'static,
    {
        let messages = Messages {
            prints: around.prints.clone(),
            failed_attempts: if self.verbose { Shown::Yes } else { Shown::No },
            first_load: self.fails_at_first_load().then(|| around.failed.clone()),
            stage: around.stage.map(str::to_owned),
            token: around.token.clone(),
        };
        let builder = AnyOrderRunner::builder(runner).cfg(cfg);
        let builder = builder.observer(messages).cancel_token(around.token.clone());
        let builder = self.limits.apply(builder)?;
        let builder = match &self.cluster {
            None => self.limits.apply_here(builder.devices(self.placement.devices()?)),
            Some(cluster) => {
                let retries = self.limits.retries.saturating_add(DEATHS);
                let nats = cluster.nats(self.limits.min_workers)?;
                builder.cluster(recipe, nats).retries(retries)
            }
        };
        let builder = match self.batch {
            None => builder,
            Some(size) => builder.batch(self.limits.list(size)?),
        };
        let builder = match &self.lock_gpus {
            None => builder,
            Some(LockGpus { waits: true }) => builder.lock_gpus(GpuLock::or_wait()),
            Some(LockGpus { waits: false }) => builder.lock_gpus(GpuLock::or_fail()),
        };
        Ok(match &self.functions {
            FunctionsOption::Pickled(_) => builder.processes(recipe, self.processes(around)?),
            FunctionsOption::Text(_) => builder,
            // Attached once, a thread keeps its thread-local values from one call to the next.
            FunctionsOption::Here(_) => builder
                .retries(self.limits.retries)
                .around_producers(|life| Python::attach(|py| py.detach(life))),
        })
    }
}

/// The ids of the GPUs of a worker; `None` of one on another machine, which alone knows them.
pub(crate) type KnownGpus = Option<Vec<String>>;

/// The builder of a pool.
pub(crate) type PoolBuilder<R> = Builder<R, RuntimeOrder>;

impl Options {
    /// Whether a `load` that fails before any worker is ready is an error. On other machines, the next worker may do better.
    fn fails_at_first_load(&self) -> bool {
        self.limits.min_workers.is_none() && self.cluster.is_none()
    }

    /// How worker processes are started and ended.
    fn processes(&self, around: &Surroundings<'_>) -> Result<Processes, Refused> {
        let threads = Threads::of(self.placement.threads, self.placement.devices()?.len());
        let (program, args) = &self.command;
        let mut processes = Processes::new()
            .program(program)
            .args(args.iter().cloned())
            .max_frame(u32::MAX)
            .shared_memory(&shared::memory())
            // They are ended in the middle of their work by `terminate` only.
            .kill_after(None)
            .retries(self.limits.retries.saturating_add(DEATHS));
        if let Some(ForkServerOption { arguments, preparation }) = &self.fork_server {
            let server = ForkServer::new(program).args(arguments.iter().cloned());
            processes = processes.fork_server(server.preparation(preparation.clone()));
        }
        if self.placement.sees_all {
            processes = processes.all_gpus_visible();
        }
        for (name, value) in threads.variables {
            processes = processes.env(name, value);
        }
        let shown = around.prints.clone();
        Ok(processes.printed(move |_, bytes| shown.send(bytes)))
    }

    /// The ids of the GPUs of each worker, as the user counts them.
    pub(crate) fn places(&self) -> Result<Vec<KnownGpus>, Refused> {
        match &self.cluster {
            None => Ok(gpu_ids(&self.placement.devices()?).into_iter().map(Some).collect()),
            Some(cluster) => Ok(vec![None; cluster.max_workers]),
        }
    }

    /// How many calls of the pool may be open, if the user has said so.
    pub(crate) fn queue(&self) -> Option<usize> {
        self.queue
    }

    /// Whether the sizes of inputs and outputs are known. Those of a thread's objects are not.
    pub(crate) fn are_sizes_known(&self) -> bool {
        !matches!(self.functions, FunctionsOption::Here(_))
    }

    /// The largest number of inputs in a list, as far as the window is concerned.
    pub(crate) fn largest_list(&self) -> usize {
        match self.batch {
            None => 1,
            Some(ListSize::Most(most) | ListSize::Chosen((Some(most),))) => most,
            Some(ListSize::Chosen((None,))) => LARGEST_CHOSEN,
        }
    }
}

/// The room for lists of which the size is chosen.
const LARGEST_CHOSEN: usize = 128;

/// How often a worker may die in an attempt of an item beside its failures: a worker that was killed from outside does
/// the item no harm.
const DEATHS: u32 = 2;

impl Placement {
    fn devices(&self) -> Result<Devices, Refused> {
        let devices = match (&self.gpus, &self.devices) {
            (Some(_), Some(_)) => return Err(Refused::Both { first: "gpus", second: "devices" }),
            (Some(gpus), None) => {
                let refused = |source: Error| Refused::value("gpus", gpus, source);
                let list: GpuList = gpus.parse().map_err(|source| refused(Error::from(source)))?;
                match self.workers.filter(|_| self.share) {
                    Some(workers) => list.share(workers),
                    None => list.slots(list.len().max(1)),
                }
                .map_err(|source| refused(source.into()))?
            }
            (None, Some(devices)) => {
                let read = devices.into_devices();
                read.map_err(|source| Refused::value("devices", devices, source.into()))?
            }
            (None, None) => {
                let workers = self.workers.unwrap_or_else(num_cpus::get);
                let read = workers.into_devices();
                read.map_err(|source| {
                    Refused::value("workers", &workers.to_string(), source.into())
                })?
            }
        };
        Ok(devices.names_only())
    }
}

impl Limits {
    fn apply<R: Runner + 'static>(
        &self,
        builder: PoolBuilder<R>,
    ) -> Result<PoolBuilder<R>, Refused> {
        let retries = self.retries;
        let mut builder = builder.classify(move |error| {
            // A worker may die by no fault of its item, so the builder's number of retries bounds it.
            let is_spent = error.attempt().is_some_and(|attempt| attempt > retries);
            match error {
                Error::HookCrashed { .. } => Verdict::Retry,
                error if errors::has_lost_its_worker(error) => Verdict::Retry,
                _ if is_spent => Verdict::Skip,
                _ => Verdict::Retry,
            }
        });
        if let Some(delay) = time("retry_delay", &self.retry_delay)? {
            builder = builder.backoff(delay, delay);
        }
        if let Some(limit) = time("timeout", &self.timeout)? {
            builder = builder.item_timeout(limit);
        }
        if let Some(limit) = time("start_timeout", &self.start_timeout)? {
            builder = builder.init_timeout(limit);
        }
        if let Some(limit) = time("end_timeout", &self.end_timeout)? {
            builder = builder.end_timeout(limit);
        }
        Ok(builder)
    }

    /// Begins before all workers are ready, and starts lost ones again.
    fn apply_here<R: Runner + 'static>(&self, builder: PoolBuilder<R>) -> PoolBuilder<R> {
        let builder = builder.init_in_run().min_producers(self.min_workers.unwrap_or(1));
        builder.replace_lost(self.max_restarts)
    }

    fn list(&self, size: ListSize) -> Result<Batch, Refused> {
        let batch = match size {
            ListSize::Most(most) => Batch::up_to(most),
            ListSize::Chosen((None,)) => Batch::auto(),
            ListSize::Chosen((Some(most),)) => Batch::auto().at_most(most),
        };
        let batch = match time("latency", &self.latency)? {
            Some(latency) => batch.latency(latency),
            None => batch,
        };
        Ok(match time("batch_wait", &self.batch_wait)? {
            Some(wait) => batch.within(wait),
            None => batch,
        })
    }
}

fn time(name: &'static str, text: &Option<String>) -> Result<Option<Duration>, Refused> {
    text.as_ref().map(|text| read_time(name, text)).transpose()
}

/// The ids of the GPUs of each place, as the user counts them.
fn gpu_ids(devices: &Devices) -> Vec<Vec<String>> {
    let ids = |place: &[gangline::Device]| {
        let id = |device: &gangline::Device| match device {
            gangline::Device::Cuda(index) => Some(index.to_string()),
            _ => None,
        };
        place.iter().filter_map(id).collect()
    };
    devices.places().map(ids).collect()
}
