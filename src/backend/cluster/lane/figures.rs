//! The figures of a lane's worker for the report of a run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::cluster::board::SeatedWorker;
use crate::concurrency::now;
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::observe::run_stats::RunStats;

/// Notes what it costs to reach the worker of a lane.
pub(super) struct Figures<'a> {
    lane: usize,
    stats: &'a RunStats,
    events: &'a EventLog,
    /// The worker that was noted last.
    worker: Option<String>,
    /// When the last answers came, at most one for each item that the worker can have in hooks.
    answers: VecDeque<Instant>,
    capacity: usize,
}

impl<'a> Figures<'a> {
    pub(super) fn new(lane: usize, stats: &'a RunStats, events: &'a EventLog) -> Self {
        let (worker, answers) = (None, VecDeque::new());
        Figures { lane, stats, events, worker, answers, capacity: 1 }
    }

    /// A worker is in the seat.
    pub(super) fn came(&mut self, worker: &Arc<SeatedWorker>) {
        let before = self.worker.replace(worker.id.clone());
        let is_another = before.is_some_and(|before| before != worker.id);
        self.capacity = worker.capacity;
        self.answers.clear();
        self.stats.note_worker(self.lane, |it| {
            it.host = Some(worker.host.to_string());
            it.pid = Some(worker.pid);
            it.restarts += u64::from(is_another);
        });
        let host = worker.host.clone();
        self.events.tell(Event::WorkerJoined { producer: self.lane, host });
    }

    /// The seat is empty.
    pub(super) fn left(&self) {
        self.events.tell(Event::WorkerLeft { producer: self.lane });
    }

    pub(super) fn begun(&self, bytes: usize) {
        self.stats.note_worker(self.lane, |it| it.bytes_down += bytes as u64);
    }

    /// Items came back without an attempt, or went out once more.
    pub(super) fn returned(&self, items: u64) {
        if items > 0 && self.worker.is_some() {
            self.stats.note_worker(self.lane, |it| it.returned += items);
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
        self.stats.note_worker(self.lane, |it| {
            it.wire_wait += wait;
            it.bytes_up += bytes as u64;
        });
    }
}
