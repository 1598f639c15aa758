//! Streams of async code as sources.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::feed::{FeederTime, Next, Pulled, Source};
use super::outputs_driver::MOST_PER_POLL;
use crate::base::panic::{catch, drop_quietly};
use crate::run::Run;
use crate::run::handover::feeder::Feeder;

/// A stream, and the item that was polled last. As an iterator it yields that item.
///
/// The stream is polled first, and its item then goes the way of all items.
pub(crate) struct Polled<S: Stream> {
    stream: Pin<Box<S>>,
    /// What the stream has returned, until it is pulled.
    item: Option<S::Item>,
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
    /// Creates a source from `stream`; `next` takes and converts the item that was polled.
    pub(crate) fn polled(stream: S, next: Next<Polled<S>, T>) -> Self {
        Source::new(Polled { stream: Box::pin(stream), item: None }, next)
    }

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

/// The feeding of a run from a stream, by the task that waits for the run.
pub(super) struct PolledFeeding<I, T> {
    feeder: Feeder<I, T>,
    time: FeederTime,
}

impl<I, T> PolledFeeding<I, T> {
    pub(super) fn new(run: &Run<I, T>) -> Self {
        PolledFeeding { feeder: Feeder::new(&run.handover).before_pulls(), time: FeederTime::new() }
    }

    /// Pulls as long as the stream has items and the window has room. Ready once the input has ended.
    pub(super) fn poll<S: Stream>(
        &mut self,
        run: &Run<I, T>,
        source: &mut Source<Polled<S>, I>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        let PolledFeeding { feeder, time } = self;
        time.feed_again(run);
        for _ in 0..MOST_PER_POLL {
            let is_halted = run.handover.is_halted();
            let may_go_on = match is_halted {
                // An item that waits for room is given out first, and the task does not block.
                true => feeder.awaits_no_end(&run.handover),
                false => feeder.awaits_no_permit(&run.handover),
            };
            if !may_go_on {
                time.starve(run);
                return Poll::Pending;
            }
            if is_halted {
                source.end(run, feeder);
                time.leave(run);
                return Poll::Ready(());
            }
            let _pulling = run.pulling();
            ready!(source.poll_item(cx));
            if let Pulled::End = source.pull_polled(run, feeder) {
                time.leave(run);
                return Poll::Ready(());
            }
        }
        waker.wake_by_ref();
        Poll::Pending
    }

    /// Drops the item that waits for room.
    pub(super) fn leave(mut self) {
        self.feeder.take_held().into_iter().for_each(drop_quietly);
    }
}
