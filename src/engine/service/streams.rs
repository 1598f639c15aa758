//! The two halves of a stream of a service: one sends items, the other takes their results.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use gangline_scheduler::batch::Size;
use gangline_scheduler::budget::Room;
use gangline_scheduler::{Meta, Priority};

use super::stream_channel::{BytesOf, StreamChannel};
use super::stream_items::{IndexedResult, MemoryLimit, NextResult, StreamLimits};
use super::{Calls, look};
use crate::base::panic::{catch, drop_quietly};
use crate::base::{Measure, Order};
use crate::concurrency::parker::{block_on, block_on_soon, block_until};
use crate::error::Error;
use crate::run::Run;
use crate::run::item_names::ItemEntry;
use crate::run::measures::Rejected;
use crate::run::spans::SubscribedSpan;

/// How a stream is opened.
pub(crate) struct StreamSettings<I, T> {
    pub(crate) order: Order,
    /// The largest number of open items.
    pub(crate) window: usize,
    pub(crate) memory: Option<StreamMemory<I, T>>,
}

/// What bounds the memory of a stream.
pub(crate) struct StreamMemory<I, T> {
    pub(crate) bytes: u64,
    /// The number of items that may be open whatever they take.
    pub(crate) least: usize,
    pub(crate) input: BytesOf<I>,
    pub(crate) output: BytesOf<T>,
}

/// Sends the items of a stream. Dropping it ends the input.
pub(crate) struct ItemSender<I, T> {
    calls: Calls<I, T>,
    channel: Arc<StreamChannel<T>>,
    input_bytes: Option<BytesOf<I>>,
}

/// Takes the results of a stream. Dropping it gives up the open items.
pub(crate) struct StreamResults<I, T> {
    calls: Calls<I, T>,
    channel: Arc<StreamChannel<T>>,
    /// The number of results that were taken.
    taken: u64,
    is_over: bool,
}

/// An item that is named and measured, which is user code, and not yet offered.
struct UnsentItem<I> {
    input: I,
    looked: Result<(Option<ItemEntry>, Size), Rejected>,
    bytes: u64,
    caller: Option<SubscribedSpan>,
}

/// Opens a stream of a service.
pub(crate) fn open<I, T>(
    calls: &Calls<I, T>,
    settings: StreamSettings<I, T>,
) -> (ItemSender<I, T>, StreamResults<I, T>) {
    let StreamSettings { order, window, memory } = settings;
    let at_work = calls.run.as_ref().map_or(1, |run| run.handover.at_work());
    let limit = memory.as_ref().map(|it| MemoryLimit { bytes: it.bytes, least: it.least });
    let limits = StreamLimits { order, window, at_work, memory: limit };
    let (input_bytes, output_bytes) = memory.map(|it| (it.input, it.output)).unzip();
    let channel = Arc::new(StreamChannel::new(limits, output_bytes));
    if calls.board.check_home().is_ok() {
        calls.board.add_stream(&channel);
    }
    let sender = ItemSender { calls: calls.clone(), channel: channel.clone(), input_bytes };
    (sender, StreamResults { calls: calls.clone(), channel, taken: 0, is_over: false })
}

impl<I, T> ItemSender<I, T> {
    /// The number of items that may be sent now. `None` if no more are accepted.
    pub(super) fn room_now(&self) -> Option<usize> {
        self.is_accepted().then(|| self.channel.room()).flatten()
    }

    /// Polls for room. 0 if no more items are accepted.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        self.poll_room_for(Room::Next, cx)
    }

    /// Waits for room. 0 if no more items are accepted, and for a thread of the service's producers if it would wait.
    pub(crate) fn room(&self) -> usize {
        self.wait_for(Room::Next)
    }

    /// Sends items, and waits for room for those that have none. Returns those that are not accepted.
    pub(crate) fn send(&self, inputs: impl IntoIterator<Item = I>) -> Result<(), Vec<I>> {
        let inputs = inputs.into_iter();
        let Some(run) = self.calls.run.as_ref().filter(|_| self.is_accepted()) else {
            return Err(inputs.collect());
        };
        let mut items: VecDeque<_> = inputs.map(|input| self.measured(run, input)).collect();
        loop {
            let is_accepted = self.offer(run, &mut items);
            let Some(next) = items.front() else { return Ok(()) };
            if !is_accepted || self.wait_for(Room::For(next.bytes)) == 0 {
                return Err(items.into_iter().map(|item| item.input).collect());
            }
        }
    }

    /// Ends the input: with `error`, behind the results of the open items, or as a stream that has sent all.
    pub(super) fn end(&self, error: Option<Error>) {
        if self.calls.board.check_home().is_ok() {
            self.channel.end_input(error);
        }
    }

    fn poll_room_for(&self, next: Room, cx: &mut Context<'_>) -> Poll<usize> {
        if self.is_accepted() { self.channel.poll_room(next, cx.waker()) } else { Poll::Ready(0) }
    }

    /// Whether the service accepts items. If not, the stream ends with the reason. The sender may learn it earlier than the
    /// service's own thread, and is then dropped as if it had sent all items.
    fn is_accepted(&self) -> bool {
        match self.calls.board.check_open() {
            Ok(()) => true,
            Err(Error::Forked { .. }) => false,
            Err(error) => {
                self.channel.end_input(Some(error));
                false
            }
        }
    }

    fn wait_for(&self, next: Room) -> usize {
        match self.calls.is_own_thread() {
            true => self.room_now().unwrap_or(0),
            false => block_on(|cx| self.poll_room_for(next, cx)),
        }
    }

    fn measured(&self, run: &Run<I, T>, input: I) -> UnsentItem<I> {
        let looked = look(run, &input);
        let bytes = catch(|| self.input_bytes.as_ref().map_or(0, |bytes| bytes(&input)));
        let (looked, bytes) = match bytes {
            Ok(bytes) => (looked, bytes),
            Err(message) => (Err(Rejected::MeasurePanicked(Measure::Memory, message)), 0),
        };
        UnsentItem { input, looked, bytes, caller: run.spans.caller() }
    }

    /// Offers the first of these items, as far as there is room. Returns whether items are accepted.
    fn offer(&self, run: &Run<I, T>, items: &mut VecDeque<UnsentItem<I>>) -> bool {
        let mut rejected = vec![];
        let (opened, events) = run.handover.dispatch.schedule(|state, now| {
            let sizes = items.iter().map(|item| item.bytes);
            for index in self.calls.board.open_items(&self.channel, sizes)? {
                let item = items.pop_front().expect("each index is of one of these items");
                let UnsentItem { input, looked, caller, .. } = item;
                match looked {
                    Ok((entry, size)) => {
                        run.enter_name(index, entry);
                        run.spans.note_caller(index, caller);
                        state.inputs.insert(index, input, 1);
                        let meta = Meta { size, since: now, priority: Priority::Background };
                        state.scheduler.offer(index, meta, now);
                    }
                    Err(reason) => rejected.push((index, input, caller, reason)),
                }
            }
            Ok::<_, Error>(())
        });
        run.heed(events);
        for (index, input, caller, reason) in rejected {
            drop_quietly((input, caller));
            self.calls.board.refuse(index, reason.into_error(index));
        }
        match opened {
            Ok(()) => true,
            // Otherwise the receiver would take what was sent for all, once this sender is dropped.
            Err(error) => {
                self.channel.end_input(Some(error));
                false
            }
        }
    }
}

impl<I, T> Drop for ItemSender<I, T> {
    fn drop(&mut self) {
        match self.calls.board.check_home() {
            Ok(()) => self.channel.end_input(None),
            Err(_) => keep(&self.channel),
        }
    }
}

impl<I, T> StreamResults<I, T> {
    /// Waits for the next result. `None` after the last.
    pub(crate) fn next(&mut self) -> Option<IndexedResult<T>> {
        if self.is_over {
            return None;
        }
        if let Err(error) = self.calls.board.check_home() {
            return self.last(error);
        }
        if self.calls.is_own_thread() {
            self.end();
            return self.last(Error::OwnThread {});
        }
        let poll = |cx: &mut Context<'_>| self.channel.poll_next(cx.waker());
        let next = match &self.calls.run {
            Some(run) => block_on_soon(&run.handover.yields, poll),
            None => block_on(poll),
        };
        self.note(next)
    }

    /// Polls for the next result.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<IndexedResult<T>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Err(error) = self.calls.board.check_home() {
            return Poll::Ready(self.last(error));
        }
        self.channel.poll_next(cx.waker()).map(|next| self.note(next))
    }

    /// Takes up to `most` results that are there, without waiting. The error that ends the stream is one of them.
    pub(crate) fn take_ready(&mut self, most: usize) -> Vec<IndexedResult<T>> {
        if self.is_over || most == 0 {
            return vec![];
        }
        if let Err(error) = self.calls.board.check_home() {
            return self.last(error).into_iter().collect();
        }
        let (mut taken, next) = self.channel.take_ready(most);
        self.taken += taken.len() as u64;
        if !matches!(next, NextResult::Missing) {
            taken.extend(self.note(next));
        }
        taken
    }

    /// Waits until the next result or the end is there, at most until `end`. Returns whether it is.
    pub(crate) fn wait_until(&self, end: Instant) -> bool {
        let needs_no_wait = self.is_over || self.calls.board.check_home().is_err();
        if needs_no_wait || self.calls.is_own_thread() {
            return true;
        }
        block_until(end, |cx| self.channel.poll_ready(cx.waker())).is_some()
    }

    /// Whether the next result or the end is there.
    pub(super) fn has_next(&self) -> bool {
        self.is_over || self.channel.has_next()
    }

    /// Whether the calling thread is a producer's, which must not wait.
    pub(super) fn is_own_thread(&self) -> bool {
        self.calls.is_own_thread()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn note(&mut self, next: NextResult<T>) -> Option<IndexedResult<T>> {
        match next {
            NextResult::Result(index, result) => {
                self.taken += 1;
                Some((index, result))
            }
            NextResult::Last(error) => {
                self.channel.abandon();
                self.last(error)
            }
            NextResult::Over | NextResult::Missing => {
                self.is_over = true;
                None
            }
        }
    }

    /// The error that ends the stream.
    fn last(&mut self, error: Error) -> Option<IndexedResult<T>> {
        self.is_over = true;
        Some((self.taken, Err(error)))
    }

    /// Gives up the open items, and takes no more results.
    fn end(&mut self) {
        self.is_over = true;
        self.channel.abandon();
        let indices = self.calls.board.remove_stream(&self.channel);
        if let Some(run) = &self.calls.run {
            super::withdraw(run, &indices);
        }
    }
}

impl<I, T> Drop for StreamResults<I, T> {
    fn drop(&mut self) {
        match self.calls.board.check_home() {
            Ok(()) => self.end(),
            Err(_) => keep(&self.channel),
        }
    }
}

/// Keeps a stream in a forked process for ever: a thread that is not there may hold its lock.
fn keep<T>(channel: &Arc<StreamChannel<T>>) {
    mem::forget(channel.clone());
}
