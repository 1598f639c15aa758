//! Publishing until the broker has confirmed it.

use std::future::IntoFuture;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::future::{Either, select};

use super::connection::{AGAIN, Connection};

/// Publishes a message to a stream until it is confirmed, and returns its place there. `None` if it is not wanted
/// any more.
///
/// Each try has the same `id`, so the broker keeps one message although a confirmation was lost.
pub(super) async fn publish(
    connection: &Connection,
    subject: String,
    id: &str,
    payload: Vec<u8>,
    is_wanted: impl Fn() -> bool,
) -> Option<u64> {
    let mut restored = connection.restored.clone();
    let payload = Bytes::from(payload);
    while is_wanted() {
        restored.mark_unchanged();
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let sent =
            connection.context.publish_with_headers(subject.clone(), headers, payload.clone());
        match sent.await {
            Ok(confirmed) => {
                let confirmed = std::pin::pin!(confirmed.into_future());
                let changed = std::pin::pin!(restored.changed());
                match select(confirmed, changed).await {
                    Either::Left((Ok(ack), _)) => return Some(ack.sequence),
                    Either::Left((Err(error), _)) => tracing::debug!("not confirmed: {error}"),
                    // What the last connection was sent may be lost.
                    Either::Right(_) => continue,
                }
            }
            Err(error) => tracing::debug!("not published: {error}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
    None
}
