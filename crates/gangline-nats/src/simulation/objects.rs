//! Large values on their way to and from the modelled object store, as `objects` sends them: in chunks.

use std::sync::Arc;
use std::time::Instant;

use super::jetstream::{Answer, Message, Request};
use super::publishing::Publishing;
use crate::health::StoreLimits;
use crate::wire::Object;

/// How often a connected client asks for a chunk without an answer.
const MOST_TRIES: u32 = 4;

/// A value that is being written, one chunk after the other.
#[derive(Debug)]
pub(super) struct ObjectWriting {
    pub(super) object: Object,
    subject: Arc<str>,
    value: Vec<u8>,
    /// The next chunk.
    next: u64,
    limits: StoreLimits,
}

/// A value that is being read.
#[derive(Debug)]
pub(super) struct ObjectReading {
    object: Object,
    subject: Arc<str>,
    value: Vec<u8>,
    tries: u32,
}

/// What follows from an answer to a request for a chunk.
pub(super) enum ReadStep {
    /// A further chunk is to be asked for.
    Next,
    Again,
    /// The whole value; `None` if it is not there.
    Over(Result<Option<Vec<u8>>, String>),
}

impl ObjectWriting {
    pub(super) fn new(
        name: String,
        subject: Arc<str>,
        value: Vec<u8>,
        chunk: usize,
        limits: StoreLimits,
    ) -> Self {
        let object = Object { name, bytes: value.len() as u64, chunk: chunk as u64 };
        ObjectWriting { object, subject, value, next: 0, limits }
    }

    /// The next chunk, which is published `now`; `None` if all are written.
    pub(super) fn next(&mut self, now: Instant) -> Option<Publishing> {
        let size = self.object.chunk as usize;
        let chunk = self.value.chunks(size).nth(self.next as usize)?;
        let subject = format!("{}.{}", self.subject, self.next);
        self.next += 1;
        let message = Message::new(&subject, chunk.to_vec()).with_id(&subject);
        Some(Publishing::new(message, self.limits, now))
    }

    /// The subjects of the chunks.
    pub(super) fn subjects(&self) -> Arc<str> {
        format!("{}.*", self.subject).into()
    }
}

impl ObjectReading {
    pub(super) fn new(object: Object, subject: Arc<str>) -> Self {
        ObjectReading { object, subject, value: vec![], tries: 0 }
    }

    /// The request for the next chunk.
    pub(super) fn request(&self, stream: Arc<str>) -> Request {
        let number = self.value.len() as u64 / self.object.chunk.max(1);
        Request::GetLast { stream, subject: format!("{}.{number}", self.subject).into() }
    }

    /// Takes the answer, `None` without one.
    pub(super) fn take(&mut self, answer: Option<Answer>, is_connected: bool) -> ReadStep {
        match answer {
            Some(Answer::Message { message, .. }) => {
                self.value.extend_from_slice(&message.payload);
                match self.value.len() as u64 >= self.object.bytes {
                    true => ReadStep::Over(Ok(Some(std::mem::take(&mut self.value)))),
                    false => ReadStep::Next,
                }
            }
            Some(Answer::NotFound) => ReadStep::Over(Ok(None)),
            answer => {
                self.tries += u32::from(is_connected);
                match self.tries >= MOST_TRIES {
                    true => ReadStep::Over(Err(format!("{answer:?}"))),
                    false => ReadStep::Again,
                }
            }
        }
    }
}
