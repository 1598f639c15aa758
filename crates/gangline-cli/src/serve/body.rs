//! Reads the body of a request, within a size, a time and a memory.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::serve::app::{App, ending};
use crate::serve::memory::HeldMemory;
use crate::serve::phase::ServerPhase;
use crate::serve::refusal::Refusal;
use crate::serve::unread_body::{discard, refuse};

/// The time limit for a pause in a body, unless that of connections is shorter.
const PAUSE: Duration = Duration::from_secs(10);

/// The least number of bytes a second of a body that comes slowly, after a pause.
const SLOWEST: f64 = 4_096.0;

/// The size up to which the memory for a body is allocated at once, in bytes.
const SMALL: u64 = 16 << 10;

/// A body, and the memory that it takes until its request is answered.
pub(crate) struct ReadBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory: HeldMemory,
}

/// Reads all of a body. It takes memory as it comes: what a caller only announces keeps no other from sending.
pub(crate) async fn read(
    app: &App,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<ReadBody, Refusal> {
    let most = app.args.http.max_body;
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > most) {
        return Err(refuse(headers, body, too_large(most)).await);
    }
    let bytes = Vec::with_capacity(length.map_or(0, |length| length.min(SMALL) as usize));
    let mut read = ReadBody { bytes, memory: HeldMemory::default() };
    let pause = PAUSE.min(app.args.http.idle_timeout);
    let mut until = Instant::now() + pause;
    let mut closing = pin!(app.phases.reached(ServerPhase::Closing));
    loop {
        let frame = tokio::select! {
            frame = timeout_at(until, body.frame()) => frame,
            () = &mut closing => return Err(ending()),
        };
        let frame = match frame {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(read),
            Ok(Some(Err(error))) => {
                let text = format!("the body cannot be read: {error}");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
            }
            Err(_) => {
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        let length = read.bytes.len() as u64 + data.len() as u64;
        let refusal = if length > most {
            Some(too_large(most))
        } else {
            let taken = read.memory.grow(&app.memory, length as usize);
            taken.err().map(|_| app.busy("other requests and their answers fill the memory"))
        };
        if let Some(refusal) = refusal {
            drop(read);
            discard(body).await;
            return Err(refusal);
        }
        read.bytes.extend_from_slice(&data);
        // No caller saves up time for a longer pause.
        let earned = Duration::from_secs_f64(data.len() as f64 / SLOWEST);
        until = (until + earned).min(Instant::now() + pause);
    }
}

fn too_large(most: u64) -> Refusal {
    let text = format!("the body has more than {most} bytes (--max-body)");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}
