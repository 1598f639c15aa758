//! What a report and observers get to know of a producer whose hooks are elsewhere.

use std::sync::Arc;
use std::time::Duration;

use gangline_report::WorkerReport;

use crate::observe::event::{Event, seat_name};
use crate::observe::event_log::{EventLog, EventWriter};
use crate::observe::run_stats::{RunStats, SeatTime, Waits};

/// Records the worker of one producer for the report of a run and its observers.
#[derive(Clone, Copy)]
pub struct SeatRecord<'a> {
    producer: usize,
    stats: &'a RunStats,
    events: &'a EventLog,
}

impl<'a> SeatRecord<'a> {
    pub(super) fn new(producer: usize, stats: &'a RunStats, events: &'a EventLog) -> Self {
        SeatRecord { producer, stats, events }
    }

    /// Sets the times of the workers that the producer has had so far, in place of those of its thread.
    pub fn set_times(&self, times: SeatTime) {
        self.stats.set_seat(self.producer, times);
    }

    /// Changes the figures of the worker.
    pub fn change(&self, change: impl FnOnce(&mut WorkerReport)) {
        self.stats.note_worker(self.producer, change);
    }

    /// Tells that a worker on this host has taken the seat. `init`: the duration of its `producer_init`.
    pub fn joined(&self, host: &Arc<str>, init: Duration) {
        let (producer, host) = (self.producer, host.clone());
        let place = seat_name(&host, producer).into();
        self.events.tell(Event::WorkerJoined { producer, host, place });
        self.events.tell(Event::ProducerReady { producer, took: init, is_rebuilt: false });
    }

    /// Tells that the worker has left, and how it was lost if it was: it had given no sign of life for `silent`.
    pub fn left(&self, lost: Option<Arc<str>>, silent: Duration) {
        self.events.tell(Event::WorkerLeft { producer: self.producer, lost, silent });
    }

    /// Takes the record of the attempts, of which each producer has one. `None` if there are no observers.
    pub fn attempts(&self) -> Option<AttemptRecord<'a>> {
        let writer = self.events.writer(self.producer)?;
        Some(AttemptRecord { producer: self.producer, events: self.events, writer: Some(writer) })
    }
}

/// Tells observers when hooks begin items, and when their outcomes are known. It is given back when it is dropped.
pub struct AttemptRecord<'a> {
    producer: usize,
    events: &'a EventLog,
    /// `None` only when it is dropped.
    writer: Option<EventWriter>,
}

impl AttemptRecord<'_> {
    /// A hook begins an item. Before, the producer may have waited.
    pub fn began(&mut self, item: u64, key: Option<Arc<str>>, attempt: u32) {
        if let Some(writer) = &mut self.writer {
            writer.pause(Waits::default());
            writer.started(item, key, attempt);
        }
    }

    /// The outcome of an item is known.
    pub fn ended(&mut self, item: u64) {
        if let Some(writer) = &mut self.writer {
            writer.finished(item);
        }
    }
}

impl Drop for AttemptRecord<'_> {
    fn drop(&mut self) {
        self.events.return_writer(self.producer, self.writer.take());
    }
}
