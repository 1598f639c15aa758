//! An input that fails, panics, cancels or drains at an item.

use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_lite::stream::{self, Stream};
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

/// What another thread asks of a run, this long after its start.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    Cancel(Duration),
    Drain(Duration),
}

impl Ask {
    pub(crate) fn random(random: &mut fastrand::Rng) -> Option<Self> {
        let most = [50, 500, 5_000][random.usize(0..3)];
        let after = Duration::from_micros(random.u64(0..most));
        match random.u8(0..16) {
            0 => Some(Ask::Cancel(after)),
            1 => Some(Ask::Drain(after)),
            _ => None,
        }
    }

    /// Asks from a thread of its own.
    pub(crate) fn begin(self, token: CancelToken) -> JoinHandle<()> {
        thread::spawn(move || match self {
            Ask::Cancel(after) => {
                thread::sleep(after);
                token.cancel();
            }
            Ask::Drain(after) => {
                thread::sleep(after);
                token.drain();
            }
        })
    }
}

/// A stream of these items that is pending before every fourth.
pub(crate) fn pausing<I: Iterator>(mut items: I) -> impl Stream<Item = I::Item> {
    let mut polls = 0_u64;
    stream::poll_fn(move |cx| {
        polls += 1;
        if polls.is_multiple_of(5) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(items.next())
    })
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
