//! The input of a run: the feeder of the package hands items to that of the library.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::vec;

use gangline::crossbeam_channel::{Receiver, Sender, bounded};

use crate::default_window::SMALL;
use crate::item::StageItem;
use crate::lock;

/// The end of the package. Items are taken from it only when the library asks for one.
pub(crate) struct RunInput {
    /// `None` once the input has ended.
    sender: Mutex<Option<Sender<Vec<StageItem>>>>,
    asking: Arc<Asking>,
    /// The number of items that are to be sent together, if reading them cannot block.
    group: AtomicUsize,
    /// The largest such number.
    most: usize,
}

/// The end of the library.
pub(crate) struct RunItems {
    receiver: Receiver<Vec<StageItem>>,
    /// What is left of those that were sent together.
    group: vec::IntoIter<StageItem>,
    asking: Arc<Asking>,
}

/// The number of items that are sent together while their sizes are not known.
const FIRST_GROUP: usize = 8;
/// The largest number of items that are sent together. Each group costs a wait on both sides, and short items need full
/// lists.
const LARGEST_GROUP: usize = 256;
/// What the items that are sent together may take in memory, in bytes.
const GROUP_BYTES: u64 = SMALL * FIRST_GROUP as u64;

/// Whether the library waits for an item, or is about to, so that it can be sent without a wait.
#[derive(Default)]
struct Asking {
    asks: AtomicBool,
    /// The waker of an event loop that waits to send an item.
    waker: Mutex<Option<Waker>>,
}

impl RunInput {
    /// An input of a run whose first stage holds at most `window` items, if its user has said so.
    pub(crate) fn new(window: Option<usize>) -> (Self, RunItems) {
        let (sender, receiver) = bounded(0);
        let asking = Arc::<Asking>::default();
        let most = window.unwrap_or(LARGEST_GROUP).clamp(1, LARGEST_GROUP);
        let input = RunInput {
            sender: Mutex::new(Some(sender)),
            asking: asking.clone(),
            group: AtomicUsize::new(FIRST_GROUP.min(most)),
            most,
        };
        (input, RunItems { receiver, group: vec![].into_iter(), asking })
    }

    pub(crate) fn is_open(&self) -> bool {
        lock(&self.sender).is_some()
    }

    /// The number of items that are to be sent together, if reading them cannot block.
    pub(crate) fn group(&self) -> usize {
        self.group.load(Ordering::Relaxed)
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

    /// Sends items, and waits until they are taken. Once the input has ended, they are dropped.
    pub(crate) fn send(&self, items: Vec<StageItem>) {
        if items.is_empty() {
            return;
        }
        self.note_sizes(&items);
        // The sender is not kept, since it would keep the input open.
        let Some(sender) = lock(&self.sender).clone() else { return };
        self.asking.asks.store(false, Ordering::Release);
        _ = sender.send(items);
    }

    /// Takes the sizes of these items for those of the next ones.
    fn note_sizes(&self, items: &[StageItem]) {
        let bytes: u64 = items.iter().map(StageItem::size).sum();
        // Those of objects are not known.
        let fitting = match bytes {
            0 => FIRST_GROUP,
            bytes => usize::try_from(GROUP_BYTES * items.len() as u64 / bytes).unwrap_or(self.most),
        };
        // The next ones may be larger.
        let group = fitting.clamp(1, self.most).min(2 * self.group());
        self.group.store(group, Ordering::Relaxed);
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
        if let Some(item) = self.group.next() {
            return Some(item);
        }
        self.asking.asks.store(true, Ordering::Release);
        self.asking.wake();
        self.group = self.receiver.recv().ok()?.into_iter();
        self.group.next()
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
