//! The attempts that took the longest.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::report_lane::LaneWork;
use super::span::short;
use crate::seconds;

/// An attempt that took long. A batch is one, with its first item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SlowItem {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if the builder has a [key](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.key).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The producer's number.
    pub producer: usize,
    /// The attempt; the first is 1.
    pub attempt: u32,
    /// The size of its batch. All items of a batch took this long. 1 without batches.
    pub together: u64,
    /// How long the attempt took.
    #[serde(with = "seconds")]
    pub took: Duration,
}

/// The number of attempts that are kept.
pub(super) const MOST: usize = 20;

/// The slowest attempts so far, slowest first.
#[derive(Debug, Default)]
pub(super) struct Slowest(Vec<(u64, SlowAttempt)>);

#[derive(Debug)]
struct SlowAttempt {
    item: u64,
    key: Option<Arc<str>>,
    producer: usize,
    attempt: u32,
    together: u64,
}

impl Slowest {
    /// Whether an item of the same batch is kept. Items of a batch take equally long.
    fn has_batch(&self, producer: usize, work: &LaneWork, took: u64) -> bool {
        let is_of_batch = |(other_took, other): &(u64, SlowAttempt)| {
            let of = (*other_took, other.producer, other.together, other.attempt);
            of == (took, producer, work.together, work.attempt)
        };
        work.together > 1 && self.0.iter().any(is_of_batch)
    }

    /// Considers an attempt that took `took` nanoseconds.
    pub(super) fn see(&mut self, producer: usize, work: &LaneWork, took: u64) {
        if self.0.len() == MOST && self.0[MOST - 1].0 >= took
            || self.has_batch(producer, work, took)
        {
            return;
        }
        let slow = SlowAttempt {
            item: work.item,
            key: work.key.as_ref().map(short),
            producer,
            attempt: work.attempt,
            together: work.together,
        };
        self.0.truncate(MOST - 1);
        let place = self.0.partition_point(|(other, _)| *other >= took);
        self.0.insert(place, (took, slow));
    }

    pub(super) fn items(&self) -> Vec<SlowItem> {
        self.0.iter().map(|(took, slow)| slow.report(Duration::from_nanos(*took))).collect()
    }

    /// The key of an item, if it is among the slowest.
    pub(super) fn key(&self, item: u64) -> Option<&Arc<str>> {
        self.0.iter().find(|(_, slow)| slow.item == item)?.1.key.as_ref()
    }
}

impl SlowAttempt {
    fn report(&self, took: Duration) -> SlowItem {
        SlowItem {
            item: self.item,
            key: self.key.as_deref().map(str::to_owned),
            producer: self.producer,
            attempt: self.attempt,
            together: self.together,
            took,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_are_kept_and_the_first_of_equals() {
        let mut slowest = Slowest::default();
        for item in 0..1_000 {
            let work =
                LaneWork { item, key: Some(format!("k{item}").into()), ..LaneWork::default() };
            slowest.see(0, &work, item % 100);
        }
        let items = slowest.items();
        assert_eq!(items.len(), MOST);
        assert_eq!((items[0].item, items[1].item, items[10].item), (99, 199, 98));
        assert_eq!(slowest.key(199).map(|key| &**key), Some("k199"));
        assert_eq!(slowest.key(0), None);
    }
}
