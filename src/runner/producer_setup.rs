//! What a producer begins with: its place in the device list, its configuration and its resources.

use std::sync::Arc;

use crate::cfg::CfgNode;
use crate::device::{Devices, HeldGpus, Place};
use crate::error::Site;

/// One producer's place in the device list, with its resources.
#[derive(Debug)]
pub struct ProducerSetup {
    /// The position in the list.
    pub producer: usize,
    pub(crate) place: Place,
    pub(crate) cfg: Arc<CfgNode>,
    /// The number of places in the list.
    pub(crate) producers: usize,
    /// The seed of the run, from which the random numbers of items come.
    pub seed: u64,
    #[cfg(feature = "candle")]
    pub(crate) candle: crate::device::CandleDevices,
    /// The number of threads of its own pool; `None` without a pool.
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: Option<usize>,
    /// Released with the last setup: no other run gets a GPU that a producer still works on. It is the
    /// last field, so candle has closed the GPU by then.
    #[expect(dead_code, reason = "it is held, not read")]
    pub(crate) gpus: Option<Arc<HeldGpus>>,
}

impl ProducerSetup {
    /// The setup of a producer in a list of devices, without configuration, thread pool and locks.
    ///
    /// # Panics
    ///
    /// If the list has fewer places.
    pub fn plain(producer: usize, devices: &Devices) -> Self {
        let place = devices.place(producer).expect("the caller knows the list").clone();
        ProducerSetup {
            producer,
            cfg: Arc::default(),
            producers: devices.len(),
            seed: 0,
            #[cfg(feature = "candle")]
            candle: crate::device::CandleDevices::new(&place, devices.meaning()),
            #[cfg(feature = "rayon")]
            cpu_threads: None,
            place,
            gpus: None,
        }
    }

    /// The configuration as text, for a process that makes the runner.
    ///
    /// # Errors
    ///
    /// If it has what a text cannot hold.
    #[cfg(feature = "config-files")]
    pub fn cfg_as_text(&self) -> Result<String, crate::error::Error> {
        let text = self.cfg.to_yaml();
        text.map_err(|error| crate::error::WorkerError::Cfg { source: error.into() }.into())
    }

    /// Where an error happened: on this producer, with these items.
    pub fn site(&self, items: &[u64], attempt: Option<u32>) -> Site {
        Site {
            items: items.to_vec(),
            device: self.place.devices().first().copied(),
            producer: Some(self.producer),
            attempt,
            ..Site::default()
        }
    }
}
