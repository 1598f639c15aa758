//! The body of a request that is refused before it is read.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::EXPECT;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::serve::refusal::Refusal;

/// The time limit for reading the rest of a refused body. A caller that still writes would not see the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Returns a refusal once the body that it is for has been sent.
pub(crate) async fn refuse(headers: &HeaderMap, body: Body, refusal: Refusal) -> Refusal {
    // A caller that asks first sends nothing.
    if !headers.contains_key(EXPECT) {
        discard(body).await;
    }
    refusal
}

/// Reads the rest of a body, for a moment.
pub(crate) async fn discard(mut body: Body) {
    let _ = timeout(LINGER, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}
