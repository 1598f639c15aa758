//! Reports the attempts of a lane's worker to observers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::observe::event_log::{EventLog, EventWriter};
use crate::scheduler::Lease;

/// Tells observers when a hook of the worker begins an item, and when the coordinator has the outcome.
pub(super) struct Attempts<'a> {
    lane: usize,
    events: &'a EventLog,
    /// `None` if there are no observers.
    writer: Option<EventWriter>,
    /// The items in hooks, by publication.
    begun: BTreeMap<u64, u64>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(lane: usize, events: &'a EventLog) -> Self {
        let (writer, begun) = (events.writer(lane), BTreeMap::new());
        Attempts { lane, events, writer, begun }
    }

    pub(super) fn begin(&mut self, publication: u64, lease: &Lease, key: Option<Arc<str>>) {
        let Some(writer) = &mut self.writer else { return };
        let item = lease.items[0];
        // Between two items the worker may have waited.
        writer.pause();
        writer.started(item, key, lease.attempt);
        self.begun.insert(publication, item);
    }

    pub(super) fn end(&mut self, publication: u64) {
        if let (Some(item), Some(writer)) = (self.begun.remove(&publication), &mut self.writer) {
            writer.finished(item);
        }
    }

    /// Ends all attempts, since the run is over and no hook has an item.
    pub(super) fn end_all(&mut self) {
        while let Some((&publication, _)) = self.begun.first_key_value() {
            self.end(publication);
        }
        self.events.return_writer(self.lane, self.writer.take());
    }
}
