//! The messages that a stream keeps.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::operation::{Message, StreamState, matches};

#[derive(Debug, Clone, Default)]
pub(super) struct StoredMessages {
    messages: BTreeMap<u64, StoredMessage>,
    /// The places of the messages with a subject, in order.
    by_subject: HashMap<Arc<str>, VecDeque<u64>>,
    bytes: u64,
    last: u64,
}

#[derive(Debug, Clone)]
pub(super) struct StoredMessage {
    pub(super) message: Message,
    pub(super) at: Duration,
}

impl StoredMessages {
    /// The place of the oldest message, or of the next one.
    pub(super) fn first(&self) -> u64 {
        self.messages.first_key_value().map_or(self.last + 1, |it| *it.0)
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn state(&self) -> StreamState {
        StreamState {
            messages: self.messages.len() as u64,
            // A stream that never had a message has none.
            first_sequence: if self.last == 0 { 0 } else { self.first() },
            last_sequence: self.last,
        }
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&StoredMessage> {
        self.messages.get(&sequence)
    }

    pub(super) fn oldest(&self) -> Option<(u64, Duration)> {
        self.messages.first_key_value().map(|(sequence, it)| (*sequence, it.at))
    }

    /// The places of one of the messages and of those after it, at most `count`.
    pub(super) fn drawn(&self, drawn: u64, count: usize) -> Vec<u64> {
        let Some(index) = drawn.checked_rem(self.messages.len() as u64) else { return vec![] };
        self.messages.keys().skip(index as usize).take(count).copied().collect()
    }

    /// Makes a message one that nothing decodes.
    pub(super) fn damage(&mut self, sequence: u64) {
        if let Some(stored) = self.messages.get_mut(&sequence) {
            self.bytes -= stored.message.stored_bytes();
            stored.message.payload = [0xff; 12].to_vec().into();
            self.bytes += stored.message.stored_bytes();
        }
    }

    /// The messages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &StoredMessage)> {
        self.messages.iter().map(|(sequence, it)| (*sequence, it))
    }

    /// The places of the messages with a subject.
    pub(super) fn of_subject(&self, subject: &str) -> Option<&VecDeque<u64>> {
        self.by_subject.get(subject)
    }

    /// The first message from a place on, with a subject.
    pub(super) fn next_from(&self, from: u64, filter: Option<&str>) -> Option<u64> {
        let Some(filter) = filter else {
            return self.messages.range(from..).next().map(|it| *it.0);
        };
        if is_wide(filter) {
            let mut rest = self.messages.range(from..);
            return rest.find(|it| matches(filter, &it.1.message.subject)).map(|it| *it.0);
        }
        let places = self.by_subject.get(filter)?;
        // A consumer is mostly at one of the ends.
        match (places.front(), places.back()) {
            (Some(front), _) if *front >= from => Some(*front),
            (_, Some(back)) if *back < from => None,
            _ => places.get(places.partition_point(|it| *it < from)).copied(),
        }
    }

    /// The number of messages from a place on, with a subject.
    pub(super) fn count_from(&self, from: u64, filter: Option<&str>) -> u64 {
        let count = match filter {
            Some(filter) if !is_wide(filter) => self
                .by_subject
                .get(filter)
                .map_or(0, |places| places.len() - places.partition_point(|it| *it < from)),
            filter => {
                let is_counted =
                    |it: &Message| filter.is_none_or(|it_is| matches(it_is, &it.subject));
                self.messages.range(from..).filter(|it| is_counted(&it.1.message)).count()
            }
        };
        count as u64
    }

    pub(super) fn add(&mut self, message: Message, at: Duration) -> u64 {
        self.last += 1;
        self.bytes += message.stored_bytes();
        match self.by_subject.get_mut(&message.subject) {
            Some(places) => places.push_back(self.last),
            None => {
                _ = self.by_subject.insert(message.subject.clone(), VecDeque::from([self.last]));
            }
        }
        self.messages.insert(self.last, StoredMessage { message, at });
        self.last
    }

    pub(super) fn remove(&mut self, sequence: u64) -> bool {
        let Some(StoredMessage { message, .. }) = self.messages.remove(&sequence) else {
            return false;
        };
        self.bytes -= message.stored_bytes();
        if let Some(places) = self.by_subject.get_mut(&message.subject) {
            if places.front() == Some(&sequence) {
                places.pop_front();
            } else if let Ok(index) = places.binary_search(&sequence) {
                places.remove(index);
            }
            if places.is_empty() {
                self.by_subject.remove(&message.subject);
            }
        }
        true
    }

    /// Forgets the newest messages, and that they were there.
    pub(super) fn forget_last(&mut self, count: u64) {
        self.last = self.last.saturating_sub(count);
        let gone = self.messages.range(self.last + 1..).map(|it| *it.0);
        for sequence in gone.collect::<Vec<_>>() {
            self.remove(sequence);
        }
    }
}

/// Whether a pattern stands for more than one subject.
pub(super) fn is_wide(pattern: &str) -> bool {
    pattern.ends_with('>') || pattern.contains('*')
}
