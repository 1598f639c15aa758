//! Workers that have left in order, and whose last results are still to be read.
//!
//! A worker says on the subject of notices that it leaves, and its results are in a stream. Nothing orders the two, so
//! the notice may overtake results that the broker stored earlier. Without the wait, finished items would count as
//! lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The workers that leave or were banned, and how far the results are read. Places are those in the stream of results.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The workers that get no seat again.
    pub(super) banned: HashSet<String>,
    /// The place of the last result that was read.
    read: u64,
    leaving: Vec<LeavingWorker>,
}

#[derive(Debug)]
pub(super) struct LeavingWorker {
    pub(super) worker: String,
    /// The part that it leaves. It may have begun another since.
    pub(super) part: u64,
    /// Why it was lost; `None` if it leaves in order.
    pub(super) lost: Option<Arc<str>>,
    /// The place of its last result; 0 without one.
    pub(super) last_result: u64,
    pub(super) since: Instant,
}

impl Departures {
    pub(super) fn note_read(&mut self, place: u64) {
        self.read = self.read.max(place);
    }

    pub(super) fn add(&mut self, leaving: LeavingWorker) {
        self.leaving.push(leaving);
    }

    /// Whether a worker waits here.
    pub(super) fn has(&self, worker: &str) -> bool {
        self.leaving.iter().any(|it| it.worker == worker)
    }

    /// Removes the workers whose results were all read, and those that have waited for `most`: the broker may have lost
    /// their results.
    pub(super) fn take_due(&mut self, now: Instant, most: Duration) -> Vec<LeavingWorker> {
        let read = self.read;
        let is_due =
            |it: &mut LeavingWorker| it.last_result <= read || now.duration_since(it.since) >= most;
        self.leaving.extract_if(.., is_due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_leaves_once_its_results_are_read() {
        let (now, lease) = (Instant::now(), Duration::from_secs(5));
        let mut departures = Departures::default();
        for (worker, last_result) in [("a", 0), ("b", 7), ("c", 9)] {
            let worker = worker.to_owned();
            let leaving = LeavingWorker { worker, part: 1, lost: None, last_result, since: now };
            departures.add(leaving);
        }
        let due = |departures: &mut Departures, now| {
            let due = departures.take_due(now, lease);
            due.into_iter().map(|it| it.worker).collect::<Vec<_>>()
        };
        assert_eq!(due(&mut departures, now), ["a"]);
        departures.note_read(8);
        // One that is delivered again, since it was returned.
        departures.note_read(3);
        assert_eq!((due(&mut departures, now), departures.has("c")), (vec!["b".to_owned()], true));
        assert_eq!(due(&mut departures, now + lease), ["c"], "the broker has lost the result");
        assert!(!departures.has("c"));
    }
}
