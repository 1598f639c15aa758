//! Finds items that the broker has lost, so that they are published again.

use async_nats::jetstream::context::{ConsumerInfoError, ConsumerInfoErrorKind};
use async_nats::jetstream::stream::RawMessageErrorKind;

use super::connection::BrokerConnection;
use super::names::{consumer_of, consumer_of_any, consumer_of_results};
use super::wire::{self, ItemHeader};

/// Those of the publications, with their places in the stream of items, that are not there, or that no worker will get. None
/// of them if a result is still to be read: it may be that of one. `None` if the broker does not answer.
pub(super) async fn missing_of(
    publications: Vec<(u64, u64)>,
    connection: &BrokerConnection,
    (run, epoch): (&str, u64),
) -> Option<Vec<u64>> {
    let items = connection.context.get_stream_no_info(connection.names.items()).await.ok()?;
    let mut missing = vec![];
    for (publication, sequence) in publications {
        let is_missing = match items.get_raw_message(sequence).await {
            Ok(message) if !is_of(publication, &message.payload) => true,
            Ok(message) => {
                let consumer = consumer_of_subject(&message.subject, (run, epoch));
                let is_stuck = match items.consumer_info(consumer).await {
                    Ok(info) => is_stuck(info.num_pending, info.num_ack_pending as u64),
                    Err(error) => is_gone(&error, connection)?,
                };
                if is_stuck {
                    // A consumer that is ahead of its stream would pass over the next message too.
                    connection.note_gap();
                    _ = items.delete_message(sequence).await;
                }
                is_stuck
            }
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => true,
                // Such as the stream that is not there. Once it is made again, the message is missing.
                RawMessageErrorKind::JetStream(_) => {
                    connection.note_gap();
                    false
                }
                _ => return None,
            },
        };
        missing.extend(is_missing.then_some(publication));
    }
    if !missing.is_empty() && !has_read_all(connection, run).await? {
        missing.clear();
    }
    Some(missing)
}

/// Whether the broker has no such consumer; `None` if it does not answer.
fn is_gone(error: &ConsumerInfoError, connection: &BrokerConnection) -> Option<bool> {
    match error.kind() {
        ConsumerInfoErrorKind::NotFound => {
            connection.note_gap();
            Some(true)
        }
        ConsumerInfoErrorKind::StreamNotFound | ConsumerInfoErrorKind::JetStream(_) => {
            connection.note_gap();
            Some(false)
        }
        _ => None,
    }
}

/// Whether a consumer takes all messages for delivered and acknowledged, although one is there. That of a broker that was
/// killed may be ahead of its stream, and passes over what is stored where it has been.
pub(super) fn is_stuck(pending: u64, unacknowledged: u64) -> bool {
    pending == 0 && unacknowledged == 0
}

/// The consumer of an item, by the subject of its message.
pub(super) fn consumer_of_subject(subject: &str, (run, epoch): (&str, u64)) -> String {
    match subject.rsplit_once(".to.") {
        Some((_, worker)) => consumer_of(run, epoch, worker),
        None => consumer_of_any(run, epoch),
    }
}

/// Whether the message of an item is that of a publication. A broker that was killed may have forgotten the end of its
/// stream, and give the same places to other messages.
pub(super) fn is_of(publication: u64, message: &[u8]) -> bool {
    wire::split::<ItemHeader>(message).is_ok_and(|(header, _)| header.publication == publication)
}

/// Whether all results at the broker were read; `None` if it does not answer.
async fn has_read_all(connection: &BrokerConnection, run: &str) -> Option<bool> {
    let results = connection.context.get_stream_no_info(connection.names.results()).await.ok()?;
    match results.consumer_info(consumer_of_results(run)).await {
        Ok(info) => Some(info.num_pending == 0 && info.num_ack_pending == 0),
        // The task that reads the results makes the consumer again.
        Err(error) => is_gone(&error, connection).map(|_| false),
    }
}
