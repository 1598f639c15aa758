//! The messages between a coordinator and its workers, in postcard.

use std::time::Duration;

use gangline::BoxError;
use gangline::backend::{CallFailure, RemoteFailure, Terms};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::hook_times::HookTimes;

/// The version of what this file describes.
pub(super) const PROTOCOL: u32 = 8;

/// What a worker says of itself: its entry in the bucket of workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) worker: String,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) devices: String,
    pub(super) recipes: Vec<(String, Terms)>,
    /// In seconds since 1970.
    pub(super) started: u64,
    /// The runs that it takes part in, with the numbers of its parts.
    pub(super) runs: Vec<(String, u64)>,
    /// The number of its last part, in whichever run.
    pub(super) parts: u64,
}

/// What a coordinator says of its run: its entry in the bucket of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunKey {
    pub(super) run: String,
    pub(super) epoch: u64,
    pub(super) lease_millis: u64,
    /// How long the broker may refuse a result before the run fails.
    pub(super) wait_millis: u64,
    pub(super) recipe: String,
    pub(super) terms: Terms,
    pub(super) load: RunnerLoad,
}

impl RunKey {
    /// How long a worker or a coordinator may give no sign of life.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis)
    }

    /// How long the broker may refuse a result before the run fails.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_millis)
    }

    /// How long the broker may leave a result unanswered. While it answers no worker, the coordinator ends the run after
    /// `wait`; one that has lost its worker alone has the item worked on elsewhere.
    pub(super) fn longest_silence(&self) -> Duration {
        self.wait().max(self.lease() * 2)
    }

    /// The key of the run `run` with the recipe `recipe`, of this coordinator.
    #[cfg(test)]
    pub(super) fn of_test(epoch: u64, lease: Duration, wait: Duration) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("it is short");
        RunKey {
            run: "run".to_owned(),
            epoch,
            lease_millis: millis(lease),
            wait_millis: millis(wait),
            recipe: "recipe".to_owned(),
            terms: Terms::default(),
            load: RunnerLoad {
                cfg: String::new(),
                seed: 0,
                item_nanos: None,
                init_nanos: None,
                stack_size: None,
                batch: None,
            },
        }
    }
}

/// What the loaded state of a worker depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunnerLoad {
    /// The configuration in YAML.
    pub(super) cfg: String,
    pub(super) seed: u64,
    pub(super) item_nanos: Option<u64>,
    pub(super) init_nanos: Option<u64>,
    pub(super) stack_size: Option<u64>,
    pub(super) batch: Option<BatchRule>,
}

impl RunnerLoad {
    /// How long a hook may have an item before it is abandoned.
    pub(super) fn longest_hook(&self) -> Option<Duration> {
        let items = self.batch.map_or(1, |batch| batch.most);
        self.item_nanos.map(|limit| Duration::from_nanos(limit.saturating_mul(items)))
    }
}

/// How the producers of a worker form batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BatchRule {
    /// The largest number of items.
    pub(super) most: u64,
    /// How long an incomplete batch waits for more.
    pub(super) wait_nanos: u64,
    pub(super) most_cost: Option<u64>,
    pub(super) most_padded: Option<u64>,
    pub(super) sizing: BatchSizing,
}

/// What decides the number of items in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BatchSizing {
    Given,
    /// The worker, by the times of its batches.
    Rate,
    /// The same, below this latency.
    Latency {
        nanos: u64,
    },
}

/// What precedes the encoded input of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ItemHeader {
    pub(super) epoch: u64,
    /// Counts the messages of items of this epoch.
    pub(super) publication: u64,
    pub(super) item: u64,
    pub(super) attempt: u32,
    /// Its cost and its padded size.
    pub(super) size: (u64, u64),
    /// Where the input is, if it does not follow.
    pub(super) object: Option<Object>,
}

/// A value in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Object {
    /// Its last part of the subject.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The number of bytes of each of its messages but the last.
    pub(super) chunk: u64,
}

/// What precedes the encoded outputs of items that have ended: a worker sends them in groups.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResultsHeader {
    pub(super) epoch: u64,
    pub(super) worker: String,
    /// The times of the worker's hooks in this run's part so far.
    pub(super) times: HookTimes,
    /// In the order of the outputs. One with an object is alone.
    pub(super) results: Vec<ItemResult>,
}

/// What became of an item.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ItemResult {
    pub(super) publication: u64,
    pub(super) outcome: WorkerOutcome,
    /// The time from the beginning of its hook to the answer.
    pub(super) busy_nanos: u64,
    /// How often the broker has delivered the item.
    pub(super) deliveries: u64,
    /// The number of bytes of its encoded output behind the header.
    pub(super) bytes: u64,
    /// Where the output is, if it does not follow; with another outcome, where a part of it may be.
    pub(super) object: Option<Object>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerOutcome {
    Output,
    Failed {
        failure: CallFailure,
        device: Option<String>,
    },
    TimedOut {
        is_init: bool,
        nanos: u64,
        device: Option<String>,
        /// Its worker has no producer any more, and ends.
        ends_worker: bool,
    },
    /// The child process with the hook has ended.
    Crashed {
        signal: Option<i32>,
        status: Option<i32>,
        stderr: String,
        device: Option<String>,
    },
    /// No hook has the item any more, and it has no result.
    Dropped,
}

impl WorkerOutcome {
    /// The failure of an item, for the reason that its value cannot be sent or read.
    pub(super) fn error(text: String) -> Self {
        let failure = CallFailure::Error(RemoteFailure::text(text));
        WorkerOutcome::Failed { failure, device: None }
    }
}

/// What a worker tells the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notice {
    pub(super) epoch: u64,
    pub(super) worker: String,
    pub(super) news: WorkerNews,
}

/// A publication is named by its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WorkerNews {
    /// The worker asks for a seat. The answer is a [`JoinReply`].
    Join(Box<Joining>),
    /// Hooks are about to get these items.
    Begun(Vec<u64>),
    /// The worker has a publication that another one may have too: it was delivered before, or the lease of this worker may
    /// have ended. The answer is a [`ClaimReply`].
    Claim(u64),
    /// No hook of the worker has a publication up to this one. The times are those of its hooks until then.
    Drained(u64, HookTimes),
    /// The worker takes no more items in this part. `lost` says why it ends, if it has lost its producers. `last_result` is
    /// the place of its last result in their stream, 0 without one.
    Leaving { times: HookTimes, lost: Option<String>, last_result: u64 },
    /// The worker lives, although the broker does not keep its card, or refuses messages: what the broker says.
    Alive(Option<String>),
    /// The worker could not make the runner or its producers.
    Unable { host: String, reason: String },
    /// The broker did not store its result of a publication for too long.
    GivenUp(u64, String),
}

/// A worker that asks for a seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Joining {
    /// The number of its part.
    pub(super) part: u64,
    pub(super) host: String,
    pub(super) pid: u32,
    /// The number of items that it can have in hooks.
    pub(super) capacity: u32,
    pub(super) producers: u32,
    /// The longest of its producers' last calls of `producer_init`.
    pub(super) init: Duration,
}

/// Whether a worker has a seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JoinReply {
    Seated,
    /// All seats are taken. The worker asks again later.
    Full,
    /// The worker was quarantined.
    Banned,
}

/// Whether a worker begins a publication that another worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClaimReply {
    Begin,
    /// Another worker has begun it, and may yet be lost.
    Later,
    /// It has its outcome, or is not wanted any more.
    Never,
    /// The worker has no seat: its lease has ended.
    Unknown,
}

/// What a coordinator tells all workers of its run, or one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerOrder {
    pub(super) epoch: u64,
    pub(super) command: Command,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Command {
    /// The coordinator lives, although the broker does not keep its key.
    Stay,
    /// A worker that has this publication gives it up.
    Cancel(u64),
    /// The worker gives up all publications up to this one, and says when no hook has one.
    Drain(u64),
    /// The worker takes no more part.
    Leave,
    /// The worker is not known any more, and joins again.
    Rejoin,
}

/// A message behind the version of the protocol.
pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(&(PROTOCOL, message))
        .expect("our messages are of types that can be encoded")
}

/// Appends the encoded value of a user to a header.
pub(super) fn with_body<T: Serialize>(header: &T, body: &[u8]) -> Vec<u8> {
    let mut bytes = encode(header);
    bytes.extend_from_slice(body);
    bytes
}

/// Decodes a message without a body.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BoxError> {
    Ok(split::<T>(bytes)?.0)
}

/// Decodes a header, and returns it with the body behind it.
pub(super) fn split<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), BoxError> {
    let (protocol, rest): (u32, _) = postcard::take_from_bytes(bytes)?;
    if protocol != PROTOCOL {
        let text =
            format!("it speaks version {protocol} of the protocol, and this process {PROTOCOL}");
        return Err(text.into());
    }
    Ok(postcard::take_from_bytes(rest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_protocol_is_named_before_the_rest_is_read() {
        let (own, other) = (PROTOCOL, PROTOCOL + 1);
        let bytes = postcard::to_allocvec(&(other, "whatever that means")).unwrap();
        let error = decode::<Card>(&bytes).unwrap_err();
        let expected = format!("it speaks version {other} of the protocol, and this process {own}");
        assert_eq!(error.to_string(), expected);
        assert!(decode::<Card>(b"").is_err());
    }

    #[test]
    fn a_body_stays_behind_its_header() {
        let header = ItemHeader {
            epoch: 1,
            publication: 2,
            item: 3,
            attempt: 4,
            size: (1, 1),
            object: None,
        };
        let bytes = with_body(&header, b"input");
        assert_eq!(split::<ItemHeader>(&bytes).unwrap(), (header, &b"input"[..]));
    }
}
