//! An item at the broker.

use std::any::Any;
use std::time::Instant;

use crate::scheduler::Lease;

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

/// Which workers may take an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    Any,
    /// That of the lane that has leased it.
    Own,
}
