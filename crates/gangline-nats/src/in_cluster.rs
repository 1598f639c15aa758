//! A cluster as the backend of a pool.

use std::sync::Arc;

use gangline::backend::{
    GivenSettings, MakeBackend, PlacedProducers, PoolBackend, check_may_start,
};
use gangline::process::Recipe;
use gangline::{Device, Devices, Error, Runner};

use super::lane::{Cluster, ClusterLane};
use super::nats::Nats;
use super::session::cluster;
use crate::ClusterError;

/// Has workers on other machines call the hooks of producers.
pub(crate) struct InCluster<R: Runner> {
    recipe: Recipe<R>,
    nats: Nats,
}

impl<R: Runner> InCluster<R> {
    pub(crate) fn new(recipe: Recipe<R>, nats: Nats) -> Self {
        InCluster { recipe, nats }
    }
}

impl<R: Runner + 'static> PoolBackend<R::Input, R::Output> for InCluster<R> {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn place(
        self: Box<Self>,
        given: GivenSettings,
    ) -> Result<PlacedProducers<R::Input, R::Output>, Error> {
        check_may_start()?;
        let InCluster { recipe, nats } = *self;
        if let Some((setting, instead)) = not_in_cluster(&given) {
            return Err(cluster(ClusterError::Setting { setting, instead }));
        }
        if let Some((option, allowed, given)) = nats.out_of_bounds() {
            return Err(cluster(ClusterError::Option { option, allowed, given }));
        }
        nats.check().map_err(cluster)?;
        // A place for each seat. The workers have devices of their own.
        let places = vec![vec![Device::Cpu]; nats.seats()];
        let devices = Devices::from_places(places).map(Devices::names_only)?;
        let all = Cluster::new(nats.anchored(), given.limits, given.stack_size, given.batch);
        let all = Arc::new(all);
        let counted = all.clone();
        let make: Arc<MakeBackend<R::Input, R::Output>> = Arc::new(move |setup, shared| {
            Box::new(ClusterLane::new(all.clone(), recipe, setup, shared))
        });
        let placed = PlacedProducers::new(devices, make);
        Ok(placed.with_seats(Arc::new(move || counted.capacity())))
    }
}

/// The first setting that has no meaning in a cluster, and what to write instead.
fn not_in_cluster(given: &GivenSettings) -> Option<(&'static str, &'static str)> {
    let is_listed = |name| given.listed.contains_key(name);
    let refused = [
        (given.devices.is_some(), "devices", "set `GANGLINE_DEVICES` for each worker"),
        (is_listed("recycle_after"), "recycle_after", "leave it out"),
        (is_listed("replace_lost"), "replace_lost", "start another worker"),
        (is_listed("min_producers"), "min_producers", "call `Nats::min_workers`"),
        (is_listed("lock_gpus"), "lock_gpus", "leave it out"),
        (given.has_cpu_threads(), "cpu_threads", "leave it out"),
    ];
    let found = refused.into_iter().find(|(is_set, ..)| *is_set)?;
    Some((found.1, found.2))
}
