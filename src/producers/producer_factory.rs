//! Makes the producers of a pool.

use std::any::Any;
use std::sync::Arc;

use gangline_scheduler::Bypass;

use crate::producers::backend::Backend;
use crate::producers::shared::Shared;
use crate::run::run_settings::Overdue;
use crate::runner::ProducerSetup;

/// The runner of a pool, and the kind of backend that calls its producer hooks.
pub(crate) struct ProducerFactory<I, T> {
    /// Its type is known where consumer hooks are called; `make` has it for the others.
    runner: Arc<dyn Any + Send + Sync>,
    make: Arc<MakeBackend<I, T>>,
    bypass: Bypass,
    overdue: Overdue,
    /// If the backends form batches: the number of items that they can have now.
    capacity: Option<Arc<Capacity>>,
}

/// Counts the items that the producers can have at the same time.
pub type Capacity = dyn Fn() -> usize + Send + Sync;

/// Makes a backend without a state, on the producer's own thread.
pub type MakeBackend<I, T> = dyn Fn(ProducerSetup, Shared) -> Box<dyn Backend<I, T>> + Send + Sync;

impl<I, T> Clone for ProducerFactory<I, T> {
    fn clone(&self) -> Self {
        ProducerFactory {
            runner: self.runner.clone(),
            make: self.make.clone(),
            bypass: self.bypass,
            overdue: self.overdue,
            capacity: self.capacity.clone(),
        }
    }
}

impl<I, T> ProducerFactory<I, T> {
    /// `bypass`: whether the backends that `make` returns work on untracked items too, and not on leases only.
    pub(crate) fn new(
        runner: Arc<dyn Any + Send + Sync>,
        make: Arc<MakeBackend<I, T>>,
        bypass: Bypass,
        overdue: Overdue,
    ) -> Self {
        ProducerFactory { runner, make, bypass, overdue, capacity: None }
    }

    /// The hooks are called where a backend has placed the producers. These work on leases only.
    pub(crate) fn placed(
        runner: Arc<dyn Any + Send + Sync>,
        make: Arc<MakeBackend<I, T>>,
        overdue: Overdue,
        capacity: Option<Arc<Capacity>>,
    ) -> Self {
        ProducerFactory { runner, make, bypass: Bypass::Never, overdue, capacity }
    }
}

impl<I, T> ProducerFactory<I, T> {
    /// Whether its producers take items that pass the scheduler by.
    pub(crate) fn bypass(&self) -> Bypass {
        self.bypass
    }

    /// What its producers do with hooks that exceed their timeouts.
    pub(crate) fn overdue(&self) -> Overdue {
        self.overdue
    }

    /// Whether its backends form the batches.
    pub(crate) fn forms_batches(&self) -> bool {
        self.capacity.is_some()
    }

    /// The number of items that its producers can have now; `None` if that is one for each, or a batch.
    pub(crate) fn capacity(&self) -> Option<usize> {
        self.capacity.as_ref().map(|count| count())
    }

    /// Whether its producers are seats, which workers take.
    pub(crate) fn has_seats(&self) -> bool {
        self.capacity.is_some()
    }

    /// The runner, as a value of its own type.
    pub(crate) fn runner<R: Any>(&self) -> &R {
        self.runner.downcast_ref().expect("it was made of a runner of this type")
    }

    /// The runner, for a thread that outlives the pool's value.
    pub(crate) fn shared_runner<R: Any + Send + Sync>(&self) -> Arc<R> {
        let runner = self.runner.clone().downcast();
        runner.unwrap_or_else(|_| unreachable!("it was made of a runner of this type"))
    }

    /// Makes a producer without a state, on its own thread.
    pub(super) fn make(&self, setup: ProducerSetup, shared: Shared) -> Box<dyn Backend<I, T>> {
        (self.make)(setup, shared)
    }
}
