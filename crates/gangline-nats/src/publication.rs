//! An item at the broker, and what a lane hears of it through the board of its pool.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline_scheduler::Lease;

use super::wire::WorkerOutcome;
use crate::ClusterError;

/// A message with an item, as long as its lease has no outcome.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) lease: Lease,
    /// The lane that holds the lease.
    pub(super) lane: usize,
    /// The number of the run of the lease.
    pub(super) run: u64,
    pub(super) address: Address,
    /// Whether the worker of the lane has begun it.
    pub(super) is_begun: bool,
    /// Whether its result is there, and its large output is being read.
    pub(super) is_answered: bool,
    /// Whether the worker was told that nothing waits for its outcome.
    pub(super) is_cancelled: bool,
    /// Its place in the stream, once the broker has confirmed it.
    pub(super) sequence: Option<u64>,
    /// When its message was last stored, or looked for by the reconciler.
    pub(super) seen: Instant,
    pub(super) published: Instant,
    /// The number of bytes of its input.
    pub(super) bytes: usize,
    /// Its input, if that is too large for a message.
    #[expect(dead_code, reason = "its drop removes the input")]
    pub(super) input: Option<Stored>,
}

/// A value in the object store, which is removed when this is dropped: a `StoredInput` of the file `event`, which this one
/// cannot name since that imports it.
pub(super) type Stored = Box<dyn Any + Send>;

/// Publications, with their places in the stream of items.
pub(super) type Places = Vec<(u64, u64)>;

/// Which workers may take an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    Any,
    /// That of the lane that has leased it.
    Own,
}

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
    pub(super) outcome: WorkerOutcome,
    /// The encoded output.
    pub(super) output: Vec<u8>,
    /// The host of the worker, if it is still known.
    pub(super) host: Option<Arc<str>>,
    /// The time from the beginning of its hook to the answer.
    pub(super) busy: Duration,
    /// How often the broker had to deliver the item again.
    pub(super) redeliveries: u64,
}
