//! Publishes a message until the broker has confirmed it.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use bytes::Bytes;
use futures_util::future::{Either, select};

use super::connection::{AGAIN, BrokerConnection};

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
    // Since when the broker refuses the message.
    let mut refused: Option<Instant> = None;
    let mut unanswered: Option<Instant> = None;
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
                        (refused, unanswered) = (None, None);
                        continue;
                    }
                }
            }
            Err(error) => error,
        };
        tracing::debug!("not published: {error}");
        // The broker does not answer a message that the user may not publish.
        let is_denied = connection.check_access(Duration::ZERO).is_err();
        let is_unanswered =
            matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe);
        let is_refusal = is_denied || !is_unanswered;
        if !is_unanswered {
            connection.note_refusal(error.to_string());
        }
        refused = is_refusal.then(|| refused.unwrap_or_else(Instant::now));
        let is_mute = is_unanswered && connection.is_connected();
        unanswered = is_mute.then(|| unanswered.unwrap_or_else(Instant::now));
        let has_passed = |since: Option<Instant>, most| since.is_some_and(|it| it.elapsed() > most);
        if has_passed(refused, patience)
            || answered_within.is_some_and(|most| has_passed(unanswered, most))
        {
            return Err(error);
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(None)
}
