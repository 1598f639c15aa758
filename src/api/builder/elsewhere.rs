//! Producers that are not on threads of this process.

use super::Builder;
use crate::api::pool::{OrderKind, Pool};
use crate::base::Measure;
#[cfg(feature = "rayon")]
use crate::device::CpuThreads;
use crate::error::{BuildError, Error};
use crate::producers::pool_backend::{BatchLimits, GivenSettings, PoolBackend};
use crate::producers::producer_factory::ProducerFactory;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Puts the producers where `backend` says: see the [module](crate::backend).
    #[doc(hidden)]
    pub fn backend(mut self, backend: impl PoolBackend<R::Input, R::Output> + 'static) -> Self {
        self.backends.retain(|it| it.name() != backend.name());
        self.backends.push(Box::new(backend));
        self
    }

    /// [Builds](Builder::build) a runner with producers in its backend.
    pub(super) fn build_elsewhere(mut self) -> Result<Pool<R, O>, Error> {
        let backend = self.backends.pop().expect("the caller has looked");
        if let Some(other) = self.backends.first() {
            return Err(BuildError::Backends { one: other.name(), other: backend.name() }.into());
        }
        let most = |measure| self.measures.most(measure);
        let batch = self.batch.map(|rule| BatchLimits {
            rule,
            most_cost: most(Measure::Cost),
            most_padded: most(Measure::Padded),
        });
        let placed = backend.place(GivenSettings {
            devices: self.devices.take().transpose()?,
            limits: self.limits,
            stack_size: self.stack_size,
            batch,
            #[cfg(feature = "rayon")]
            cpu_threads: self.cpu_threads,
            listed: self.listed(),
        })?;
        self.devices = Some(Ok(placed.devices));
        if let Some(retries) = placed.retries {
            self.policy.retries = retries;
        }
        // Their hooks are elsewhere, and so are the pools of threads. 0 is refused below.
        self.wrapper = None;
        #[cfg(feature = "rayon")]
        if self.cpu_threads != CpuThreads::Exactly(0) {
            self.cpu_threads = CpuThreads::Global;
        }
        let (make, overdue, capacity) = (placed.make, placed.overdue, placed.capacity);
        self.build_with(|runner| ProducerFactory::placed(runner, make, overdue, capacity))
    }
}
