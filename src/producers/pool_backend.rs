//! What puts the producers of a pool elsewhere than on threads of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gangline_scheduler::batch::Batch;

#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::device::Devices;
use crate::error::Error;
use crate::producers::producer_factory::{Capacity, MakeBackend};
use crate::run::run_settings::Overdue;
use crate::run::time_limits::TimeLimits;

/// Puts the producers of a pool elsewhere than on threads of this process: what `Builder::backend` takes.
///
/// It is asked once, when the pool is built. It checks the settings, and gives what makes a
/// [`Backend`](crate::producers::backend::Backend) for each place.
pub trait PoolBackend<I, T>: Send + Sync {
    /// The method of the builder that adds it, such as `processes`. Of several with one name, the last counts. A pool has
    /// no backends of two names.
    fn name(&self) -> &'static str;

    /// Says where the producers are, and how they are made.
    ///
    /// # Errors
    ///
    /// If a setting has no meaning there, or the backend cannot serve. Then no producer is started.
    fn place(self: Box<Self>, given: GivenSettings) -> Result<PlacedProducers<I, T>, Error>;
}

/// What a builder was told that may concern a backend.
#[derive(Debug, Clone)]
pub struct GivenSettings {
    /// The devices; `None` if none were given.
    pub devices: Option<Devices>,
    /// The time limits of hooks.
    pub limits: TimeLimits,
    /// The stack size of the threads that call hooks.
    pub stack_size: Option<usize>,
    /// How batches are formed, if they are.
    pub batch: Option<BatchLimits>,
    /// The threads of the producers on the CPU.
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: CpuThreads,
    /// The settings that differ from their defaults, by the methods of the builder, as reports list them.
    pub listed: BTreeMap<String, String>,
}

/// How batches are formed: the rule, and the limits of what is measured.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// What [`batch`](crate::Builder::batch) was given.
    pub rule: Batch,
    /// What [`max_batch_cost`](crate::Builder::max_batch_cost) was given.
    pub most_cost: Option<u64>,
    /// What [`max_padded_size`](crate::Builder::max_padded_size) was given.
    pub most_padded: Option<u64>,
}

impl GivenSettings {
    /// Whether `cpu_threads` was given.
    pub fn has_cpu_threads(&self) -> bool {
        #[cfg(feature = "rayon")]
        return self.cpu_threads != CpuThreads::default();
        #[cfg(not(feature = "rayon"))]
        return false;
    }
}

/// Where the producers of a pool are, and what makes them.
pub struct PlacedProducers<I, T> {
    pub(crate) devices: Devices,
    pub(crate) make: Arc<MakeBackend<I, T>>,
    pub(crate) overdue: Overdue,
    /// If the backends form batches: the number of items that they can have now.
    pub(crate) capacity: Option<Arc<Capacity>>,
    /// The number of retries, if not that of the builder.
    pub(crate) retries: Option<u32>,
}

impl<I, T> PlacedProducers<I, T> {
    /// A producer for each place in `devices`. `make` is called on the thread of the producer. The backends that it makes work
    /// on leases only, end hooks that exceed their timeouts, and answer for their leases.
    pub fn new(devices: Devices, make: Arc<MakeBackend<I, T>>) -> Self {
        PlacedProducers { devices, make, overdue: Overdue::Ended, capacity: None, retries: None }
    }

    /// Makes the producers seats, which workers take. The workers form the batches, so each seat leases single items: all
    /// seats together as many as `capacity` says.
    pub fn with_seats(self, capacity: Arc<Capacity>) -> Self {
        PlacedProducers { capacity: Some(capacity), ..self }
    }
}

impl<I, T> fmt::Debug for PlacedProducers<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacedProducers").field("devices", &self.devices).finish_non_exhaustive()
    }
}
