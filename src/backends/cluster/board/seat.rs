//! The seats of a pool, one for each lane.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backends::cluster::hook_times::HookTimes;
use crate::backends::cluster::publication::News;
use crate::backends::cluster::wire::Joining;
use crate::concurrency::bell::Bell;

/// A seat: one lane, with the worker that works for it.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) worker: Option<Arc<SeatedWorker>>,
    /// The id of the last worker.
    pub(super) last: Option<String>,
    /// The times of the last worker's hooks, as it has reported them.
    pub(super) times: HookTimes,
    /// The workers that have left the seat, for the lane.
    pub(super) departed: Vec<Departed>,
    /// Wakes the lane; `None` while the lane is in no run.
    pub(super) bell: Option<Arc<dyn Bell>>,
    /// The number of the run in which the lane is.
    pub(super) run: Option<u64>,
    /// News for the lane, which takes them with its mail.
    pub(super) news: Vec<News>,
    /// The publications of this lane.
    pub(super) held: BTreeSet<u64>,
    /// The last run that the lane has left.
    pub(super) left_run: Option<u64>,
    /// Whether no further worker gets the seat, since its producer was quarantined.
    pub(super) is_banned: bool,
    /// How its worker was lost, until one takes any seat.
    pub(super) lost: Option<String>,
}

#[derive(Debug)]
pub(in crate::backends::cluster) struct SeatedWorker {
    pub(in crate::backends::cluster) id: String,
    /// The number of the worker's part in the run.
    pub(in crate::backends::cluster) part: u64,
    pub(in crate::backends::cluster) host: Arc<str>,
    pub(in crate::backends::cluster) pid: u32,
    pub(in crate::backends::cluster) capacity: usize,
    pub(in crate::backends::cluster) producers: usize,
    /// The duration of its `producer_init`.
    pub(in crate::backends::cluster) init: Duration,
}

/// A worker that has left its seat during a run.
#[derive(Debug)]
pub(in crate::backends::cluster) struct Departed {
    /// The times of its hooks, as it has reported them.
    pub(in crate::backends::cluster) times: HookTimes,
    /// Why it was lost; `None` if it left in order.
    pub(in crate::backends::cluster) lost: Option<Arc<str>>,
}

impl SeatedWorker {
    /// The worker with this id, as it describes itself.
    pub(in crate::backends::cluster) fn new(id: String, joining: Joining) -> Self {
        let Joining { part, host, pid, capacity, producers, init } = joining;
        let number = |number: u32| number.max(1) as usize;
        let (capacity, producers) = (number(capacity), number(producers));
        SeatedWorker { id, part, host: host.into(), pid, capacity, producers, init }
    }
}

impl Seat {
    /// Seats a worker, and rings.
    pub(super) fn take(&mut self, worker: SeatedWorker) {
        (self.last, self.times) = (Some(worker.id.clone()), HookTimes::default());
        self.worker = Some(Arc::new(worker));
        self.ring();
    }

    /// Takes the seat from its worker, and rings; `lost` says why, if the worker did not leave in order.
    pub(super) fn vacate(&mut self, lost: Option<Arc<str>>) {
        let gone = self.worker.take();
        self.lost = gone.zip(lost.as_ref()).map(|(gone, lost)| format!("{}: {lost}", gone.host));
        // A lane without a run has nothing to report.
        self.departed.extend(self.run.map(|_| Departed { times: self.times, lost }));
        self.ring();
    }

    /// Ranks the seat for a worker; the seat with the lowest rank suits it best.
    pub(super) fn rank_for(&self, worker: &str) -> u8 {
        match &self.last {
            Some(last) if last == worker => 0,
            None => 1,
            Some(_) => 2,
        }
    }

    pub(super) fn ring(&self) {
        self.bell.iter().for_each(|bell| bell.ring());
    }
}
