//! The figures of a lane's worker for the report of a run, and the events of its attempts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::backend::{AttemptRecord, SeatRecord, SeatTime, now};
use gangline_scheduler::Lease;

use crate::board::{Departed, SeatedWorker};
use crate::hook_times::HookTimes;

/// Records the times of a lane's workers, and the cost of sending items to them.
pub(super) struct Figures<'a> {
    record: SeatRecord<'a>,
    /// The id of the last worker in the seat.
    noted: Option<String>,
    /// The worker in the seat, and the times of its hooks before the run or its part began.
    here: Option<(Arc<SeatedWorker>, HookTimes)>,
    /// The times of the workers that have left the seat.
    earlier: HookTimes,
    seat: SeatTime,
    /// When the last answers came, at most one for each item that the worker can have in hooks.
    answers: VecDeque<Instant>,
    capacity: usize,
}

impl<'a> Figures<'a> {
    pub(super) fn new(record: SeatRecord<'a>) -> Self {
        let seat = SeatTime::default();
        // A seat without a worker has no times.
        record.set_times(seat);
        Figures {
            record,
            noted: None,
            here: None,
            earlier: HookTimes::default(),
            seat,
            answers: VecDeque::new(),
            capacity: 1,
        }
    }

    /// Records that a worker has the seat. `before` are the times of its hooks so far.
    pub(super) fn came(&mut self, worker: &Arc<SeatedWorker>, before: HookTimes) {
        let noted = self.noted.replace(worker.id.clone());
        let is_another = noted.is_some_and(|noted| noted != worker.id);
        self.capacity = worker.capacity;
        self.answers.clear();
        self.here = Some((worker.clone(), before));
        self.record.change(|it| {
            it.host = Some(worker.host.to_string());
            it.pid = Some(worker.pid);
            it.producers = worker.producers as u64;
            it.restarts += u64::from(is_another);
            it.lost = None;
        });
        (self.seat.since, self.seat.init) = (Some(now()), worker.init);
        self.record.set_times(self.seat);
        self.record.joined(&worker.host, worker.init);
    }

    /// Records that the worker has left the seat.
    pub(super) fn left(&mut self, Departed { times, lost }: Departed) {
        if self.here.is_none() {
            return;
        }
        self.note_times(times);
        let silent = lost.as_ref().map_or(Duration::ZERO, |lost| lost.silent);
        // It may have been silent since before it had this seat.
        let silent = self.seat.since.map_or(Duration::ZERO, |since| silent.min(now() - since));
        self.seat.dead += silent;
        self.end();
        if let Some(lost) = &lost {
            self.record.change(|it| {
                it.losses += 1;
                it.lost = Some(lost.why.to_string());
            });
        }
        self.record.left(lost.map(|lost| lost.why), silent);
    }

    /// Records the times of the worker's hooks so far.
    pub(super) fn note_times(&mut self, times: HookTimes) {
        if let Some((worker, before)) = &self.here {
            let all = self.earlier.and(times.since(*before).mean(worker.producers));
            self.seat = SeatTime {
                working: all.working,
                states_lost: all.states_lost,
                rebuilds: all.rebuilds,
                rebuilding: all.rebuilding,
                ..self.seat
            };
            self.record.set_times(self.seat);
        }
    }

    /// Adds the worker's times to those of earlier workers, since it takes part no more.
    pub(super) fn end(&mut self) {
        self.here = None;
        let SeatTime { working, states_lost, rebuilds, rebuilding, .. } = self.seat;
        self.earlier = HookTimes { working, states_lost, rebuilds, rebuilding };
        let since = self.seat.since.take();
        self.seat.present += since.map_or(Duration::ZERO, |since| now() - since);
        self.record.set_times(self.seat);
    }

    pub(super) fn begun(&self, bytes: usize) {
        self.record.change(|it| it.bytes_down += bytes as u64);
    }

    /// Items came back without an attempt, or went out once more.
    pub(super) fn returned(&self, items: u64) {
        if items > 0 && self.noted.is_some() {
            self.record.change(|it| it.returned += items);
        }
    }

    /// An output came of an item that was published at a time, and was in its hook for `busy`.
    pub(super) fn answered(&mut self, published: Instant, busy: Duration, bytes: usize) {
        let now = now();
        // Before the answer that freed a producer, all of the worker's producers had other items: the item waited for them,
        // not for the wire.
        let has_room = self.answers.len() < self.capacity;
        let freed = if has_room { None } else { self.answers.pop_front() };
        self.answers.push_back(now);
        let since = freed.map_or(published, |freed| freed.max(published));
        let wait = now.saturating_duration_since(since).saturating_sub(busy);
        self.record.change(|it| {
            it.wire_wait += wait;
            it.bytes_up += bytes as u64;
        });
    }
}

/// Tells observers when a hook of the worker begins an item, and when the coordinator has the outcome.
pub(super) struct LaneAttempts<'a> {
    /// `None` if there are no observers.
    record: Option<AttemptRecord<'a>>,
    /// The items in hooks, by publication.
    begun: BTreeMap<u64, u64>,
}

impl<'a> LaneAttempts<'a> {
    pub(super) fn new(record: SeatRecord<'a>) -> Self {
        LaneAttempts { record: record.attempts(), begun: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, publication: u64, lease: &Lease, key: Option<Arc<str>>) {
        let Some(record) = &mut self.record else { return };
        let item = lease.items[0];
        record.began(item, key, lease.attempt);
        self.begun.insert(publication, item);
    }

    pub(super) fn end(&mut self, publication: u64) {
        if let (Some(item), Some(record)) = (self.begun.remove(&publication), &mut self.record) {
            record.ended(item);
        }
    }

    /// Ends all attempts, since the run is over and no hook has an item.
    pub(super) fn end_all(&mut self) {
        while let Some((&publication, _)) = self.begun.first_key_value() {
            self.end(publication);
        }
        self.record = None;
    }
}
