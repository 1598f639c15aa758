//! An input that fails, panics, cancels or drains at an item.

use std::sync::Arc;

use gangline::CancelToken;

use crate::item::{Fault, Item};
use crate::work::Record;

/// What the input does at some items.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InputFaults {
    pub(crate) fails_at: Option<u64>,
    pub(crate) panics_at: Option<u64>,
    pub(crate) cancels_at: Option<u64>,
    pub(crate) drains_at: Option<u64>,
    /// Whether `size_hint` says how much is left.
    pub(crate) has_size: bool,
}

/// Yields the items with these faults, in order.
pub(crate) struct Inputs {
    pub(crate) items: Arc<[Fault]>,
    pub(crate) next: usize,
    pub(crate) faults: InputFaults,
    pub(crate) record: Arc<Record>,
    pub(crate) token: CancelToken,
}

impl Iterator for Inputs {
    type Item = Result<Item, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let fault = *self.items.get(self.next)?;
        let x = self.next as u64;
        self.next += 1;
        self.record.pull();
        let at = Some(x);
        if at == self.faults.panics_at {
            panic!("fault of the input at {x}");
        }
        if at == self.faults.cancels_at {
            self.token.cancel();
        }
        if at == self.faults.drains_at {
            self.token.drain();
        }
        if at == self.faults.fails_at {
            return Some(Err(format!("fault of the input at {x}")));
        }
        Some(Ok(Item { x, fault, live: self.record.items.live() }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.items.len() - self.next;
        if self.faults.has_size { (left, Some(left)) } else { (0, None) }
    }
}
