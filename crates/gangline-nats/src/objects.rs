//! Values that are too large for a message: they are in a bucket of the object store, in chunks.
//!
//! The chunks are written and read here. The client's own way gives each object random subjects, so what a killed
//! worker has written of one could not be removed with its run; it leaves a message for each object that was
//! deleted; and each read makes a consumer.

use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::stream::{self, DirectGetErrorKind, DiscardPolicy};
use bytes::Bytes;
use futures_util::stream::{StreamExt, iter};
use gangline::BoxError;

use super::connection::{AGAIN, BrokerConnection, ITEM_AGE};
use super::health::StoreLimits;
use super::publisher::{StreamMessage, publish};
use super::wire::Object;

/// The largest chunk in bytes, as NATS's own clients have it.
const CHUNK: usize = 128 << 10;
/// The number of chunks that are written or read at the same time.
const AT_ONCE: usize = 8;
/// How often a connected client asks for a chunk without an answer.
const MOST_TRIES: u32 = 4;

/// Makes the bucket if it is not there. A broker that refuses it refuses what is written to it.
pub(super) async fn furnish(connection: &BrokerConnection) {
    let bucket = connection.names.objects();
    let config = stream::Config {
        name: format!("OBJ_{bucket}"),
        subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
        max_age: ITEM_AGE,
        allow_rollup: true,
        allow_direct: true,
        discard: DiscardPolicy::New,
        ..stream::Config::default()
    };
    if let Err(error) = connection.stream(config, "the object store").await {
        tracing::warn!("{error:#}; large items will fail");
    }
}

/// Describes a value that is to be written.
pub(super) fn object(connection: &BrokerConnection, name: String, value: &[u8]) -> Object {
    let chunk = CHUNK.min(connection.most_inline()) as u64;
    Object { name, bytes: value.len() as u64, chunk }
}

/// Writes the value of an object. Returns whether it is still wanted.
///
/// # Errors
///
/// What the broker says, if it has not stored a chunk for longer than the limits allow.
pub(super) async fn put(
    connection: &BrokerConnection,
    (subject, object): (&str, &Object),
    value: Vec<u8>,
    limits: StoreLimits,
    is_wanted: impl Fn() -> bool,
) -> Result<bool, PublishError> {
    let (value, size) = (Bytes::from(value), object.chunk as usize);
    let is_wanted = &is_wanted;
    let chunks = (0..chunks_of(object)).map(|n| {
        let from = n as usize * size;
        let payload = value.slice(from..value.len().min(from + size));
        let subject = format!("{subject}.{n}");
        async move {
            let id = subject.clone();
            let message = StreamMessage { subject, id: &id, payload, limits };
            publish(connection, message, is_wanted).await
        }
    });
    let mut published = iter(chunks).buffered(AT_ONCE);
    while let Some(chunk) = published.next().await {
        if chunk?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a value. `None` if it is not wanted any more, or not there.
///
/// # Errors
///
/// What the client says, if there is no answer although it is connected.
pub(super) async fn get(
    connection: &BrokerConnection,
    subject: &str,
    object: &Object,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<Vec<u8>>, BoxError> {
    let is_wanted = &is_wanted;
    let chunks =
        (0..chunks_of(object)).map(|n| chunk(connection, format!("{subject}.{n}"), is_wanted));
    let mut read = iter(chunks).buffered(AT_ONCE);
    let mut value = vec![];
    while let Some(chunk) = read.next().await {
        let Some(chunk) = chunk? else { return Ok(None) };
        value.extend_from_slice(&chunk);
        if value.len() as u64 > object.bytes {
            break;
        }
    }
    match value.len() as u64 == object.bytes {
        true => Ok(Some(value)),
        false => Err(format!("{} bytes are there of {}", value.len(), object.bytes).into()),
    }
}

async fn chunk(
    connection: &BrokerConnection,
    subject: String,
    is_wanted: &impl Fn() -> bool,
) -> Result<Option<Bytes>, BoxError> {
    let stream = format!("OBJ_{}", connection.names.objects());
    let mut tries = 0;
    while is_wanted() {
        let stream = connection.context.get_stream_no_info(stream.clone()).await?;
        match stream.direct_get_last_for_subject(subject.clone()).await {
            Ok(message) => return Ok(Some(message.payload)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => return Ok(None),
            Err(error) => {
                tries += u32::from(connection.is_connected());
                if tries == MOST_TRIES {
                    return Err(error.into());
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(None)
}

/// Removes what is at a subject, or below it.
pub(super) async fn remove(connection: &BrokerConnection, subject: String) {
    let stream = format!("OBJ_{}", connection.names.objects());
    if let Ok(stream) = connection.context.get_stream_no_info(stream).await {
        _ = stream.purge().filter(subject).await;
    }
}

fn chunks_of(object: &Object) -> u64 {
    object.bytes.div_ceil(object.chunk.max(1))
}
