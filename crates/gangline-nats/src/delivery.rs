//! A message that the broker has delivered, and its acknowledgements.

use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;

/// A message that the broker has delivered.
#[derive(Debug)]
pub(super) struct Delivered {
    /// The subject for acknowledgements.
    pub(super) reply: String,
    pub(super) payload: Bytes,
    /// Its place in the stream.
    pub(super) place: u64,
    /// How often the broker has delivered it.
    pub(super) deliveries: u64,
}

/// What the broker hears of a message that it has delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    Done,
    /// It is delivered again after this time.
    Return(Duration),
    /// It is being worked on, and not to be delivered again for a lease.
    Extend,
}

impl Delivered {
    /// The message as plain data.
    pub(super) fn of(message: jetstream::Message) -> Self {
        let (place, deliveries) = message.info().map_or((0, 0), |info| {
            (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(0))
        });
        let async_nats::Message { reply, payload, .. } = message.message;
        let reply = reply.map(|it| it.to_string()).unwrap_or_default();
        Delivered { reply, payload, place, deliveries }
    }
}

impl Acknowledgement {
    /// The acknowledgement as JetStream reads it.
    pub(super) fn payload(self) -> Bytes {
        match self {
            Acknowledgement::Done => Bytes::from_static(b"+ACK"),
            Acknowledgement::Return(Duration::ZERO) => Bytes::from_static(b"-NAK"),
            Acknowledgement::Return(delay) => {
                format!("-NAK {{\"delay\":{}}}", delay.as_nanos()).into()
            }
            Acknowledgement::Extend => Bytes::from_static(b"+WPI"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_those_of_the_client() {
        use jetstream::AckKind;

        let second = Duration::from_secs(1);
        for (ours, theirs) in [
            (Acknowledgement::Done, AckKind::Ack),
            (Acknowledgement::Return(Duration::ZERO), AckKind::Nak(None)),
            (Acknowledgement::Return(second), AckKind::Nak(Some(second))),
            (Acknowledgement::Extend, AckKind::Progress),
        ] {
            assert_eq!(ours.payload(), Bytes::from(theirs));
        }
    }
}
