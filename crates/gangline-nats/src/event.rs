//! The events of a coordinator, from the lanes of its pool and from the broker, and what they lead to.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use gangline::BoxError;
use gangline_scheduler::batch::Size;
use tokio::sync::mpsc::UnboundedSender;

use super::board::SeatedWorker;
use super::delivery::{Acknowledgement, Delivered};
use super::publication::{Address, Reply};
use super::wire::{Card, Command, Object};
use crate::ClusterError;

/// What a coordinator reacts to, one event after the other. A `u64` without a name is a publication.
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
    /// The broker has not stored a publication for too long, and says why; `None` if it gives no answer.
    NotStored {
        said: Option<String>,
    },
    /// The object store does not take the input of a publication.
    InputRefused(u64, Box<ClusterError>),
    /// The broker has removed the items up to this publication, or has not answered.
    Purged {
        upto: u64,
    },
    Results(Delivered),
    /// The broker says that it has no result at the moment.
    NoResult,
    Fetched(Box<Fetched>),
    /// The broker has lost these of the publications that were looked for, and no result of them is left to be read. `None`
    /// if it has not answered.
    Looked(Option<Vec<u64>>),
    /// A worker has told something. It may wait for the answer at a subject.
    Notice {
        payload: Bytes,
        reply: Option<String>,
    },
    /// A worker has put its card; `Err` says why the card cannot be read.
    Card(String, Result<Card, String>),
    /// The consumer of a worker that asked for a seat is there. The worker waits for the answer at this subject.
    Seat(SeatedWorker, String),
    /// The broker refuses the consumer of a worker, and says why; `None` if it gives no answer.
    NoConsumer(SeatedWorker, Option<String>),
    /// The broker has answered to the refreshed key, or has not.
    KeyPut(KeyState, KeyPurpose),
    /// The connection was restored.
    Restored,
    Tick,
}

/// What a coordinator asks its client to do. What an action leads to is an event; those without one may fail unseen.
#[derive(Debug)]
pub(super) enum CoordinatorAction {
    /// Tells this worker, or all of the run.
    Order {
        to: Option<String>,
        command: Command,
    },
    /// Sends a message to the subject at which a worker waits.
    Answer {
        reply: String,
        payload: Vec<u8>,
    },
    Acknowledge {
        reply: String,
        kind: Acknowledgement,
    },
    /// Publishes an item for this worker, or for any: `Confirmed`, `NotStored` or `InputRefused`.
    Publish {
        item: ToPublish,
        to: Option<String>,
    },
    /// Deletes the message at a place in the stream of items.
    DeleteItem(u64),
    /// Removes the items of this epoch: `Purged`.
    PurgeItems {
        upto: u64,
    },
    /// Removes all messages, also those of other runs, which are published again.
    Empty(Emptied),
    /// Removes the input of a publication from the object store.
    RemoveInput(u64),
    /// Removes the output with this name from the object store.
    RemoveOutput(String),
    /// Reads the output of a result, and keeps the message of the result meanwhile: `Fetched`.
    Fetch {
        publication: u64,
        object: Object,
        reply: Box<Reply>,
        ack: String,
    },
    /// Makes the consumer of a worker that waits for its seat at a subject: `Seat` or `NoConsumer`.
    MakeConsumer(SeatedWorker, String),
    /// Removes the consumer of a worker, and the items that are addressed to it.
    RemoveConsumer(String),
    /// Puts the run's key, unless another coordinator has changed it since this revision: `KeyPut`.
    PutKey {
        revision: u64,
        purpose: KeyPurpose,
    },
    /// Looks for publications at their places in the stream of items: `Looked`.
    LookFor(Vec<(u64, u64)>),
    /// Makes what the broker may have lost, with the consumers of the workers.
    Furnish,
    /// Reads no more results: they are for another coordinator.
    StopReading,
}

/// What is emptied at the broker, since it does not keep what it confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptied {
    /// The stream of items.
    Items,
    /// The stream of results.
    Results,
    /// The buckets of workers and keys.
    Buckets,
}

impl fmt::Display for Emptied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Emptied::Items => "items",
            Emptied::Results => "results",
            Emptied::Buckets => "cards and keys",
        })
    }
}

/// An output in the object store that was asked for.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) publication: u64,
    pub(super) object: Object,
    pub(super) reply: Box<Reply>,
    /// The subject for the acknowledgement of the result.
    pub(super) ack: String,
    /// `None` if the output is not there, or not wanted any more.
    pub(super) output: Result<Option<Vec<u8>>, BoxError>,
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

/// Why the key is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPurpose {
    /// Workers are to see that the coordinator lives.
    Refresh,
    /// The reason why too few workers have come is decided by whether the broker answers.
    FindCause,
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
