//! The settings of a pool.

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::batch::Batching;

use crate::base::Order;
use crate::cfg::CfgNode;
use crate::concurrency::cancel::{CancelToken, SeenRequests};
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::{Devices, GpuLock, HeldGpus};
use crate::error::Error;
use crate::producers::Building;
use crate::producers::producer_threads::ThreadSettings;
use crate::producers::startup::FirstInit;
use crate::producers::thread_wrapper::ThreadWrapper;
use crate::runner::ProducerSetup;

/// The settings of a pool, beside its runner and configuration.
#[derive(Debug, Clone)]
pub(crate) struct PoolSettings {
    pub(crate) devices: Devices,
    pub(crate) order: Order,
    /// `None`: the window grows by itself.
    pub(crate) window: Option<usize>,
    /// `None`: items are worked on one by one.
    pub(crate) batching: Option<Batching>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) wrapper: Option<ThreadWrapper>,
    pub(crate) first_init: FirstInit,
    /// The number of lost producers that may be replaced, from one activation to the next.
    pub(crate) replacements: usize,
    /// How long a `producer_end` may take.
    pub(crate) end_timeout: Option<Duration>,
    pub(crate) gpu_lock: Option<GpuLock>,
    /// The seed of the run, from which the random numbers of items come.
    pub(crate) seed: u64,
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: CpuThreads,
    pub(crate) token: CancelToken,
}

impl PoolSettings {
    /// Locks the GPUs of the devices, if that was asked for. `seen` are the requests of the token that are spent.
    pub(crate) fn lock_gpus(
        &self,
        seen: SeenRequests,
        building: &Building,
    ) -> Result<Option<Arc<HeldGpus>>, Error> {
        let Some(lock) = &self.gpu_lock else { return Ok(None) };
        let alarm = || {
            // A cancel from before the build is not spent by it. It ends the wait for the lock, and later the
            // first run.
            if self.token.is_cancelled_since(seen) {
                building.alarm().ring();
            }
            building.alarm().listen()
        };
        let held = lock.take(&self.devices, &alarm)?;
        held.map(|held| Some(Arc::new(held))).ok_or(Error::Cancelled {})
    }

    /// How the producers' threads are made.
    pub(crate) fn threads(
        &self,
        cfg: &Arc<CfgNode>,
        gpus: Option<Arc<HeldGpus>>,
    ) -> ThreadSettings {
        let (settings, cfg) = (self.clone(), cfg.clone());
        let setup = move |place| settings.producer_setup(place, &cfg, gpus.as_ref());
        ThreadSettings {
            setup: Box::new(setup),
            stack_size: self.stack_size,
            wrapper: self.wrapper.clone(),
            first_init: self.first_init,
            replacements: self.replacements,
            end_timeout: self.end_timeout,
        }
    }

    /// What the producer of a place is made with.
    fn producer_setup(
        &self,
        producer: usize,
        cfg: &Arc<CfgNode>,
        gpus: Option<&Arc<HeldGpus>>,
    ) -> ProducerSetup {
        let devices = &self.devices;
        let place = devices.place(producer).expect("there are as many places as that").clone();
        ProducerSetup {
            producer,
            cfg: cfg.clone(),
            producers: devices.len(),
            seed: self.seed,
            #[cfg(feature = "candle")]
            candle: crate::device::CandleDevices::new(&place, devices.meaning()),
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads.each(devices).filter(|_| place.has_cpu()),
            place,
            gpus: gpus.cloned(),
        }
    }
}
