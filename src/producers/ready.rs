//! How producers report whether they are ready.
//!
//! No type of the user occurs here, so a channel of this kind is compiled once, and not for each runner.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, bounded};

use crate::error::Error;

/// Where a producer reports whether it has its state.
#[derive(Debug, Clone)]
pub(crate) struct ReadySender(Sender<Report>);

/// Where the reports of producers arrive.
#[derive(Debug)]
pub(crate) struct ReadyReceiver(Receiver<Report>);

/// The place of a producer, and whether it has its state.
type Report = (usize, Result<(), Error>);

/// Why there is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReport {
    /// None has come in time.
    Yet,
    /// All senders are gone.
    Ever,
}

/// Capacity 0: a report that comes too late must be dropped by its sender, not by the channel.
pub(crate) fn ready_channel() -> (ReadySender, ReadyReceiver) {
    let (sender, receiver) = bounded(0);
    (ReadySender(sender), ReadyReceiver(receiver))
}

impl ReadySender {
    /// Returns the outcome if the receiver is gone.
    pub(crate) fn report(
        &self,
        place: usize,
        outcome: Result<(), Error>,
    ) -> Result<(), Result<(), Error>> {
        self.0.send((place, outcome)).map_err(|SendError((_, outcome))| outcome)
    }
}

impl ReadyReceiver {
    /// Waits for the next report. `None` once all senders are gone.
    pub(crate) fn next(&self) -> Option<Report> {
        self.0.recv().ok()
    }

    pub(crate) fn next_within(&self, limit: Duration) -> Result<Report, NoReport> {
        self.0.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoReport::Yet,
            RecvTimeoutError::Disconnected => NoReport::Ever,
        })
    }
}
