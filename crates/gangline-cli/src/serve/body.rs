//! Reads the body of a request, within a size and a time.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::serve::refusal::Refusal;

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyForm {
    Json,
    Bytes,
}

/// The number of bytes that extend the time limit of a body by one second.
const SLOWEST: u64 = 16 << 10;

/// The time limit for reading the rest of a refused body. A caller that still writes would not see the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Returns the form that the headers name. Refuses every content type that a browser sends to another site without a
/// CORS preflight: with it, a page could use a server on its reader's machine.
pub(crate) fn form(headers: &HeaderMap) -> Result<BodyForm, Refusal> {
    let unsupported = |text: String| Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(unsupported("bodies must not be compressed".to_owned()));
    }
    let name = headers.get(CONTENT_TYPE).map(|name| String::from_utf8_lossy(name.as_bytes()));
    let name = name.unwrap_or_default();
    let essence = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*essence {
        "application/json" => Ok(BodyForm::Json),
        "application/octet-stream" => Ok(BodyForm::Bytes),
        essence if essence.ends_with("+json") => Ok(BodyForm::Json),
        essence => {
            let found = if essence.is_empty() { "none" } else { essence };
            Err(unsupported(format!(
                "the content-type must be application/json or application/octet-stream, and is {found}"
            )))
        }
    }
}

/// The limits on the size of a body, and on the time for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: u64,
    /// The time for all of it. Each [`SLOWEST`] bytes that have come add a second.
    pub(crate) time: Duration,
}

/// Reads all of a body.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limits: BodyLimits,
) -> Result<Vec<u8>, Refusal> {
    let BodyLimits { bytes: most, time } = limits;
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > most) {
        return Err(refuse(headers, body, too_large(most)).await);
    }
    let mut bytes = Vec::with_capacity(length.map_or(0, |length| length.min(SLOWEST) as usize));
    let begun = Instant::now();
    loop {
        let until = begun + time + Duration::from_secs(bytes.len() as u64 / SLOWEST);
        let frame = match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => {
                let text = format!("the body cannot be read: {error}");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
            }
            Err(_) => {
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() as u64 + data.len() as u64 > most {
            drop(bytes);
            discard(body).await;
            return Err(too_large(most));
        }
        bytes.extend_from_slice(&data);
    }
}

/// Returns a refusal once the body that it is for has been sent.
pub(crate) async fn refuse(headers: &HeaderMap, body: Body, refusal: Refusal) -> Refusal {
    // A caller that asks first sends nothing.
    if !headers.contains_key(EXPECT) {
        discard(body).await;
    }
    refusal
}

async fn discard(mut body: Body) {
    let _ = timeout(LINGER, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}

fn too_large(most: u64) -> Refusal {
    let text = format!("the body has more than {most} bytes (--max-body)");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}
