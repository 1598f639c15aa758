//! Publishes a message until the broker has confirmed it.

use std::time::Instant;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::time::timeout;

use super::connection::{AGAIN, BrokerConnection};
use super::health::{StoreLimits, StorePatience};

/// A message for a stream: an item, a result, or a chunk of a large value.
pub(super) struct StreamMessage<'a> {
    pub(super) subject: String,
    /// The id of the message, equal in each try: so the broker keeps one message although a confirmation was lost.
    pub(super) id: &'a str,
    pub(super) payload: Bytes,
    pub(super) limits: StoreLimits,
}

/// Publishes a message until the broker has confirmed it, and returns its place in the stream. `None` if `is_wanted`
/// became false before.
///
/// # Errors
///
/// What the broker says, if it has not stored the message for longer than the limits allow.
pub(super) async fn publish(
    connection: &BrokerConnection,
    message: StreamMessage<'_>,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<u64>, PublishError> {
    let StreamMessage { subject, id, payload, limits } = message;
    let mut restored = connection.restored.clone();
    let mut patience = StorePatience::new(limits, Instant::now());
    while is_wanted() {
        restored.mark_unchanged();
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let try_once = async {
            let context = &connection.context;
            context.publish_with_headers(subject.clone(), headers, payload.clone()).await?.await
        };
        let answered = std::pin::pin!(timeout(limits.of_one_try(), try_once));
        let changed = std::pin::pin!(restored.changed());
        let error = match select(answered, changed).await {
            Either::Left((Ok(Ok(ack)), _)) => return Ok(Some(ack.sequence)),
            Either::Left((Ok(Err(error)), _)) => error,
            Either::Left((Err(_), _)) => PublishError::new(PublishErrorKind::TimedOut),
            // What the last connection was sent may be lost.
            Either::Right(_) => PublishError::new(PublishErrorKind::BrokenPipe),
        };
        tracing::debug!("not published: {error}");
        let is_lost = error.kind() == PublishErrorKind::BrokenPipe;
        let has_answer = !is_lost && error.kind() != PublishErrorKind::TimedOut;
        if has_answer {
            connection.note_refusal(error.to_string());
        }
        if error.kind() == PublishErrorKind::StreamNotFound {
            connection.note_gap();
        }
        if patience.is_over(has_answer, Instant::now(), &connection.health()) {
            return Err(error);
        }
        if is_lost && connection.is_connected() {
            continue;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(None)
}
