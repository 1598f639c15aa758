//! Publishes a message until the broker has confirmed it.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use bytes::Bytes;
use futures_util::future::{Either, select};

use super::connection::{AGAIN, BrokerConnection};
use super::health::StorePatience;

/// A message for a stream: an item, a result, or a chunk of a large value.
pub(super) struct StreamMessage<'a> {
    pub(super) subject: String,
    /// The same in each try, so that the broker keeps one message although a confirmation was lost.
    pub(super) id: &'a str,
    pub(super) payload: Bytes,
    /// How long the broker may refuse the message before publishing fails. It does so without room or without the stream.
    pub(super) patience: Duration,
    /// How long a connected broker may leave the message unanswered; `None` if something else ends the wait.
    pub(super) answered_within: Option<Duration>,
}

/// Publishes a message until the broker has confirmed it, and returns its place in the stream. `None` if `is_wanted`
/// became false before.
///
/// # Errors
///
/// What the broker says, if it has refused the message for too long.
pub(super) async fn publish(
    connection: &BrokerConnection,
    message: StreamMessage<'_>,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<u64>, PublishError> {
    let StreamMessage { subject, id, payload, patience, answered_within } = message;
    let mut restored = connection.restored.clone();
    let mut patience = StorePatience::new(patience, answered_within);
    while is_wanted() {
        restored.mark_unchanged();
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let sent =
            connection.context.publish_with_headers(subject.clone(), headers, payload.clone());
        let error = match sent.await {
            Ok(confirmed) => {
                let confirmed = std::pin::pin!(confirmed.into_future());
                let changed = std::pin::pin!(restored.changed());
                match select(confirmed, changed).await {
                    Either::Left((Ok(ack), _)) => return Ok(Some(ack.sequence)),
                    Either::Left((Err(error), _)) => error,
                    // What the last connection was sent may be lost.
                    Either::Right(_) => {
                        patience.begin_again();
                        continue;
                    }
                }
            }
            Err(error) => error,
        };
        tracing::debug!("not published: {error}");
        let has_answer =
            !matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe);
        if has_answer {
            connection.note_refusal(error.to_string());
        }
        if patience.is_over(has_answer, Instant::now(), &connection.health()) {
            return Err(error);
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(None)
}
