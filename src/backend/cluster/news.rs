//! What a lane hears from its coordinator.

use std::sync::Arc;
use std::time::Duration;

use super::wire::Outcome;
use crate::error::ClusterError;

/// What a lane hears of its publications.
#[derive(Debug)]
pub(super) enum News {
    /// The worker of this lane begins the item.
    Begun(u64),
    Answer(u64, Box<Reply>),
    /// The worker that had begun it is gone.
    Lost(u64, Arc<str>),
    /// No worker has it, nor the broker.
    Vanished(u64),
    /// The broker does not take its input.
    Refused(u64, Box<ClusterError>),
    /// No hook of this lane's worker has an item up to this publication.
    Drained(u64),
    /// The connection was restored: what was sent may be lost.
    Restored,
}

/// What a worker says of an item.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    /// The encoded output.
    pub(super) output: Vec<u8>,
    /// The host of the worker, if it is still known.
    pub(super) host: Option<Arc<str>>,
    /// The time from the beginning of its hook to the answer.
    pub(super) busy: Duration,
    /// How often the broker had to deliver the item again.
    pub(super) redeliveries: u64,
}
