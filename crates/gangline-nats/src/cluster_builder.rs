//! Producers on many machines.

use gangline::order::OrderKind;
use gangline::process::Recipe;
use gangline::{Builder, Runner};

use crate::in_cluster::InCluster;
use crate::nats::Nats;

/// What this crate adds to a [`Builder`].
pub trait ClusterBuilder<R: Runner>: Sized {
    /// Has workers on other machines call the producers' hooks. NATS JetStream carries the items.
    ///
    /// A worker is a process of this program with `GANGLINE_NATS` in its environment: its `main` must begin with
    /// [`worker_main`](crate::worker_main). It makes its runner by the [`Recipe`], from the
    /// [configuration](gangline::Builder::cfg), on the devices in `GANGLINE_DEVICES`. Workers may come and go during a run.
    /// The consumer's hooks stay in this process, and so do order, retries and the journal.
    ///
    /// A worker that is killed or cut off costs the items in its hooks one [attempt](gangline::Builder::retries). Any item
    /// may be worked on twice; each is consumed once.
    ///
    /// # Errors
    ///
    /// [`build`](gangline::Builder::build) fails with [`Error::Worker`](gangline::Error::Worker) if the broker cannot be
    /// reached or refuses, and if fewer workers than [`min_workers`](Nats::min_workers) have joined within
    /// [`wait_for`](Nats::wait_for). Devices belong to the workers, so it refuses [`devices`](gangline::Builder::devices). It
    /// also refuses `recycle_after`, `replace_lost`, `min_producers`, `lock_gpus`, `cpu_threads` and `processes`.
    ///
    /// ```no_run
    /// use gangline::closures::FnMap;
    /// use gangline::process::Recipe;
    /// use gangline::{OrderedRunner, ProducerContext, Result, map};
    /// use gangline_nats::{ClusterBuilder, Nats, worker_main};
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
    fn cluster(self, recipe: &'static Recipe<R>, nats: Nats) -> Self;
}

impl<R: Runner + 'static, O: OrderKind> ClusterBuilder<R> for Builder<R, O> {
    fn cluster(self, recipe: &'static Recipe<R>, nats: Nats) -> Self {
        self.backend(InCluster::new(*recipe, nats))
    }
}
