//! The input of a run: the feeder of the package hands items to that of the library.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use gangline::crossbeam_channel::{Receiver, Sender, bounded};

use crate::item::StageItem;
use crate::lock;

/// The end of the package. An item is taken from it only when the library asks for one.
pub(crate) struct RunInput {
    /// `None` once the input has ended.
    sender: Mutex<Option<Sender<StageItem>>>,
    asking: Arc<Asking>,
}

/// The end of the library.
pub(crate) struct RunItems {
    receiver: Receiver<StageItem>,
    asking: Arc<Asking>,
}

/// Whether the library waits for an item, or is about to, so that it can be sent without a wait.
#[derive(Default)]
struct Asking {
    asks: AtomicBool,
    /// Of an event loop that waits to send one.
    waker: Mutex<Option<Waker>>,
}

impl RunInput {
    pub(crate) fn new() -> (Self, RunItems) {
        let (sender, receiver) = bounded(0);
        let asking = Arc::<Asking>::default();
        let input = RunInput { sender: Mutex::new(Some(sender)), asking: asking.clone() };
        (input, RunItems { receiver, asking })
    }

    pub(crate) fn is_open(&self) -> bool {
        lock(&self.sender).is_some()
    }

    /// Polls until an item can be sent without a wait. `false` if the input has ended.
    pub(crate) fn poll_asks(&self, cx: &mut Context<'_>) -> Poll<bool> {
        // First: it is taken by what happens from now on.
        *lock(&self.asking.waker) = Some(cx.waker().clone());
        match () {
            () if !self.is_open() => Poll::Ready(false),
            () if self.asking.asks.load(Ordering::Acquire) => Poll::Ready(true),
            () => Poll::Pending,
        }
    }

    /// Sends an item, and waits until it is taken. Returns whether it was.
    pub(crate) fn send(&self, item: StageItem) -> bool {
        // The sender is not kept, since it would keep the input open.
        let Some(sender) = lock(&self.sender).clone() else { return false };
        self.asking.asks.store(false, Ordering::Release);
        sender.send(item).is_ok()
    }

    /// Ends the input.
    pub(crate) fn end(&self) {
        let sender = lock(&self.sender).take();
        drop(sender);
        self.asking.wake();
    }
}

impl Iterator for RunItems {
    type Item = StageItem;

    fn next(&mut self) -> Option<StageItem> {
        self.asking.asks.store(true, Ordering::Release);
        self.asking.wake();
        self.receiver.recv().ok()
    }
}

impl Asking {
    fn wake(&self) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
