//! The settings that hold for every run of a runner.

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::OnError;
use gangline_scheduler::{Bypass, Config, Gpus, Input, LEAST_COPY_AFTER, Timeouts};

use crate::base::panic::catch;
use crate::device::DeviceMemory;
use crate::journal::{Journal, KeyKind};
use crate::policy::{Policy, Stragglers};
use crate::run::measures::Measures;
use crate::run::run_shape::{RunKind, RunShape};
use crate::run::time_limits::TimeLimits;

/// How items are measured, named, copied and recorded, and how failures are handled.
pub(crate) struct RunSettings<I, T> {
    /// `None` if items are not measured.
    pub(crate) measures: Option<Measures<I, T>>,
    pub(crate) policy: Policy,
    /// The place of each producer. `None` if no GPU is shared.
    pub(crate) places: Option<Arc<[Gpus]>>,
    /// For an item that does not fit into the memory of a device alone.
    pub(crate) memory: DeviceMemory,
    /// Copies an item for another attempt. `None` if inputs are not copied.
    pub(crate) copy: Option<CopyFn<I>>,
    pub(crate) limits: TimeLimits,
    /// The number of items after which a producer's state is ended and built anew.
    pub(crate) recycle_after: Option<u64>,
    pub(crate) bypass: Bypass,
    pub(crate) overdue: Overdue,
    /// The name of an item. `None` if items have no names.
    pub(crate) name: Option<Box<NameFn<I>>>,
    /// A hash of an item's content. `None` if the journal does not compare contents.
    pub(crate) hash: Option<Box<HashFn<I>>>,
    /// `None` without a journal.
    pub(crate) journal: Option<Journal>,
}

/// What happens to a hook that exceeds its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Overdue {
    /// Its thread is abandoned: the scheduler expires its lease.
    #[default]
    Abandoned,
    /// The backend ends it, and answers for its lease.
    Ended,
}

/// Returns the name of an item.
pub(crate) type NameFn<I> = dyn Fn(&I) -> String + Send + Sync;

/// Returns a hash of an item's content.
pub(crate) type HashFn<I> = dyn Fn(&I) -> u64 + Send + Sync;

/// Copies a value. Only the settings that create one require `Clone` of the input.
pub(crate) type CopyFn<I> = fn(&I) -> I;

impl<I, T> Default for RunSettings<I, T> {
    fn default() -> Self {
        RunSettings {
            measures: None,
            policy: Policy::default(),
            places: None,
            memory: DeviceMemory::default(),
            copy: None,
            limits: TimeLimits::default(),
            recycle_after: None,
            bypass: Bypass::default(),
            overdue: Overdue::default(),
            name: None,
            hash: None,
            journal: None,
        }
    }
}

impl<I, T> RunSettings<I, T> {
    /// Whether items are named or hashed.
    pub(crate) fn has_names(&self) -> bool {
        self.name.is_some() || self.hash.is_some()
    }

    /// How the journal identifies items.
    pub(crate) fn key_kind(&self) -> KeyKind {
        match (&self.name, &self.hash) {
            (Some(_), _) => KeyKind::Name,
            (None, Some(_)) => KeyKind::HashedPosition,
            (None, None) => KeyKind::Position,
        }
    }

    /// How long the start of the producers is waited for.
    pub(crate) fn startup_limit(&self) -> Option<Duration> {
        self.limits.init.filter(|_| self.overdue == Overdue::Abandoned)
    }

    /// The configuration of the scheduler for a run of this shape.
    pub(crate) fn scheduling(&self, shape: &RunShape) -> Config {
        let RunShape { order, producers, window, batching, kind } = *shape;
        let Policy { on_error, retries, backoff, quarantine_after, stragglers, .. } = self.policy;
        let run = self.limits.run;
        let (item, init, end) = match self.overdue {
            Overdue::Abandoned => (self.limits.item, self.limits.init, self.limits.end),
            Overdue::Ended => (None, None, None),
        };
        let step = self.limits.tick().unwrap_or_default();
        let (input, bypass, on_error) = match kind {
            RunKind::Stream => (Input::MayCome, self.bypass, on_error),
            RunKind::Task => (Input::MayCome, self.bypass, on_error),
            RunKind::Service => (Input::Calls, Bypass::Never, OnError::Skip),
        };
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
            copy_after: (stragglers == Stragglers::Copy).then_some(LEAST_COPY_AFTER),
            timeouts: Timeouts { item, init, run, end, step },
            min_producers: self.policy.min_producers.unwrap_or(1),
            bypass,
            input,
        }
    }

    /// Copies an item before a hook gets it. If the copy panics, the item has no further attempt.
    pub(crate) fn copy_of(&self, item: &I) -> Option<I> {
        let copy = self.copy?;
        catch(|| copy(item))
            .inspect_err(|message| {
                tracing::warn!(%message, "an item panicked when it was cloned; it is not tried again");
            })
            .ok()
    }
}
