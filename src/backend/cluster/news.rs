//! What a lane hears through the board of its pool.

use std::sync::Arc;
use std::time::Duration;

use super::wire::Outcome;
use crate::error::ClusterError;

/// News of one publication, which the number names, or of all of a lane.
#[derive(Debug)]
pub(super) enum News {
    /// The worker of this lane begins the item.
    Begun(u64),
    Answer(u64, Box<Reply>),
    /// The worker that had begun the item is gone. It was on this host.
    Lost(u64, Arc<str>),
    /// Neither a worker nor the broker has the item any more, and it has no outcome.
    Vanished(u64),
    /// The object store does not take the input.
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
