//! What clients ask of the broker, and what they get.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// A connection of a client.
pub(crate) type ConnectionId = usize;

/// What a client sends.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// The subject has no wildcard. The number is the client's.
    Subscribe {
        subscription: u64,
        subject: Arc<str>,
    },
    /// An inbox for the answers to pulls, or for a watch.
    OpenInbox {
        subscription: u64,
    },
    Unsubscribe {
        subscription: u64,
    },
    /// Without an answer.
    Publish(Message),
    /// Answers a message that came with a place for replies.
    Reply {
        to: ReplyTo,
        payload: Bytes,
    },
    Acknowledge {
        place: Place,
        kind: Acknowledgement,
    },
    Pull(Pull),
    /// Has one answer, with the client's number.
    Request {
        token: u64,
        request: Request,
    },
}

/// A request with one answer.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// Sends a message to a stream, or to subscribers that reply.
    Send(Message),
    CreateStream(StreamConfig),
    StreamInfo {
        stream: Arc<str>,
    },
    /// Removes the messages with a subject.
    Purge {
        stream: Arc<str>,
        subject: Arc<str>,
    },
    DeleteMessage {
        stream: Arc<str>,
        sequence: u64,
    },
    /// Reads the message at a place.
    GetMessage {
        stream: Arc<str>,
        sequence: u64,
    },
    /// Reads the last message with a subject, in the direct way. nats-server 2.9.10 finds none if the newest of several was
    /// deleted; gangline keeps one at most where it reads so.
    GetLast {
        stream: Arc<str>,
        subject: Arc<str>,
    },
    CreateConsumer {
        stream: Arc<str>,
        config: ConsumerConfig,
    },
    /// Makes a consumer that sends what is there, and all that comes, to an inbox.
    Watch {
        stream: Arc<str>,
        subject: Arc<str>,
        subscription: u64,
    },
    DeleteConsumer {
        stream: Arc<str>,
        consumer: Arc<str>,
    },
    ConsumerInfo {
        stream: Arc<str>,
        consumer: Arc<str>,
    },
    ConsumerNames {
        stream: Arc<str>,
    },
    Flush,
}

/// A request for messages of a consumer.
#[derive(Debug, Clone)]
pub(crate) struct Pull {
    pub(crate) stream: Arc<str>,
    pub(crate) consumer: Arc<str>,
    /// The inbox for the messages.
    pub(crate) subscription: u64,
    pub(crate) batch: u32,
    pub(crate) expires: Option<Duration>,
    pub(crate) heartbeat: Option<Duration>,
    /// Without messages, the answer comes at once.
    pub(crate) no_wait: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) subject: Arc<str>,
    pub(crate) headers: Headers,
    pub(crate) payload: Bytes,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// `Nats-Msg-Id`
    pub(crate) id: Option<Arc<str>>,
    /// `Nats-Expected-Last-Subject-Sequence`
    pub(crate) expected_last: Option<u64>,
    /// `KV-Operation`
    pub(crate) marker: Option<Marker>,
}

/// The end of a key in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Delete,
    /// Removes what the key had before: `Nats-Rollup: sub`.
    Purge,
}

/// A client that waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) connection: ConnectionId,
    pub(crate) token: u64,
}

/// A delivery by a consumer: what an acknowledgement names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: Arc<str>,
    pub(crate) consumer: Arc<str>,
    /// In the stream.
    pub(crate) sequence: u64,
    /// Counts the deliveries of the consumer.
    pub(crate) consumer_sequence: u64,
    /// The number of deliveries of this message, with this one.
    pub(crate) deliveries: u64,
    pub(crate) stored_at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    Done,
    /// `-NAK`, with the time before the next delivery.
    Again(Option<Duration>),
    /// `+WPI`
    Progress,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamConfig {
    pub(crate) name: Arc<str>,
    pub(crate) subjects: Vec<Arc<str>>,
    pub(crate) retention: Retention,
    pub(crate) discard: Discard,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) max_messages_per_subject: Option<u64>,
    pub(crate) allow_rollup: bool,
    pub(crate) deny_delete: bool,
    /// How long an id of a message is known.
    pub(crate) duplicate_window: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    Limits,
    WorkQueue,
}

/// What a full stream does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discard {
    /// Removes old messages.
    Old,
    /// Refuses new ones.
    New,
}

/// A durable consumer from which clients pull, with explicit acknowledgements and any number of deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerConfig {
    pub(crate) name: Arc<str>,
    pub(crate) filter: Option<Arc<str>>,
    pub(crate) ack_wait: Duration,
    pub(crate) max_ack_pending: Option<usize>,
    pub(crate) max_waiting: usize,
    pub(crate) inactive_threshold: Option<Duration>,
}

/// Something that arrives at a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) connection: ConnectionId,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Answer {
        token: u64,
        answer: Answer,
    },
    Message {
        subscription: u64,
        message: Delivery,
    },
    Status {
        subscription: u64,
        status: PullStatus,
    },
    /// The connection is gone.
    Disconnected,
    /// The user lacks the right to what the client has sent, which the broker ignores.
    Denied(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    /// Of a message that awaits a reply.
    pub(crate) reply: Option<ReplyTo>,
    /// Of a message of a consumer.
    pub(crate) place: Option<Place>,
}

/// What the broker says of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullStatus {
    /// 100
    Heartbeat,
    /// 404
    NoMessages,
    /// 408
    Expired,
    /// 408: others wait already for the messages.
    RequestsPending,
    /// 409
    TooManyWaiting,
    /// 409
    ConsumerDeleted,
    /// 503: there is no such consumer.
    NoResponders,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(Bytes),
    NoResponders,
    Stored {
        sequence: u64,
        is_duplicate: bool,
    },
    Refused(Refusal),
    Stream(StreamState),
    Consumer(ConsumerState),
    Names(Vec<Arc<str>>),
    Purged(u64),
    Done,
    Message {
        message: Message,
        sequence: u64,
        stored_at: Duration,
    },
    /// No message has the subject.
    NotFound,
}

/// An error as the broker names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u32,
    pub(crate) said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) messages: u64,
    pub(crate) first_sequence: u64,
    pub(crate) last_sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerState {
    pub(crate) name: Arc<str>,
    pub(crate) filter: Option<Arc<str>>,
    /// The number of messages that were not delivered.
    pub(crate) num_pending: u64,
    /// The number of messages that were delivered and not acknowledged.
    pub(crate) num_ack_pending: u64,
    pub(crate) num_waiting: u64,
    /// The place of the last delivery in the stream.
    pub(crate) delivered: u64,
}

impl Operation {
    /// Whether a client sends it as a message, and not as a command of the protocol.
    pub(super) fn is_message(&self) -> bool {
        !matches!(
            self,
            Operation::Subscribe { .. }
                | Operation::OpenInbox { .. }
                | Operation::Unsubscribe { .. }
                | Operation::Request { request: Request::Flush, .. }
        )
    }

    /// The subject to which a client sends a message, or a request for messages.
    pub(super) fn subject(&self) -> Option<String> {
        match self {
            Operation::Publish(message)
            | Operation::Request { request: Request::Send(message), .. } => {
                Some(message.subject.to_string())
            }
            Operation::Pull(Pull { stream, consumer, .. }) => {
                Some(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"))
            }
            _ => None,
        }
    }
}

impl Message {
    pub(crate) fn new(subject: &str, payload: impl Into<Bytes>) -> Self {
        let (headers, payload) = (Headers::default(), payload.into());
        Message { subject: subject.into(), headers, payload }
    }

    /// With an id, by which the broker knows a message that comes again.
    pub(crate) fn with_id(mut self, id: &str) -> Self {
        self.headers.id = Some(id.into());
        self
    }

    /// Only after this message with the same subject, or after none if 0.
    pub(crate) fn after(mut self, sequence: u64) -> Self {
        self.headers.expected_last = Some(sequence);
        self
    }

    pub(crate) fn marked(mut self, marker: Marker) -> Self {
        self.headers.marker = Some(marker);
        self
    }

    /// The number of bytes that it has in a stream.
    pub(super) fn stored_bytes(&self) -> u64 {
        let headers = self.headers.bytes();
        let rest = if headers == 0 { 30 } else { 34 };
        rest + headers + self.subject.len() as u64 + self.payload.len() as u64
    }
}

impl Headers {
    /// The number of bytes on the wire.
    pub(super) fn bytes(&self) -> u64 {
        let line = |name: &str, value: usize| (name.len() + value + 4) as u64;
        let id = self.id.as_ref().map_or(0, |id| line("Nats-Msg-Id", id.len()));
        let last = self
            .expected_last
            .map_or(0, |last| line("Nats-Expected-Last-Subject-Sequence", last.to_string().len()));
        let marker = match self.marker {
            None => 0,
            Some(Marker::Delete) => line("KV-Operation", 3),
            Some(Marker::Purge) => line("KV-Operation", 5) + line("Nats-Rollup", 3),
        };
        match id + last + marker {
            0 => 0,
            lines => lines + 12,
        }
    }
}

impl StreamConfig {
    /// A stream of one subject or kind of subjects, without limits.
    pub(crate) fn new(name: &str, subjects: &str, retention: Retention) -> Self {
        StreamConfig {
            name: name.into(),
            subjects: vec![subjects.into()],
            retention,
            discard: Discard::New,
            max_bytes: None,
            max_age: None,
            max_messages_per_subject: None,
            allow_rollup: false,
            deny_delete: false,
            duplicate_window: Duration::from_secs(120),
        }
    }

    /// A bucket of keys.
    pub(crate) fn bucket(name: &str, max_age: Duration) -> Self {
        let (stream, subjects) = (format!("KV_{name}"), format!("$KV.{name}.>"));
        StreamConfig {
            max_age: Some(max_age),
            max_messages_per_subject: Some(1),
            allow_rollup: true,
            deny_delete: true,
            duplicate_window: Duration::from_secs(120).min(max_age),
            ..StreamConfig::new(&stream, &subjects, Retention::Limits)
        }
    }
}

impl ConsumerConfig {
    pub(crate) fn new(name: &str, filter: &str, ack_wait: Duration) -> Self {
        ConsumerConfig {
            name: name.into(),
            filter: Some(filter.into()),
            ack_wait,
            max_ack_pending: None,
            max_waiting: 512,
            inactive_threshold: None,
        }
    }
}

/// Whether a subject is one of those that a pattern stands for.
pub(crate) fn matches(pattern: &str, subject: &str) -> bool {
    if !pattern.ends_with('>') && !pattern.contains('*') {
        return pattern == subject;
    }
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(wanted), Some(part)) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
}
