//! The memory that bodies and answers of all requests may take.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory for bodies and answers: one permit for each KiB.
#[derive(Debug, Clone)]
pub(crate) struct RequestMemory {
    permits: Arc<Semaphore>,
    most: usize,
}

/// Memory that a body or an answer takes, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct HeldMemory(Option<OwnedSemaphorePermit>);

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Others have taken it.
    Now,
    /// It would not suffice if nothing else took any of it.
    Ever,
}

impl RequestMemory {
    /// Has room for 16 of the largest bodies, and at least for 256 MiB.
    pub(crate) fn new(max_body: u64) -> RequestMemory {
        let most = max_body.div_ceil(1 << 10).saturating_mul(16).max(256 << 10);
        let largest = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let most = usize::try_from(most).unwrap_or(largest).min(largest);
        RequestMemory { permits: Arc::new(Semaphore::new(most)), most }
    }

    /// Takes memory for that many bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<HeldMemory, NoRoom> {
        let mut held = HeldMemory::default();
        held.grow(self, bytes).map(|()| held)
    }
}

impl HeldMemory {
    /// Takes what is missing for that many bytes.
    pub(crate) fn grow(&mut self, budget: &RequestMemory, bytes: usize) -> Result<(), NoRoom> {
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let needed = bytes.div_ceil(1 << 10);
        let more = u32::try_from(needed.saturating_sub(held)).map_err(|_| NoRoom::Ever)?;
        let taken = Arc::clone(&budget.permits).try_acquire_many_owned(more);
        let full = if needed > budget.most { NoRoom::Ever } else { NoRoom::Now };
        self.add(HeldMemory(Some(taken.map_err(|_| full)?)));
        Ok(())
    }

    pub(crate) fn add(&mut self, other: HeldMemory) {
        match (&mut self.0, other.0) {
            (Some(held), Some(other)) => held.merge(other),
            (held @ None, other) => *held = other,
            (Some(_), None) => {}
        }
    }
}

/// What a worker has answered to a value.
#[derive(Debug)]
pub(crate) enum ServedAnswer {
    Kept {
        text: Box<RawValue>,
        memory: HeldMemory,
    },
    /// It was dropped, since there was no memory for it.
    Dropped(NoRoom),
}

/// The bytes of an answer, with their memory, until they are written.
struct AnswerBytes {
    text: Box<str>,
    _memory: HeldMemory,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Makes the bytes of a response, which keep the memory until the caller has got the last of them.
pub(crate) fn answer_bytes(text: impl Into<Box<str>>, memory: HeldMemory) -> Bytes {
    Bytes::from_owner(AnswerBytes { text: text.into(), _memory: memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_until_it_is_dropped() {
        let budget = RequestMemory::new(1);
        let all = 256 << 20;
        let mut body = budget.take(1).unwrap();
        assert_eq!(budget.take(all).unwrap_err(), NoRoom::Now);
        assert_eq!(budget.take(all + 1).unwrap_err(), NoRoom::Ever);
        assert_eq!(budget.take(usize::MAX).unwrap_err(), NoRoom::Ever);
        body.grow(&budget, all).unwrap();
        assert_eq!(budget.take(1).unwrap_err(), NoRoom::Now);
        let bytes = answer_bytes("1".to_owned(), body);
        let rest = bytes.clone();
        drop(bytes);
        assert_eq!(budget.take(1).unwrap_err(), NoRoom::Now, "a part of it is still to be written");
        drop(rest);
        let mut first = budget.take(all / 2).unwrap();
        first.add(budget.take(all / 2).unwrap());
        assert_eq!(budget.take(1).unwrap_err(), NoRoom::Now);
        drop(first);
        budget.take(all).unwrap();
    }
}
