//! What holds for every item of a runner.

use std::sync::Arc;

use crate::backend::threads::limits::Limits;
use crate::backend::threads::measures::Measures;
use crate::backend::threads::run_shape::Shape;
use crate::base::panic::catch;
use crate::device::Place;
use crate::journal::{Journal, KeyKind};
use crate::policy::{Policy, Stragglers, copy_after};
use crate::scheduler::{Config, Timeouts};

/// How items are measured, and what becomes of those that fail.
pub(crate) struct RunSettings<I> {
    /// `None` where nothing is measured.
    pub(crate) measures: Option<Measures<I>>,
    pub(crate) policy: Policy,
    /// The place of each producer. `None` where nobody shares a GPU.
    pub(crate) places: Option<Arc<[Place]>>,
    /// How an item is copied, so that it can be tried again. `None` where none is.
    pub(crate) copy: Option<CopyFn<I>>,
    pub(crate) limits: Limits,
    /// What an item is called. `None` where they have no names.
    pub(crate) name: Option<Box<NameFn<I>>>,
    /// A hash of what an item is. `None` where nobody compares them.
    pub(crate) hash: Option<Box<HashFn<I>>>,
    /// `None` where nothing is written down.
    pub(crate) journal: Option<Journal>,
}

/// What an item is called.
pub(crate) type NameFn<I> = dyn Fn(&I) -> String + Send + Sync;

/// A hash of what an item is.
pub(crate) type HashFn<I> = dyn Fn(&I) -> u64 + Send + Sync;

/// How a value is copied. `Clone` is asked of inputs only where this is made.
pub(crate) type CopyFn<I> = fn(&I) -> I;

impl<I> Default for RunSettings<I> {
    fn default() -> Self {
        RunSettings {
            measures: None,
            policy: Policy::default(),
            places: None,
            copy: None,
            limits: Limits::default(),
            name: None,
            hash: None,
            journal: None,
        }
    }
}

impl<I> RunSettings<I> {
    /// What items are known by from one run to the next.
    pub(crate) fn key_kind(&self) -> KeyKind {
        match (&self.name, &self.hash) {
            (Some(_), _) => KeyKind::Name,
            (None, Some(_)) => KeyKind::HashedPosition,
            (None, None) => KeyKind::Position,
        }
    }

    /// What the scheduler of a run of this shape goes by.
    pub(crate) fn scheduling(&self, shape: &Shape) -> Config {
        let Shape { order, producers, window, batching } = *shape;
        let Policy { on_error, retries, backoff, quarantine_after, stragglers, .. } = self.policy;
        let Limits { item, init, run } = self.limits;
        let step = self.limits.tick().unwrap_or_default();
        Config {
            producers,
            places: self.places.clone(),
            order,
            window,
            batching,
            on_error,
            retries,
            backoff,
            quarantine_after,
            copy_after: (stragglers == Stragglers::Copy).then(|| copy_after(None)),
            timeouts: Timeouts { item, init, run, step },
            min_producers: self.policy.min_producers.unwrap_or(1),
        }
    }

    /// A copy to keep while a hook has the item. One that cannot be made is not: the item then has no
    /// further attempt.
    pub(crate) fn copy_of(&self, item: &I) -> Option<I> {
        let copy = self.copy?;
        catch(|| copy(item))
            .inspect_err(|message| {
                tracing::warn!(%message, "an item panicked when it was cloned; it is not tried again");
            })
            .ok()
    }
}
