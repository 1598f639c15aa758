//! Where the results of one stream arrive, and its sender and receiver wait.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use gangline_scheduler::Priority;
use gangline_scheduler::budget::Room;

use super::places::{Slot, wake};
use super::stream_items::{IndexedResult, Leftover, NextResult, StreamItems, StreamLimits};
use crate::base::Measure;
use crate::base::panic::{PanicMessage, catch, drop_quietly};
use crate::concurrency::{Mutex, lock};
use crate::error::Error;

/// Measures what a value takes in memory, in bytes.
pub(crate) type BytesOf<V> = Box<dyn Fn(&V) -> u64 + Send + Sync>;

/// A stream, as its two halves and the board share it.
pub(super) struct StreamChannel<T> {
    state: Mutex<ChannelState<T>>,
    output_bytes: Option<BytesOf<T>>,
}

struct ChannelState<T> {
    items: StreamItems<T>,
    /// A sender that waits for this room.
    sender: Option<(Waker, Room)>,
    /// A receiver that waits for the next result.
    receiver: Option<Waker>,
}

/// The part of a service to which the answer of an open item goes.
pub(super) enum Recipient<T> {
    Call(Arc<Slot<T>>),
    /// A stream, with the index of the item in it.
    Stream(Arc<StreamChannel<T>>, u64),
}

impl<T> Recipient<T> {
    /// Gives the answer, and wakes what waits for it. Call it without a lock.
    pub(super) fn answer(self, answer: Result<T, Error>, bytes: Option<u64>) {
        match self {
            Recipient::Call(slot) => slot.answer(answer),
            Recipient::Stream(channel, index) => channel.answer(index, answer, bytes),
        }
    }

    pub(super) fn into_call(self) -> Option<Arc<Slot<T>>> {
        match self {
            Recipient::Call(slot) => Some(slot),
            Recipient::Stream(..) => None,
        }
    }

    pub(super) fn priority(&self) -> Priority {
        match self {
            Recipient::Call(_) => Priority::Normal,
            Recipient::Stream(..) => Priority::Background,
        }
    }

    pub(super) fn is_of(&self, stream: &Arc<StreamChannel<T>>) -> bool {
        matches!(self, Recipient::Stream(channel, _) if Arc::ptr_eq(channel, stream))
    }

    /// The stream, if it measures outputs.
    pub(super) fn measuring(&self) -> Option<&Arc<StreamChannel<T>>> {
        match self {
            Recipient::Stream(channel, _) if channel.output_bytes.is_some() => Some(channel),
            Recipient::Stream(..) | Recipient::Call(_) => None,
        }
    }
}

impl<T> StreamChannel<T> {
    pub(super) fn new(limits: StreamLimits, output_bytes: Option<BytesOf<T>>) -> Self {
        let items = StreamItems::new(limits);
        let state = Mutex::new(ChannelState { items, sender: None, receiver: None });
        StreamChannel { state, output_bytes }
    }

    /// Measures an output. `item` is its index in the service.
    pub(super) fn measure(&self, item: u64, output: &T) -> Result<Option<u64>, Error> {
        let measured = catch(|| self.output_bytes.as_ref().map(|bytes| bytes(output)));
        measured.map_err(|source| memory_error(item, source))
    }

    /// Opens items with inputs of these sizes, up to the first for which there is no room. Returns their indices.
    pub(super) fn admit(&self, sizes: impl IntoIterator<Item = u64>) -> Range<u64> {
        lock(&self.state).items.admit(sizes)
    }

    fn answer(&self, index: u64, answer: Result<T, Error>, bytes: Option<u64>) {
        let unwanted = self.change(|items| items.answer(index, answer, bytes));
        drop_quietly(unwanted);
    }

    /// Ends the input: with `error`, behind the results of the open items, or as a stream that has sent all.
    pub(super) fn end_input(&self, error: Option<Error>) {
        let unwanted = self.change(|items| items.end_input(error));
        drop_quietly(unwanted);
    }

    /// Ends the stream with `error`, since no answer comes for `lost` of the open items.
    pub(super) fn fail(&self, error: Error, lost: usize) {
        let unwanted = self.change(|items| items.fail(error, lost));
        drop_quietly(unwanted);
    }

    /// Ends the stream, whose results are no longer wanted.
    pub(super) fn abandon(&self) {
        let leftover = self.change(StreamItems::abandon);
        drop_quietly(leftover);
    }

    /// The number of items that may be sent now. `None` if no more are accepted.
    pub(super) fn room(&self) -> Option<usize> {
        let state = lock(&self.state);
        state.items.accepts().then(|| state.items.room(Room::Next))
    }

    /// Polls for room, and keeps `waker` while there is none. 0 if no more items are accepted.
    pub(super) fn poll_room(&self, next: Room, waker: &Waker) -> Poll<usize> {
        // A waker is the user's: it is cloned and dropped without the lock.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let room = state.items.room(next);
        if room > 0 || !state.items.accepts() {
            return Poll::Ready(room);
        }
        let old = state.sender.replace((waker, next));
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Whether the receiver need not wait.
    pub(super) fn has_next(&self) -> bool {
        lock(&self.state).items.has_next()
    }

    /// Takes the next result, or keeps `waker` until there is one.
    pub(super) fn poll_next(&self, waker: &Waker) -> Poll<NextResult<T>> {
        match self.take() {
            NextResult::Missing => self.poll_ready(waker).map(|()| self.take()),
            next => Poll::Ready(next),
        }
    }

    /// Polls for the next result or the end, and keeps `waker` while there is neither.
    pub(super) fn poll_ready(&self, waker: &Waker) -> Poll<()> {
        if self.has_next() {
            return Poll::Ready(());
        }
        let waker = waker.clone();
        let mut state = lock(&self.state);
        if state.items.has_next() {
            drop(state);
            drop(waker);
            return Poll::Ready(());
        }
        let old = state.receiver.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    fn take(&self) -> NextResult<T> {
        self.change(StreamItems::take)
    }

    /// Takes up to `most` results that are ready, and what comes behind them if that is the end.
    pub(super) fn take_ready(&self, most: usize) -> (Vec<IndexedResult<T>>, NextResult<T>) {
        self.change(|items| {
            let mut taken = Vec::with_capacity(most.min(items.ready()));
            while taken.len() < most {
                match items.take() {
                    NextResult::Result(index, result) => taken.push((index, result)),
                    other => return (taken, other),
                }
            }
            (taken, NextResult::Missing)
        })
    }

    /// Changes the stream, and then wakes the half that waits for what has changed.
    fn change<V>(&self, change: impl FnOnce(&mut StreamItems<T>) -> V) -> V {
        let mut state = lock(&self.state);
        let value = change(&mut state.items);
        let ChannelState { items, sender, receiver } = &mut *state;
        let sender = sender.take_if(|(_, next)| items.wakes_sender(*next));
        let receiver = receiver.take_if(|_| items.has_next());
        drop(state);
        sender.into_iter().for_each(|(waker, _)| wake(waker));
        receiver.into_iter().for_each(wake);
        value
    }
}

/// The error of an item whose size could not be measured.
fn memory_error(item: u64, source: PanicMessage) -> Error {
    Error::MeasurePanicked { item, measure: Measure::Memory, key: None, source }
}

/// Results that were not taken are the user's values, and so are wakers.
impl<T> Drop for StreamChannel<T> {
    fn drop(&mut self) {
        let ChannelState { items, sender, receiver } = &mut *lock(&self.state);
        let leftover: Leftover<T> = items.abandon();
        drop_quietly((leftover, sender.take(), receiver.take()));
    }
}

impl<T> fmt::Debug for StreamChannel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamChannel").finish_non_exhaustive()
    }
}
