//! Where an error happened.

use std::fmt;
use std::sync::Arc;

use crate::device::Device;

/// One of the hooks of a [`Runner`](crate::Runner).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// [`Runner::producer_init`](crate::Runner::producer_init).
    ProducerInit,
    /// [`Runner::producer_work`](crate::Runner::producer_work).
    ProducerWork,
    /// [`Runner::producer_work_batch`](crate::Runner::producer_work_batch).
    ProducerWorkBatch,
    /// [`Runner::producer_end`](crate::Runner::producer_end).
    ProducerEnd,
    /// [`Runner::consumer_init`](crate::Runner::consumer_init).
    ConsumerInit,
    /// [`Runner::consumer_work`](crate::Runner::consumer_work).
    ConsumerWork,
    /// [`Runner::consumer_skipped`](crate::Runner::consumer_skipped).
    ConsumerSkipped,
    /// [`Runner::consumer_flush`](crate::Runner::consumer_flush).
    ConsumerFlush,
    /// [`Runner::consumer_end`](crate::Runner::consumer_end).
    ConsumerEnd,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::ProducerInit => "producer_init",
            Hook::ProducerWork => "producer_work",
            Hook::ProducerWorkBatch => "producer_work_batch",
            Hook::ProducerEnd => "producer_end",
            Hook::ConsumerInit => "consumer_init",
            Hook::ConsumerWork => "consumer_work",
            Hook::ConsumerSkipped => "consumer_skipped",
            Hook::ConsumerFlush => "consumer_flush",
            Hook::ConsumerEnd => "consumer_end",
        })
    }
}

/// Where a hook was called: on which device, for which items, on which attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Site {
    /// The items of the call, by their index in the run, ascending; empty for hooks without items.
    pub items: Vec<u64>,
    /// The first device of the producer; `None` for hooks of the consumer.
    pub device: Option<Device>,
    /// The producer's number, from 0; `None` for hooks of the consumer.
    pub producer: Option<usize>,
    /// 1 for the first attempt; `None` for hooks without items.
    pub attempt: Option<u32>,
    /// The key of the item, when there is exactly one and [keys](crate::Builder::key) were asked for.
    pub key: Option<Arc<str>>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items.as_slice() {
            [] => {}
            [item] => write!(f, " for item {item}{}", Key(self.key.as_deref()))?,
            [first, .., last] => {
                write!(f, " for {} items from {first} to {last}", self.items.len())?;
            }
        }
        if let Some(device) = self.device {
            write!(f, " on {device}")?;
        }
        match (self.producer, self.attempt) {
            (Some(producer), Some(attempt)) => {
                write!(f, " (producer {producer}, attempt {attempt})")
            }
            (Some(producer), None) => write!(f, " (producer {producer})"),
            (None, Some(attempt)) if attempt > 1 => write!(f, " (attempt {attempt})"),
            (None, _) => Ok(()),
        }
    }
}

/// How a key is written behind the index of its item.
pub(super) struct Key<'a>(pub(super) Option<&'a str>);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Quoted as Rust does: a key may have line breaks and control characters in it.
            Some(key) => write!(f, " ({key:?})"),
            None => Ok(()),
        }
    }
}
