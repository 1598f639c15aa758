//! Producers on many machines.

use std::sync::Arc;

use super::Builder;
use crate::api::pool::{OrderKind, Pool};
use crate::backends::cluster::hosting::BatchLimits;
use crate::backends::cluster::lane::{Cluster, ClusterLane};
use crate::backends::cluster::nats::Nats;
use crate::backends::process::worker_entry::may_start_workers;
use crate::backends::remote::recipe::Recipe;
use crate::base::Measure;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::{Device, Devices};
use crate::error::{BuildError, Error, WorkerError};
use crate::producers::producer_factory::{MakeBackend, ProducerFactory};
use crate::run::run_settings::Overdue;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Has workers on other machines call the producers' hooks. NATS JetStream carries the items.
    ///
    /// A worker is a process of this program with `GANGLINE_NATS` in its environment: its `main` must begin with
    /// [`worker_main`](crate::worker_main). It makes its runner by the [`Recipe`], from the
    /// [configuration](Builder::cfg), on the devices in `GANGLINE_DEVICES`. Workers may come and go during a run.
    /// The consumer's hooks stay in this process, and so do order, retries and the journal.
    ///
    /// A worker that is killed or cut off costs the items in its hooks one [attempt](Builder::retries). Any item
    /// may be worked on twice; each is consumed once.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) fails with [`Error::Worker`] if the broker cannot be
    /// reached or refuses, and if fewer workers than [`min_workers`](Nats::min_workers) have joined within
    /// [`wait_for`](Nats::wait_for). Devices belong to the workers, so it refuses [`devices`](Builder::devices). It
    /// also refuses `recycle_after`, `replace_lost`, `min_producers`, `lock_gpus`, `cpu_threads` and `processes`.
    ///
    /// ```no_run
    /// use gangline::cluster::Nats;
    /// use gangline::closures::FnMap;
    /// use gangline::process::Recipe;
    /// use gangline::{OrderedRunner, ProducerContext, Result, map, worker_main};
    ///
    /// fn init(_: &ProducerContext<'_>) -> Result<()> {
    ///     Ok(())
    /// }
    /// fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
    ///     Ok(x * x)
    /// }
    /// static SQUARES: Recipe<FnMap<(), u64, u64>> = Recipe::new("squares", |_| Ok(map(init, work)));
    ///
    /// fn main() -> Result<()> {
    ///     worker_main(&[&SQUARES]);
    ///     let squares: FnMap<(), u64, u64> = map(init, work);
    ///     let builder = OrderedRunner::builder(squares).retries(2);
    ///     let mut pool = builder.cluster(&SQUARES, Nats::connect("nats://127.0.0.1:4222")).build()?;
    ///     println!("{:?}", pool.run(0..100)?);
    ///     Ok(())
    /// }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "nats")))]
    pub fn cluster(mut self, recipe: &'static Recipe<R>, nats: Nats) -> Self {
        self.cluster = Some((*recipe, nats));
        self
    }

    pub(super) fn build_in_cluster(mut self) -> Result<Pool<R, O>, Error> {
        let (recipe, nats) = self.cluster.take().expect("the caller has looked");
        if !may_start_workers() {
            return Err(WorkerError::Nested {}.into());
        }
        if let Some((setting, instead)) = self.not_in_cluster() {
            return Err(BuildError::NotInCluster { setting, instead }.into());
        }
        if let Some((option, allowed, given)) = nats.out_of_bounds() {
            return Err(BuildError::ClusterOption { option, allowed, given }.into());
        }
        nats.check().map_err(|source| WorkerError::Cluster { source })?;
        self.wrapper = None;
        // A place for each seat. The workers have devices of their own.
        let places = vec![vec![Device::Cpu]; nats.seats()];
        self.devices = Some(Devices::from_places(places).map(Devices::names_only));
        #[cfg(feature = "rayon")]
        {
            self.cpu_threads = CpuThreads::Global;
        }
        let most = |measure| self.measures.most(measure);
        let batches = self.batch.map(|rule| BatchLimits {
            rule,
            most_cost: most(Measure::Cost),
            most_padded: most(Measure::Padded),
        });
        let cluster =
            Arc::new(Cluster::new(nats.anchored(), self.limits, self.stack_size, batches));
        let counted = cluster.clone();
        let make: Arc<MakeBackend<R::Input, R::Output>> = Arc::new(move |setup, shared| {
            Box::new(ClusterLane::new(cluster.clone(), recipe, setup, shared))
        });
        self.build_with(|runner| {
            let factory = ProducerFactory::leasing(runner, make, Overdue::Ended);
            factory.with_seats(Arc::new(move || counted.capacity()))
        })
    }

    /// The first setting that a cluster refuses, and what to write instead.
    fn not_in_cluster(&self) -> Option<(&'static str, &'static str)> {
        #[cfg(feature = "rayon")]
        let has_threads = self.cpu_threads != CpuThreads::default();
        #[cfg(not(feature = "rayon"))]
        let has_threads = false;
        let refused = [
            (self.devices.is_some(), "devices", "set `GANGLINE_DEVICES` for each worker"),
            (self.recycle_after.is_some(), "recycle_after", "leave it out"),
            (self.replacements > 0, "replace_lost", "start another worker"),
            (self.policy.min_producers.is_some(), "min_producers", "call `Nats::min_workers`"),
            (self.gpu_lock.is_some(), "lock_gpus", "leave it out"),
            (has_threads, "cpu_threads", "leave it out"),
            (self.workers.is_some(), "processes", "leave one of the two out"),
        ];
        let found = refused.into_iter().find(|(is_set, ..)| *is_set)?;
        Some((found.1, found.2))
    }
}
