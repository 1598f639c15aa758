//! A script of what clients do, and of what they get: the model and a real broker get the same.
//!
//! A script is a list of steps: an operation of a client, and all that arrives because of it, as [`shown`] writes it. Each
//! client has an order of its own; that of different clients says nothing.

use std::time::Duration;

use super::{Acknowledgement, Answer, ConnectionId, Content, JetStream, Operation, Place, Refusal};

/// What a client does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Call(Operation),
    /// Acknowledges the delivery with this index among those that the client has had.
    Acknowledge(usize, Acknowledgement),
    /// Replies to the last request that has come.
    Reply(&'static str),
    /// Closes the connection, without a word to the broker, and opens it again.
    Reconnect,
}

/// An act of a client, and all that then arrives: the client, and what it gets.
pub(super) type Step = (ConnectionId, Act, &'static [(ConnectionId, &'static str)]);

/// A name, and what happens. Each has a stream of items `S` with the subjects `s.>`, and none of another script.
pub(super) struct BrokerScript {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

/// The text of something that arrives, without times and without the names of watches.
pub(super) fn shown(content: &Content) -> String {
    match content {
        Content::Answer { token, answer } => format!("{token}: {}", answered(answer)),
        Content::Message { subscription, message } => {
            let text = String::from_utf8_lossy(&message.message.payload);
            let subject = &message.message.subject;
            let marker = message.message.headers.marker;
            let marker = marker.map_or(String::new(), |it| format!(" {it:?}"));
            let place = message.place.as_ref().map_or(String::new(), |it| {
                format!(" {}/{}/{}", it.sequence, it.consumer_sequence, it.deliveries)
            });
            let reply = if message.reply.is_some() { " ?" } else { "" };
            format!("{subscription}> {subject} {text}{marker}{place}{reply}")
        }
        Content::Status { subscription, status } => format!("{subscription}> {status:?}"),
        Content::Disconnected => "disconnected".to_owned(),
        Content::Denied(said) => format!("denied: {said}"),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Reply(payload) => format!("reply {}", String::from_utf8_lossy(payload)),
        Answer::NoResponders => "no responders".to_owned(),
        Answer::Stored { sequence, is_duplicate: false } => format!("stored {sequence}"),
        Answer::Stored { sequence, is_duplicate: true } => format!("duplicate {sequence}"),
        Answer::Refused(Refusal { code, said }) => format!("{code} {said}"),
        Answer::Stream(it) => {
            format!("{} messages {}..{}", it.messages, it.first_sequence, it.last_sequence)
        }
        Answer::Consumer(it) => format!(
            "pending {} unacknowledged {} waiting {} delivered {}",
            it.num_pending, it.num_ack_pending, it.num_waiting, it.delivered
        ),
        Answer::Names(names) => format!("consumers {}", names.join(" ")),
        Answer::Purged(count) => format!("purged {count}"),
        Answer::Done => "done".to_owned(),
        Answer::Message { message, sequence, .. } => {
            let marker = message.headers.marker.map_or(String::new(), |it| format!(" {it:?}"));
            let text = String::from_utf8_lossy(&message.payload);
            format!("{sequence} {} {text}{marker}", message.subject)
        }
        Answer::NotFound => "not found".to_owned(),
    }
}

/// Runs the acts of a script on the model, and returns what arrives after each, by client.
pub(super) fn run_on_model(script: &BrokerScript) -> Vec<Vec<(ConnectionId, String)>> {
    let mut broker = JetStream::new();
    let clients = [broker.connect(), broker.connect()];
    let (mut now, mut places, mut replies) = (Duration::ZERO, vec![], vec![]);
    let mut seen = vec![];
    for (client, act, expected) in &script.steps {
        let now_of_act = now;
        let call = |broker: &mut JetStream, operation| {
            broker.call(now_of_act, clients[*client], operation);
        };
        match act {
            Act::Call(operation) => call(&mut broker, operation.clone()),
            Act::Acknowledge(index, kind) => {
                let place: &Place = &places[*index];
                let operation = Operation::Acknowledge { place: place.clone(), kind: *kind };
                call(&mut broker, operation);
            }
            Act::Reply(text) => {
                let to = replies.pop().expect("a request has come");
                call(&mut broker, Operation::Reply { to, payload: (*text).into() });
            }
            Act::Reconnect => {
                broker.cut(now, *client);
                broker.restore(now, *client);
            }
        }
        let mut arrived = vec![];
        // What takes longer than the next act allows was not caused by this one.
        while let Some(arrival) =
            broker.take(now + Duration::from_secs(10 * u64::from(arrived.len() < expected.len())))
        {
            now = arrival.at;
            if let Content::Message { message, .. } = &arrival.content {
                places.extend(message.place.clone());
                replies.extend(message.reply);
            }
            arrived.push((arrival.connection, shown(&arrival.content)));
        }
        // By client: each has an order of its own.
        arrived.sort_by_key(|it| it.0);
        seen.push(arrived);
    }
    seen
}

/// What a script expects, in the order of [`run_on_model`].
pub(super) fn expected(script: &BrokerScript) -> Vec<Vec<(ConnectionId, String)>> {
    let of_step = |step: &Step| {
        let mut all: Vec<_> = step.2.iter().map(|it| (it.0, it.1.to_owned())).collect();
        all.sort_by_key(|it| it.0);
        all
    };
    script.steps.iter().map(of_step).collect()
}
