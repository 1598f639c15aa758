//! A model of a NATS broker with JetStream, in virtual time.
//!
//! [`JetStream`] does what gangline asks of a broker, without threads, clocks and IO. It is written from NATS'
//! documentation and from what nats-server 2.9 does; the scripts in its tests get the same answers from a real one.
//!
//! Time moves by [`JetStream::take`] alone. Each call takes effect at the broker after the connection's delay, and what it
//! causes is taken from the queue at the time at which it arrives. One connection never reorders messages.

mod consumer;
mod messages;
mod network;
mod operation;
#[cfg(test)]
mod script;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod server;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use network::{AnswerFault, Delays};
use network::{Connection, Network, Next, Timer};
pub(crate) use operation::{
    Acknowledgement, Answer, Arrival, ConnectionId, ConsumerConfig, ConsumerState, Content,
    Delivery, Discard, Headers, Marker, Message, Operation, Place, Pull, PullStatus, Refusal,
    ReplyTo, Request, Retention, StreamConfig, StreamState,
};
pub(crate) use stream::Keeping;
use stream::{MessageStream, refused};

/// A broker and the connections to it.
#[derive(Debug, Default)]
pub(crate) struct JetStream {
    network: Network,
    streams: BTreeMap<Arc<str>, MessageStream>,
    /// What is in the folder of a broker that has written its files last some time ago.
    copy: BTreeMap<Arc<str>, MessageStream>,
    subscribers: HashMap<Arc<str>, Vec<(ConnectionId, u64)>>,
    is_down: bool,
    /// What it says to whatever needs room.
    refusal: Option<Refusal>,
    /// The stream that answers nothing.
    stuck: Option<Arc<str>>,
    flush_age: Duration,
    consumers: u64,
}

/// What a broker that starts finds in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    Kept,
    /// Each stream lacks its newest messages, and does not know that they were there. Consumers are as in their files:
    /// see [`JetStream::set_flush_age`].
    Behind {
        messages: u64,
    },
    /// All is as it was at the last [`JetStream::copy_files`]: what was stored since is not there, and what was removed is.
    Copied,
    /// One stream is not there.
    Without(&'static str),
    Lost,
}

impl JetStream {
    pub(crate) fn new() -> Self {
        JetStream::default()
    }

    /// A new connection, which is up unless the broker is down.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        let mut connection = Connection::default();
        connection.is_up = !self.is_down;
        self.network.connections.push(connection);
        self.network.connections.len() - 1
    }

    /// Whether a connection is up.
    pub(crate) fn is_connected(&self, connection: ConnectionId) -> bool {
        self.network.is_up(connection)
    }

    /// Sends an operation. What happens before `at` was taken before.
    pub(crate) fn call(&mut self, at: Duration, connection: ConnectionId, operation: Operation) {
        self.move_to(at);
        // The client makes these again with each connection, so they are in force even if they are lost.
        match &operation {
            Operation::Subscribe { subscription, subject } => {
                let it = &mut self.network.connections[connection];
                it.subscriptions.insert(*subscription, Some(subject.clone()));
            }
            Operation::OpenInbox { subscription } => {
                let it = &mut self.network.connections[connection];
                it.subscriptions.insert(*subscription, None);
            }
            _ => {}
        }
        self.network.call(connection, operation);
    }

    /// The streams, each with the number of its consumers.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (&str, StreamState, usize)> {
        self.streams.values().map(|it| (&*it.config.name, it.messages.state(), it.consumers.len()))
    }

    /// The number of messages that it got and sent.
    pub(crate) fn messages(&self) -> u64 {
        self.network.messages
    }

    /// When something happens next, if anything does.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        self.network.next_time()
    }

    /// Takes the next thing that arrives at a client until a time. `None` moves the clock there.
    pub(crate) fn take(&mut self, until: Duration) -> Option<Arrival> {
        loop {
            match self.network.take(until)? {
                Next::Arrival(arrival) => return Some(arrival),
                Next::AtBroker(connection, operation) => self.handle(connection, operation),
                Next::Due(timer) => self.fire(&timer),
            }
        }
    }

    pub(crate) fn set_delays(&mut self, connection: ConnectionId, delays: Delays) {
        self.network.connections[connection].delays = delays;
    }

    pub(crate) fn fault_next_answer(&mut self, connection: ConnectionId, fault: AnswerFault) {
        self.network.fault_next_answer(connection, fault);
    }

    /// Cuts a connection. What is on its way is lost.
    pub(crate) fn cut(&mut self, at: Duration, connection: ConnectionId) {
        self.move_to(at);
        self.network.cut(connection);
        self.note_interest(connection);
    }

    /// Has the network let only `most` messages through with each connection of a client.
    pub(crate) fn narrow(&mut self, connection: ConnectionId, most: u64) {
        self.network.narrow(connection, most);
    }

    /// Takes the right to send to these subjects from the user of a connection.
    pub(crate) fn deny(&mut self, connection: ConnectionId, subjects: &str) {
        self.network.connections[connection].denied = Some(subjects.into());
    }

    /// Changes the password of the user of a connection, which a connected client does not notice.
    pub(crate) fn lock_out(&mut self, connection: ConnectionId) {
        self.network.connections[connection].is_locked_out = true;
    }

    /// Whether the broker would refuse the credentials of a client that connects again.
    pub(crate) fn is_locked_out(&self, connection: ConnectionId) -> bool {
        !self.is_down && self.network.connections[connection].is_locked_out
    }

    /// Connects a client again. Returns whether the broker takes it. What the client has called since the cut follows.
    pub(crate) fn restore(&mut self, at: Duration, connection: ConnectionId) -> bool {
        self.move_to(at);
        if self.is_down || self.network.connections[connection].is_locked_out {
            return false;
        }
        if !self.network.is_up(connection) {
            self.network.restore(connection);
            let subscriptions = self.network.connections[connection].subscriptions.clone();
            for (subscription, subject) in subscriptions {
                subject.into_iter().for_each(|it| self.subscribe(connection, subscription, it));
            }
            self.note_interest(connection);
        }
        true
    }

    /// Stops the broker for a while, as a signal does: it does all later, and its connections stay.
    pub(crate) fn pause(&mut self, at: Duration, until: Duration) {
        self.move_to(at);
        self.network.pause(until);
    }

    /// Has the broker refuse whatever needs room, as with a full disk, until it is called with `None`.
    pub(crate) fn refuse(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// Has one stream answer nothing, until it is called with `None`. What it was asked for meanwhile is lost.
    pub(crate) fn set_stuck(&mut self, stream: Option<&str>) {
        self.stuck = stream.map(Into::into);
    }

    /// Has one stream lose what it has, and what it confirms from now on.
    pub(crate) fn set_keeping(&mut self, name: &str, keeping: Keeping) {
        if let Some(stream) = self.streams.get_mut(name) {
            stream.keeping = keeping;
            let lost: Vec<_> = stream.messages.iter().map(|it| it.0).collect();
            lost.into_iter().for_each(|sequence| _ = stream.messages.remove(sequence));
        }
    }

    /// Deletes a consumer, as an operator may.
    pub(crate) fn delete_consumers(&mut self, at: Duration, stream: &str) {
        self.move_to(at);
        let Some(stream) = self.streams.get_mut(stream) else { return };
        if let Answer::Names(names) = stream.consumer_names() {
            names.iter().for_each(|name| _ = stream.delete_consumer(name, &mut self.network));
        }
    }

    /// Deletes a stream, as an operator may.
    pub(crate) fn delete_stream(&mut self, at: Duration, name: &str) {
        self.move_to(at);
        let consumers = self.streams.remove(name).into_iter().flat_map(|it| it.consumers);
        consumers.for_each(|(_, consumer)| consumer.end(&mut self.network));
    }

    /// Loses `count` messages of a stream in a row, as from a disk with errors: the stream has a hole, and its consumers do not
    /// know. `drawn` says where.
    pub(crate) fn lose_messages(&mut self, name: &str, drawn: u64, count: usize) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        for sequence in stream.messages.drawn(drawn, count) {
            stream.messages.remove(sequence);
        }
    }

    /// Damages one of the messages of a stream.
    pub(crate) fn damage_message(&mut self, name: &str, drawn: u64) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        for sequence in stream.messages.drawn(drawn, 1) {
            stream.messages.damage(sequence);
        }
    }

    /// Has the broker write its files, which [`Files::Copied`] reads.
    pub(crate) fn copy_files(&mut self) {
        self.copy = self.streams.clone();
    }

    /// Has consumers write their files only if those are older than this, so that a broker that is killed loses what
    /// was later.
    pub(crate) fn set_flush_age(&mut self, age: Duration) {
        self.flush_age = age;
        self.streams.values_mut().for_each(|stream| stream.flush_age = age);
    }

    /// Ends the broker, and so all connections.
    pub(crate) fn kill(&mut self, at: Duration) {
        self.move_to(at);
        self.is_down = true;
        (0..self.network.connections.len()).for_each(|it| self.network.cut(it));
        self.subscribers.clear();
        self.network.paused_until = at;
        self.network.forget_broker();
    }

    /// Starts the broker that was killed. Clients connect again by [`restore`](Self::restore).
    pub(crate) fn start(&mut self, at: Duration, files: Files) {
        self.move_to(at);
        if !std::mem::take(&mut self.is_down) {
            return;
        }
        let (lost, is_behind) = match files {
            Files::Kept => (0, false),
            Files::Behind { messages } => (messages, true),
            Files::Copied => {
                self.streams = std::mem::take(&mut self.copy);
                (0, false)
            }
            Files::Without(stream) => {
                self.streams.remove(stream);
                (0, false)
            }
            Files::Lost => {
                self.streams.clear();
                return;
            }
        };
        let (network, consumers) = (&mut self.network, &mut self.consumers);
        for stream in self.streams.values_mut() {
            let number = || {
                *consumers += 1;
                *consumers
            };
            stream.restart(lost, is_behind, number, network);
        }
    }

    fn move_to(&mut self, at: Duration) {
        let is_taken = self.next_time().is_none_or(|next| next >= at);
        assert!(
            is_taken,
            "what happens before {at:?} has to be taken first: {:?}",
            self.network.next_time()
        );
        self.network.now = self.network.now.max(at);
    }

    fn note_interest(&mut self, connection: ConnectionId) {
        if !self.network.is_up(connection) {
            for others in self.subscribers.values_mut() {
                others.retain(|it| it.0 != connection);
            }
        }
        for stream in self.streams.values_mut() {
            stream.note_interest(connection, &mut self.network);
        }
    }

    fn fire(&mut self, timer: &Timer) {
        let (Timer::Age { stream: name }
        | Timer::Acknowledgement { stream: name, .. }
        | Timer::Pull { stream: name, .. }
        | Timer::Unused { stream: name, .. }) = timer;
        let Some(stream) = self.streams.get_mut(name) else { return };
        let network = &mut self.network;
        match *timer {
            Timer::Age { .. } => stream.age(network),
            Timer::Acknowledgement { consumer, .. } => {
                stream.with(consumer, network, |it, messages, network| it.check(messages, network));
            }
            Timer::Pull { consumer, pull, .. } => {
                stream.with(consumer, network, |it, _, network| it.look_at_pull(pull, network));
            }
            Timer::Unused { consumer, .. } => stream.remove_if_unused(consumer, network),
        }
    }

    fn handle(&mut self, connection: ConnectionId, operation: Operation) {
        if let Some(denied) = &self.network.connections[connection].denied
            && let Some(subject) = operation.subject()
            && operation::matches(denied, &subject)
        {
            let said = format!("Permissions Violation for Publish to {subject:?}");
            return self.network.send(connection, Content::Denied(said));
        }
        if let Some(stuck) = &self.stuck
            && self.stream_named_by(&operation).is_some_and(|it| it == *stuck)
        {
            return;
        }
        match operation {
            Operation::Subscribe { subscription, subject } => {
                self.subscribe(connection, subscription, subject);
            }
            Operation::OpenInbox { .. } => {}
            Operation::Unsubscribe { subscription } => {
                let of_client = &mut self.network.connections[connection].subscriptions;
                if let Some(Some(subject)) = of_client.remove(&subscription)
                    && let Some(others) = self.subscribers.get_mut(&subject)
                {
                    others.retain(|it| *it != (connection, subscription));
                }
                self.note_interest(connection);
            }
            Operation::Publish(message) => {
                self.publish(&message, None);
                if let Some(stream) = self.stream_of(&message.subject) {
                    stream.1.store(message, stream.0, |_, _| ());
                }
            }
            Operation::Reply { to: ReplyTo { connection, token }, payload } => {
                let answer = Answer::Reply(payload);
                self.network.send(connection, Content::Answer { token, answer });
            }
            Operation::Acknowledge { place, kind } => self.acknowledge(&place, kind),
            Operation::Pull(pull) => self.pull(connection, &pull),
            Operation::Request { token, request } => self.answer(connection, token, request),
        }
    }

    /// The stream that is to answer an operation.
    fn stream_named_by(&self, operation: &Operation) -> Option<Arc<str>> {
        let of_subject = |subject: &str| {
            let mut streams = self.streams.values().filter(|it| it.has_subject(subject));
            streams.next().map(|it| it.config.name.clone())
        };
        match operation {
            Operation::Publish(message) => of_subject(&message.subject),
            Operation::Acknowledge { place, .. } => Some(place.stream.clone()),
            Operation::Pull(pull) => Some(pull.stream.clone()),
            Operation::Request { request, .. } => match request {
                Request::Send(message) => of_subject(&message.subject),
                Request::CreateStream(config) => Some(config.name.clone()),
                Request::StreamInfo { stream }
                | Request::Purge { stream, .. }
                | Request::DeleteMessage { stream, .. }
                | Request::GetMessage { stream, .. }
                | Request::GetLast { stream, .. }
                | Request::CreateConsumer { stream, .. }
                | Request::Watch { stream, .. }
                | Request::DeleteConsumer { stream, .. }
                | Request::ConsumerInfo { stream, .. }
                | Request::ConsumerNames { stream } => Some(stream.clone()),
                Request::Flush => None,
            },
            _ => None,
        }
    }

    fn subscribe(&mut self, connection: ConnectionId, subscription: u64, subject: Arc<str>) {
        let subscribers = self.subscribers.entry(subject).or_default();
        if !subscribers.contains(&(connection, subscription)) {
            subscribers.push((connection, subscription));
        }
    }

    /// Sends a message to the subscribers of its subject. Returns whether there is any.
    fn publish(&mut self, message: &Message, reply: Option<ReplyTo>) -> bool {
        let subscribers = self.subscribers.get(&message.subject);
        let Some(subscribers) = subscribers.filter(|it| !it.is_empty()) else { return false };
        for (connection, subscription) in subscribers {
            let message = Delivery { message: message.clone(), reply, place: None };
            let content = Content::Message { subscription: *subscription, message };
            self.network.send(*connection, content);
        }
        true
    }

    fn stream_of(&mut self, subject: &str) -> Option<(&mut Network, &mut MessageStream)> {
        let stream = self.streams.values_mut().find(|it| it.has_subject(subject))?;
        Some((&mut self.network, stream))
    }

    fn acknowledge(&mut self, place: &Place, kind: Acknowledgement) {
        let Some(stream) = self.streams.get_mut(&place.stream) else { return };
        let Some(number) = stream.named(&place.consumer).map(|it| it.number) else { return };
        let is_done = stream.with(number, &mut self.network, |it, messages, network| {
            it.acknowledge(place, kind, messages, network)
        });
        if is_done == Some(true) {
            if stream.config.retention == Retention::WorkQueue {
                stream.remove(place.sequence);
            }
            // A consumer that had too many unacknowledged messages goes on.
            stream.deliver(number, &mut self.network);
        }
    }

    fn pull(&mut self, connection: ConnectionId, pull: &Pull) {
        let stream = self.streams.get_mut(&pull.stream);
        let number = stream.and_then(|it| it.named(&pull.consumer)).map(|it| it.number);
        let (Some(number), Some(stream)) = (number, self.streams.get_mut(&pull.stream)) else {
            let (subscription, status) = (pull.subscription, PullStatus::NoResponders);
            return self.network.send(connection, Content::Status { subscription, status });
        };
        stream.with(number, &mut self.network, |it, messages, network| {
            it.pull(connection, pull, messages, network);
        });
    }

    fn answer(&mut self, connection: ConnectionId, token: u64, request: Request) {
        let answer = match request {
            Request::Send(message) => return self.send(connection, token, message),
            Request::Watch { stream, subject, subscription } => {
                return self.watch((connection, token), &stream, subject, subscription);
            }
            Request::Flush => Answer::Done,
            Request::CreateStream(config) => self.create_stream(config),
            Request::StreamInfo { stream } => {
                self.in_stream(&stream, |it, _| Answer::Stream(it.messages.state()))
            }
            Request::Purge { stream, subject } => {
                self.in_stream(&stream, |it, _| Answer::Purged(it.purge(&subject)))
            }
            Request::DeleteMessage { stream, sequence } => {
                self.in_stream(&stream, |it, _| it.delete(sequence))
            }
            Request::GetMessage { stream, sequence } => self.in_stream(&stream, |it, _| {
                found(it, Some(sequence)).unwrap_or_else(|| refused(10037, "no message found"))
            }),
            Request::GetLast { stream, subject } => match self.streams.get(&stream) {
                Some(it) => {
                    let places = it.messages.of_subject(&subject);
                    let last = places.and_then(|it| it.back().copied());
                    found(it, last).unwrap_or(Answer::NotFound)
                }
                None => Answer::NoResponders,
            },
            Request::CreateConsumer { stream, config } => match self.refusal.clone() {
                Some(refusal) => Answer::Refused(refusal),
                None => {
                    self.consumers += 1;
                    let number = self.consumers;
                    self.in_stream(&stream, |it, network| it.make_consumer(config, number, network))
                }
            },
            Request::DeleteConsumer { stream, consumer } => {
                self.in_stream(&stream, |it, network| it.delete_consumer(&consumer, network))
            }
            Request::ConsumerInfo { stream, consumer } => {
                self.in_stream(&stream, |it, _| it.consumer_state(&consumer))
            }
            Request::ConsumerNames { stream } => {
                self.in_stream(&stream, |it, _| it.consumer_names())
            }
        };
        self.network.send(connection, Content::Answer { token, answer });
    }

    fn in_stream(
        &mut self,
        stream: &str,
        work: impl FnOnce(&mut MessageStream, &mut Network) -> Answer,
    ) -> Answer {
        match self.streams.get_mut(stream) {
            Some(stream) => work(stream, &mut self.network),
            None => refused(10059, "stream not found"),
        }
    }

    /// Sends a message that awaits an answer: of the stream that stores it, or of a subscriber.
    fn send(&mut self, connection: ConnectionId, token: u64, message: Message) {
        let has_subscriber = self.publish(&message, Some(ReplyTo { connection, token }));
        let refusal = self.refusal.clone();
        let answered = move |network: &mut Network, answer| {
            network.send(connection, Content::Answer { token, answer });
        };
        match (self.stream_of(&message.subject), refusal) {
            (Some((network, _)), Some(refusal)) => answered(network, Answer::Refused(refusal)),
            (Some((network, stream)), None) => stream.store(message, network, answered),
            (None, _) if has_subscriber => {}
            (None, _) => answered(&mut self.network, Answer::NoResponders),
        }
    }

    fn create_stream(&mut self, config: StreamConfig) -> Answer {
        if let Some(there) = self.streams.get(&config.name) {
            return match there.config == config {
                true => Answer::Stream(there.messages.state()),
                false => {
                    refused(10058, "stream name already in use with a different configuration")
                }
            };
        }
        if let Some(refusal) = &self.refusal {
            return Answer::Refused(refusal.clone());
        }
        let overlaps = |other: &MessageStream| {
            let subjects = &other.config.subjects;
            config.subjects.iter().any(|it| {
                subjects.iter().any(|of| operation::matches(of, it) || operation::matches(it, of))
            })
        };
        if self.streams.values().any(overlaps) {
            return refused(10065, "subjects overlap with an existing stream");
        }
        let stream = MessageStream::new(config, self.flush_age);
        let answer = Answer::Stream(stream.messages.state());
        self.streams.insert(stream.config.name.clone(), stream);
        answer
    }

    fn watch(
        &mut self,
        (connection, token): (ConnectionId, u64),
        stream: &str,
        subject: Arc<str>,
        subscription: u64,
    ) {
        self.consumers += 1;
        let number = self.consumers;
        let inbox = (connection, subscription);
        let answer =
            self.in_stream(stream, |it, network| it.watch(subject, inbox, number, network));
        self.network.send(connection, Content::Answer { token, answer });
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.deliver(number, &mut self.network);
        }
    }
}

fn found(stream: &MessageStream, sequence: Option<u64>) -> Option<Answer> {
    let sequence = sequence?;
    let stored = stream.messages.get(sequence)?;
    Some(Answer::Message { message: stored.message.clone(), sequence, stored_at: stored.at })
}
