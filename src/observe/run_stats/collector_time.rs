//! The times of the collector, and the items that it waited for.

#[cfg(all(test, not(shuttle)))]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The times of the collector.
#[derive(Debug, Clone, Default)]
pub(crate) struct CollectorTime {
    /// The time at which the collector joined the run; `None` before that and after it has left.
    pub(crate) came: Option<Instant>,
    pub(crate) present: Duration,
    /// The duration of `consumer_init`, which is not part of `present`.
    pub(crate) init: Duration,
    pub(crate) window: u64,
    /// The time without any result.
    pub(crate) waited: Duration,
    /// The time in which the journal was written.
    pub(crate) journal: Duration,
    /// The time without the next result in order, while later ones had arrived.
    pub(crate) stalled: Duration,
    pub(crate) heads: AwaitedHeads,
}

/// The largest number of items in [`AwaitedHeads`].
const MOST_HEADS: usize = 20;

/// The items that the collector waited for the longest.
#[derive(Debug, Clone, Default)]
pub(crate) struct AwaitedHeads {
    /// The item that the collector waits for or waited for last, and the time of that wait.
    current: Option<(u64, Duration)>,
    /// By the time of the wait, so that the shortest is found first; at most [`MOST_HEADS`].
    worst: BTreeMap<(Duration, u64), ()>,
    /// The time of the wait for `current` when it was last reported.
    told: Duration,
}

/// The shortest wait for one item that is reported as an event.
const NEWS: Duration = Duration::from_millis(100);

impl AwaitedHeads {
    /// Adds the time of a wait for `item`.
    pub(crate) fn add(&mut self, item: u64, waited: Duration) {
        match &mut self.current {
            Some((current, time)) if *current == item => *time += waited,
            _ => {
                self.settle();
                self.current = Some((item, waited));
                self.told = Duration::ZERO;
            }
        }
    }

    /// Returns the time after which a wait for `item` is to be reported.
    pub(crate) fn news_in(&self, item: u64) -> Duration {
        let same = self.current.filter(|(current, _)| *current == item);
        same.map_or(NEWS, |(_, waited)| NEWS.max(2 * self.told).saturating_sub(waited))
    }

    /// Returns the current item and the time of its wait, each time that has doubled since it was last reported.
    pub(crate) fn news(&mut self) -> Option<(u64, Duration)> {
        let (item, waited) = self.current?;
        if waited < NEWS || waited < 2 * self.told {
            return None;
        }
        self.told = waited;
        Some((item, waited))
    }

    fn settle(&mut self) {
        let Some((item, waited)) = self.current.take() else { return };
        self.worst.insert((waited, item), ());
        if self.worst.len() > MOST_HEADS {
            self.worst.pop_first();
        }
    }

    /// Returns the items and the times of their waits, the longest first.
    pub(crate) fn into_worst(mut self) -> Vec<(u64, Duration)> {
        self.settle();
        self.worst.into_keys().rev().map(|(waited, item)| (item, waited)).collect()
    }
}
