//! The events of the coordinator's thread, from the lanes of its pool and from the broker.

use std::sync::Arc;

use async_nats::jetstream;
use tokio::sync::mpsc::UnboundedSender;

use super::board::SeatedWorker;
use super::publication::Address;
use super::wire::Card;
use crate::scheduler::batch::Size;

/// What the coordinator's thread reacts to, one event after the other. A `u64` without a name is a publication.
#[derive(Debug)]
pub(super) enum CoordinatorEvent {
    // From the lanes.
    Publish(ToPublish),
    /// Tells the worker that has the item to give it up.
    Cancel(u64),
    /// Deletes a message that no worker must get, at this place in the stream of items.
    Delete(Option<u64>),
    /// Removes a large input from the object store.
    Discard(u64),
    /// The run of a lane is over: its worker gives up all publications up to this one.
    Drain {
        lane: usize,
        upto: u64,
    },
    /// The producer of a lane was quarantined.
    Ban {
        lane: usize,
    },
    /// Too few workers have come in time for the pool to be built.
    TooFew,
    /// A lane has left its run. A coordinator that is closing looks whether it was the last.
    Left,
    /// The pool begins no further run.
    Close,
    // From the broker.
    /// The broker has stored a publication, at this place in the stream of items.
    Confirmed {
        publication: u64,
        sequence: u64,
    },
    /// The broker has removed the items up to this publication, or has not answered.
    Purged {
        upto: u64,
    },
    Results(Box<jetstream::Message>),
    Notice(async_nats::Message),
    /// A worker has put its card; `Err` says why the card cannot be read.
    Card(String, Result<Card, String>),
    /// The consumer of a worker that asked for a seat is there. The worker waits for the answer at this subject.
    Seat(SeatedWorker, async_nats::Subject),
    /// The broker has answered to the refreshed key, or has not.
    KeyPut(KeyState),
    /// The reason why too few workers have come can be decided: the last `KeyPut` says whether the broker answers.
    DecideCause,
    /// The connection was restored.
    Restored,
    /// The tasks of the broker's client have ended.
    ClientDied,
    Tick,
}

/// An encoded item.
#[derive(Debug)]
pub(super) struct ToPublish {
    pub(super) lane: usize,
    pub(super) publication: u64,
    pub(super) item: u64,
    pub(super) attempt: u32,
    pub(super) size: Size,
    pub(super) address: Address,
    pub(super) input: Vec<u8>,
}

/// The key of a run, as far as the broker has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyState {
    /// The key names this coordinator.
    Own {
        revision: u64,
    },
    /// The key names another coordinator.
    OfAnother,
    /// The broker does not store the key, and says why.
    Refused(Arc<str>),
    Unanswered,
}

/// An input in the object store, which is removed with this value.
#[derive(Debug)]
pub(super) struct StoredInput {
    pub(super) publication: u64,
    pub(super) events: UnboundedSender<CoordinatorEvent>,
}

impl Drop for StoredInput {
    fn drop(&mut self) {
        // A coordinator that has ended has removed all of the run.
        _ = self.events.send(CoordinatorEvent::Discard(self.publication));
    }
}
