//! Producers in child processes.

use std::sync::Arc;

use super::Builder;
use crate::api::pool::{OrderKind, Pool};
use crate::backends::process::keeper::Keeper;
use crate::backends::process::processes::Processes;
use crate::backends::process::worker_entry::may_start_workers;
use crate::backends::process::worker_process::KeeperSettings;
#[cfg(feature = "nats")]
use crate::backends::remote::item_codec::ItemCodec;
use crate::backends::remote::recipe::Recipe;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::Devices;
use crate::error::{Error, WorkerError};
use crate::producers::producer_factory::{MakeBackend, ProducerFactory};
use crate::run::run_settings::Overdue;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Puts each producer into a child process of its own.
    ///
    /// A hook that crashes, exits or runs out of memory then costs its item one
    /// [attempt](Builder::retries), and never the run: the process is started again. A hook that exceeds
    /// [`item_timeout`](Builder::item_timeout) is killed. The consumer's hooks stay in this process.
    ///
    /// The child makes its runner by the [`Recipe`], from the [configuration](Builder::cfg). This program's
    /// `main` must begin with [`worker_main`](crate::worker_main), since the child runs the same program.
    ///
    /// In the child, the hooks run on the thread that called `worker_main`, which is the main thread. So they may set
    /// handlers of signals, and use libraries that ask for the main thread. With
    /// `cpu_threads`, it is the first thread of the pool. Only with a
    /// [`stack_size`](Builder::stack_size) they run on a thread of that size, `gangline-p0` and so on.
    ///
    /// An item is encoded, sent to the child and decoded there, and its output on the way back: 5 us for a small item
    /// if further ones are sent [ahead](Processes::ahead), 11 to 49 us for one alone, by the machine, and 11 ms
    /// for 8 MiB. With hooks of a millisecond, two children reach 0.98 of the rate of threads.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) fails with [`Error::Worker`] if a child cannot be
    /// started, does not become a worker within 10 s, or is of another version; if `make` fails in it; and in a
    /// process that was started as a worker and has not called `worker_main`.
    ///
    /// ```no_run
    /// use gangline::closures::FnMap;
    /// use gangline::process::{Processes, Recipe};
    /// use gangline::{OrderedRunner, ProducerContext, Result, map, worker_main};
    ///
    /// fn init(_: &ProducerContext<'_>) -> Result<()> {
    ///     Ok(())
    /// }
    /// fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
    ///     Ok(x * x) // a crash in here costs one attempt
    /// }
    /// static SQUARES: Recipe<FnMap<(), u64, u64>> = Recipe::new("squares", |_| Ok(map(init, work)));
    ///
    /// fn main() -> Result<()> {
    ///     worker_main(&[&SQUARES]);
    ///     let squares: FnMap<(), u64, u64> = map(init, work);
    ///     let builder = OrderedRunner::builder(squares).devices("cpu*2").retries(2);
    ///     let mut pool = builder.processes(&SQUARES, Processes::new()).build()?;
    ///     println!("{:?}", pool.run(0..100)?);
    ///     Ok(())
    /// }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "processes")))]
    pub fn processes(mut self, recipe: &'static Recipe<R>, processes: Processes) -> Self {
        self.workers = Some((recipe.items, processes));
        self
    }

    /// For the worker of a cluster.
    #[cfg(feature = "nats")]
    pub(crate) fn in_processes(
        mut self,
        codec: ItemCodec<R::Input, R::Output>,
        processes: Processes,
    ) -> Self {
        self.workers = Some((codec, processes));
        self
    }

    pub(super) fn build_in_processes(mut self) -> Result<Pool<R, O>, Error> {
        let (codec, processes) = self.workers.take().expect("the caller has looked");
        if !may_start_workers() {
            return Err(WorkerError::Nested {}.into());
        }
        if let Some(retries) = processes.retries {
            self.policy.retries = retries;
        }
        let devices = self.devices.take().unwrap_or_else(|| Ok(Devices::available()))?;
        let settings = KeeperSettings {
            processes: processes.anchored(),
            limits: self.limits,
            names_only: devices.is_labels(),
            stack_size: self.stack_size,
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads.each(&devices),
        };
        self.devices = Some(Ok(devices));
        // Their hooks are in the children.
        self.wrapper = None;
        // The pools are in the children. 0 is refused below.
        #[cfg(feature = "rayon")]
        if self.cpu_threads != CpuThreads::Exactly(0) {
            self.cpu_threads = CpuThreads::Global;
        }
        let settings = Arc::new(settings);
        let make: Arc<MakeBackend<R::Input, R::Output>> = Arc::new(move |setup, shared| {
            Box::new(Keeper::new(codec, settings.clone(), setup, shared))
        });
        self.build_with(|runner| ProducerFactory::leasing(runner, make, Overdue::Ended))
    }
}
