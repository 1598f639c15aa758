//! The connections between clients and the broker, and what is on its way or due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::operation::{Arrival, ConnectionId, Content, Operation};

/// Connections, and a queue of events by their times.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) now: Duration,
    /// The broker does nothing before this time.
    pub(super) paused_until: Duration,
    pub(super) connections: Vec<Connection>,
    /// The messages that clients and the broker have sent, as a broker counts them in `in_msgs` and `out_msgs`: a request
    /// is one, its answer another, and each delivery one more. Subscriptions are none.
    pub(super) messages: u64,
    /// By time, then in the order in which they were caused.
    events: BTreeMap<(Duration, u64), Event>,
    caused: u64,
}

/// A connection, as the client has it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) is_up: bool,
    /// Counts how often it was cut: what an earlier one has sent is lost.
    life: u32,
    pub(super) delays: Delays,
    sent: Duration,
    received: Duration,
    /// With their subjects; an inbox has none.
    pub(super) subscriptions: BTreeMap<u64, Option<Arc<str>>>,
    /// What the client has sent since the connection was cut.
    unsent: Vec<Operation>,
    answer_fault: Option<AnswerFault>,
    /// The subjects to which its user may not send.
    pub(super) denied: Option<Arc<str>>,
    /// How many messages the network lets through with each connection, and with this one from now on. It drops the rest
    /// without a word.
    narrowness: Option<(u64, u64)>,
    /// The broker refuses the credentials of its user.
    pub(super) is_locked_out: bool,
}

/// How long messages are on their way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delays {
    pub(crate) to_broker: Duration,
    pub(crate) to_client: Duration,
}

/// What happens to the next answer to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnswerFault {
    Lost,
    Twice,
    /// The broker sends it later than what comes after it.
    Late(Duration),
}

#[derive(Debug)]
pub(super) enum Event {
    AtBroker { connection: ConnectionId, life: u32, operation: Operation },
    LateAnswer { connection: ConnectionId, content: Content },
    AtClient { connection: ConnectionId, life: u32, content: Content },
    Due(Timer),
}

/// Something that the broker does later. Consumers have numbers, so that a timer of an earlier one with the same name
/// does nothing.
#[derive(Debug, Clone)]
pub(super) enum Timer {
    /// The oldest message of a stream gets too old.
    Age { stream: Arc<str> },
    /// An acknowledgement is due.
    Acknowledgement { stream: Arc<str>, consumer: u64 },
    /// A pull ends, or gets a heartbeat.
    Pull { stream: Arc<str>, consumer: u64, pull: u64 },
    /// A consumer may have been unused for too long.
    Unused { stream: Arc<str>, consumer: u64 },
}

/// What is next.
#[derive(Debug)]
pub(super) enum Next {
    Arrival(Arrival),
    AtBroker(ConnectionId, Operation),
    Due(Timer),
}

impl Network {
    pub(super) fn is_up(&self, connection: ConnectionId) -> bool {
        self.connections[connection].is_up
    }

    /// Whether a client still listens to a subscription.
    pub(super) fn has_interest(&self, connection: ConnectionId, subscription: u64) -> bool {
        let connection = &self.connections[connection];
        connection.is_up && connection.subscriptions.contains_key(&subscription)
    }

    /// Sends an operation to the broker. Without a connection, the client keeps it until there is one.
    pub(super) fn call(&mut self, connection: ConnectionId, operation: Operation) {
        let now = self.now;
        let it = &mut self.connections[connection];
        if !it.is_up {
            it.unsent.push(operation);
            return;
        }
        if operation.is_message() && !it.lets_through() {
            return;
        }
        it.sent = it.sent.max(now + it.delays.to_broker);
        let (at, life) = (it.sent, it.life);
        self.messages += u64::from(operation.is_message());
        self.push(at, Event::AtBroker { connection, life, operation });
    }

    /// Sends an answer or a message to a client. It is lost without a connection.
    pub(super) fn send(&mut self, connection: ConnectionId, content: Content) {
        let it = &mut self.connections[connection];
        let fault = match content {
            Content::Answer { .. } if it.is_up => it.answer_fault.take(),
            _ => None,
        };
        match fault {
            None => self.deliver(connection, content),
            Some(AnswerFault::Lost) => {}
            Some(AnswerFault::Twice) => {
                self.deliver(connection, content.clone());
                self.deliver(connection, content);
            }
            Some(AnswerFault::Late(by)) => self.send_late(by, connection, content),
        }
    }

    /// Sends something after a time, and so after what is sent until then.
    pub(super) fn send_late(&mut self, by: Duration, connection: ConnectionId, content: Content) {
        self.push(self.now + by, Event::LateAnswer { connection, content });
    }

    fn deliver(&mut self, connection: ConnectionId, content: Content) {
        let now = self.now;
        let it = &mut self.connections[connection];
        if it.is_up && it.lets_through() {
            it.received = it.received.max(now + it.delays.to_client);
            let (at, life) = (it.received, it.life);
            self.messages += u64::from(!matches!(content, Content::Denied(_)));
            self.push(at, Event::AtClient { connection, life, content });
        }
    }

    pub(super) fn set(&mut self, at: Duration, timer: Timer) {
        self.push(at, Event::Due(timer));
    }

    pub(super) fn fault_next_answer(&mut self, connection: ConnectionId, fault: AnswerFault) {
        self.connections[connection].answer_fault = Some(fault);
    }

    /// Lets `most` messages through with each connection of a client.
    pub(super) fn narrow(&mut self, connection: ConnectionId, most: u64) {
        self.connections[connection].narrowness = Some((most, most));
    }

    /// Loses what is on its way.
    pub(super) fn cut(&mut self, connection: ConnectionId) {
        let now = self.now;
        let it = &mut self.connections[connection];
        if std::mem::take(&mut it.is_up) {
            it.life += 1;
            (it.sent, it.received) = (now, now);
            let (life, content) = (it.life, Content::Disconnected);
            self.push(now, Event::AtClient { connection, life, content });
        }
    }

    /// Connects again: the client subscribes to what it was subscribed to, and sends what it has kept.
    pub(super) fn restore(&mut self, connection: ConnectionId) {
        let it = &mut self.connections[connection];
        it.is_up = true;
        if let Some((most, left)) = &mut it.narrowness {
            *left = *most;
        }
        for operation in std::mem::take(&mut self.connections[connection].unsent) {
            self.call(connection, operation);
        }
    }

    /// When the next thing happens.
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.events.first_key_value().map(|it| it.0.0)
    }

    /// Has the broker do nothing until a time.
    pub(super) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
        for ((at, number), event) in std::mem::take(&mut self.events) {
            self.events.insert((self.time_of(&event, at), number), event);
        }
    }

    fn time_of(&self, event: &Event, at: Duration) -> Duration {
        // What a broker that starts finds overdue is due now.
        match event {
            Event::AtClient { .. } => at.max(self.now),
            _ => at.max(self.now).max(self.paused_until),
        }
    }

    /// Takes the next thing that happens until a time, and moves the clock there.
    pub(super) fn take(&mut self, until: Duration) -> Option<Next> {
        loop {
            let entry = self.events.first_entry().filter(|entry| entry.key().0 <= until);
            let Some(entry) = entry else {
                self.now = self.now.max(until);
                return None;
            };
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            match event {
                Event::AtBroker { connection, life, operation } => {
                    if self.connections[connection].life == life {
                        return Some(Next::AtBroker(connection, operation));
                    }
                }
                Event::LateAnswer { connection, content } => self.deliver(connection, content),
                Event::AtClient { connection, life, content } => {
                    if self.connections[connection].life == life {
                        let at = self.now;
                        return Some(Next::Arrival(Arrival { at, connection, content }));
                    }
                }
                Event::Due(timer) => return Some(Next::Due(timer)),
            }
        }
    }

    /// Forgets what a broker that has ended would do.
    pub(super) fn forget_broker(&mut self) {
        self.events.retain(|_, event| matches!(event, Event::AtClient { .. }));
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.caused += 1;
        self.events.insert((self.time_of(&event, at), self.caused), event);
    }
}

impl Connection {
    /// Whether one more message gets through.
    fn lets_through(&mut self) -> bool {
        let Some((_, left)) = &mut self.narrowness else { return true };
        let is_through = *left > 0;
        *left = left.saturating_sub(1);
        is_through
    }
}
