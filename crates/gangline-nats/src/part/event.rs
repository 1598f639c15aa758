//! The events of a part, and the actions that they lead to. A `u64` without a name is a publication.

use std::time::Duration;

use super::requests::RequestEnd;
use crate::delivery::{Acknowledgement, Delivered};
use crate::hosting::TaskAnswer;
use crate::publication::Address;
use crate::wire::{ClaimReply, Command, ItemHeader, JoinReply, Object, RunKey, WorkerNews};

/// What a part is for.
#[derive(Debug, Clone)]
pub(crate) struct PartSettings {
    pub(crate) key: RunKey,
    /// The number of the part.
    pub(crate) part: u64,
    /// The id, the host and the process of its worker.
    pub(crate) worker: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The largest number of bytes of a value in a message.
    pub(crate) most_inline: usize,
}

/// The service of a part, once it is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedService {
    /// The number of items that its producers can work on at the same time.
    pub(crate) capacity: usize,
    pub(crate) producers: usize,
    /// The longest of its producers' last calls of `producer_init`.
    pub(crate) init: Duration,
}

/// What a part reacts to.
#[derive(Debug)]
pub(crate) enum PartEvent {
    /// The service is there, or cannot be made for this reason.
    Loaded(Result<LoadedService, String>),
    /// `None` if the coordinator has not answered in time.
    SeatAnswered(Option<JoinReply>),
    Delivered {
        request: u64,
        item: Delivered,
    },
    RequestOver {
        request: u64,
        end: RequestEnd,
    },
    /// The connection was restored. What the last one has not answered is lost.
    Restored,
    /// `None` if the coordinator has not answered in time.
    ClaimAnswered(u64, Option<ClaimReply>),
    /// `Ok(None)` if the broker has lost the input; `Err` says why it cannot be read.
    InputRead(u64, Result<Option<Vec<u8>>, String>),
    /// A hook is about to get an item, and waits for `BegunSent` if it could end the process.
    HookBegins(u64),
    HookAnswered(u64, TaskAnswer),
    /// No hook has an item any more.
    HookOver(u64),
    /// The kernel has the notice of the items that have begun.
    BegunSent,
    /// The object store has a large output, or refuses it for this reason.
    OutputStored(u64, Object, Result<(), String>),
    /// The place of a group of results, `None` if the group was not wanted any more; `Err` says why the broker refuses it.
    ResultsStored(u64, Result<Option<u64>, String>),
    /// An order of the coordinator of this part.
    Order(Command),
    End(PartEnding),
}

/// How the worker ends a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartEnding {
    /// Begun items are finished, and no others are begun.
    Drain,
    /// Nothing waits for its items.
    Over,
}

/// What a part asks its client and its service to do. What an action leads to is an event; those without one may fail unseen.
#[derive(Debug)]
pub(crate) enum PartAction {
    /// Asks the coordinator for a seat: `SeatAnswered`.
    AskForSeat { join: WorkerNews, within: Duration },
    /// Asks the coordinator whether this worker may begin a publication: `ClaimAnswered`.
    Claim { publication: u64, within: Duration },
    /// Asks the broker for items: `Delivered`, `RequestOver`.
    Pull { request: u64, from: Address, count: usize },
    /// Tells the broker what became of the message with this subject for acknowledgements.
    Acknowledge { reply: String, kind: Acknowledgement },
    /// Tells the coordinator.
    Notify(WorkerNews),
    /// Tells the coordinator which items have begun, and lets their hooks go on: `BegunSent`.
    AnnounceBegun(Vec<u64>),
    /// Reads a large input: `InputRead`.
    ReadInput { publication: u64, object: Object },
    /// Has the service work on an item: `HookBegins`, `HookAnswered` and `HookOver`.
    Submit { header: ItemHeader, input: Vec<u8> },
    /// Gives up reading an input, or an item in the service: of an item that was submitted, `HookOver` comes.
    GiveUp(u64),
    /// Stores a large output with this name, unless publications up to its own are given up: `OutputStored`.
    StoreOutput { publication: u64, name: String, output: Vec<u8> },
    /// Publishes a group of results, unless publications up to `last` are given up: `ResultsStored`.
    PublishResults { group: u64, id: String, payload: Vec<u8>, last: u64 },
    /// Ends the process of this worker for a reason, once the coordinator was told.
    EndProcess(String),
}
