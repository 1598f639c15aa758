//! The seats of a pool, one for each lane.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gangline::backend::Bell;

use crate::hook_times::HookTimes;
use crate::publication::News;
use crate::wire::Joining;

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
pub(crate) struct SeatedWorker {
    pub(crate) id: String,
    /// The number of the worker's part in the run.
    pub(crate) part: u64,
    pub(crate) host: Arc<str>,
    pub(crate) pid: u32,
    pub(crate) capacity: usize,
    pub(crate) producers: usize,
    /// The duration of its `producer_init`.
    pub(crate) init: Duration,
}

/// A worker that has left its seat during a run.
#[derive(Debug)]
pub(crate) struct Departed {
    /// The times of its hooks, as it has reported them.
    pub(crate) times: HookTimes,
    /// How it was lost; `None` if it left in order.
    pub(crate) lost: Option<WorkerLoss>,
}

/// How a worker was lost.
#[derive(Debug, Clone)]
pub(crate) struct WorkerLoss {
    pub(crate) why: Arc<str>,
    /// How long it had given no sign of life by then.
    pub(crate) silent: Duration,
}

impl SeatedWorker {
    /// The worker with this id, as it describes itself.
    pub(crate) fn new(id: String, joining: Joining) -> Self {
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
    pub(super) fn vacate(&mut self, lost: Option<WorkerLoss>) {
        let gone = self.worker.take();
        self.lost =
            gone.zip(lost.as_ref()).map(|(gone, lost)| format!("{}: {}", gone.host, lost.why));
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
