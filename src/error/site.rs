//! Where an error happened.

use std::fmt;
use std::sync::Arc;

use crate::device::Device;

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
    /// The key of the item, if there is exactly one and [keys](crate::Builder::key) are in use.
    pub key: Option<Arc<str>>,
    /// The host of the worker, in a cluster.
    pub host: Option<Arc<str>>,
    /// The number of the stage in a pipeline, from 1, if the run has ended since too few of its producers were left.
    pub stage: Option<usize>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items.as_slice() {
            [] => {}
            [item] => write!(f, " for item {item}{}", ShownKey(self.key.as_deref()))?,
            [first, .., last] => {
                write!(f, " for {} items from {first} to {last}", self.items.len())?;
            }
        }
        if let Some(device) = self.device {
            write!(f, " on {device}")?;
        }
        if let Some(host) = &self.host {
            write!(f, " of {host}")?;
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

/// A key, as it is written behind the index of its item.
pub(super) struct ShownKey<'a>(pub(super) Option<&'a str>);

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Quoted as Rust does: a key may have line breaks and control characters in it.
            Some(key) => write!(f, " ({key:?})"),
            None => Ok(()),
        }
    }
}
