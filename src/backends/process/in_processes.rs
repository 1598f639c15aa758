//! Child processes as the backend of a pool.

use std::sync::Arc;

use super::keeper::Keeper;
use super::processes::Processes;
use super::worker_entry::check_may_start;
use super::worker_process::KeeperSettings;
use crate::backends::remote::item_codec::ItemCodec;
use crate::device::Devices;
use crate::error::Error;
use crate::producers::pool_backend::{GivenSettings, PlacedProducers, PoolBackend};
use crate::producers::producer_factory::MakeBackend;

/// Puts each producer into a child process of its own.
pub struct InProcesses<I, T> {
    codec: ItemCodec<I, T>,
    processes: Processes,
}

impl<I, T> InProcesses<I, T> {
    /// The children are started as `processes` says. Items are written by `codec`.
    pub fn new(codec: ItemCodec<I, T>, processes: Processes) -> Self {
        InProcesses { codec, processes }
    }
}

impl<I: 'static, T: 'static> PoolBackend<I, T> for InProcesses<I, T> {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn place(self: Box<Self>, given: GivenSettings) -> Result<PlacedProducers<I, T>, Error> {
        check_may_start()?;
        let InProcesses { codec, processes } = *self;
        let retries = processes.retries;
        let devices = given.devices.unwrap_or_else(Devices::available);
        let settings = Arc::new(KeeperSettings {
            processes: processes.anchored(),
            limits: given.limits,
            names_only: devices.is_labels(),
            stack_size: given.stack_size,
            #[cfg(feature = "rayon")]
            cpu_threads: given.cpu_threads.each(&devices),
        });
        let make: Arc<MakeBackend<I, T>> = Arc::new(move |setup, shared| {
            Box::new(Keeper::new(codec, settings.clone(), setup, shared))
        });
        Ok(PlacedProducers { retries, ..PlacedProducers::new(devices, make) })
    }
}
