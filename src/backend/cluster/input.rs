//! What the coordinator's thread reacts to.

use async_nats::jetstream;
use tokio::sync::mpsc::UnboundedSender;

use super::board::{Address, SeatedWorker};
use super::wire::Card;
use crate::scheduler::batch::Size;

/// What the coordinator's thread reacts to.
#[derive(Debug)]
pub(super) enum Input {
    // From the lanes.
    Publish(ToPublish),
    Cancel(u64),
    /// Deletes a message that no worker must get.
    Delete(Option<u64>),
    /// Removes a large input from the object store.
    Discard(u64),
    /// The run of a lane is over.
    Drain {
        lane: usize,
        upto: u64,
    },
    /// The producer of a lane was quarantined.
    Ban {
        lane: usize,
    },
    /// A lane has left its run.
    Left,
    /// No run begins any more.
    Close,
    // From the broker.
    Confirmed {
        publication: u64,
        sequence: u64,
    },
    Result(Box<jetstream::Message>),
    Notice(async_nats::Message),
    Card(String, Result<Card, String>),
    Seat(SeatedWorker, async_nats::Subject),
    KeyPut(Result<u64, ()>),
    Restored,
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

/// An input in the object store, which is removed with this value.
#[derive(Debug)]
pub(super) struct StoredInput {
    pub(super) publication: u64,
    pub(super) inputs: UnboundedSender<Input>,
}

impl Drop for StoredInput {
    fn drop(&mut self) {
        // A coordinator that has ended has removed all of the run.
        _ = self.inputs.send(Input::Discard(self.publication));
    }
}
