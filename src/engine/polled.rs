//! Streams of async code as sources.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::feed::Source;
use crate::base::panic::catch;

/// The most items that a task pulls in one poll. Then it wakes itself, and lets other tasks run.
pub(super) const MOST_PER_POLL: u32 = 128;

/// A stream, and the item that was polled last. As an iterator it yields that item.
///
/// The stream is polled first, and its item then goes the way of all items.
pub(crate) struct Polled<S: Stream> {
    stream: Pin<Box<S>>,
    /// What the stream has returned, until it is pulled.
    item: Option<S::Item>,
}

impl<S: Stream> Polled<S> {
    pub(crate) fn new(stream: S) -> Self {
        Polled { stream: Box::pin(stream), item: None }
    }
}

/// The stream is pinned by its box; items are moved.
impl<S: Stream> Unpin for Polled<S> {}

impl<S: Stream> Iterator for Polled<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        self.item.take()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<S: Stream, T> Source<Polled<S>, T> {
    /// Polls for the next item, or the end. Call it before each pull.
    pub(super) fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(polled) = self.iter_mut() else { return Poll::Ready(()) };
        match catch(|| polled.stream.as_mut().poll_next(cx)) {
            Ok(poll) => polled.item = ready!(poll),
            Err(message) => self.break_with(message),
        }
        Poll::Ready(())
    }
}
