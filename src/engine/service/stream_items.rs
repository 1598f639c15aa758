//! The open items of a stream, and its results that wait: a value without threads and clocks.

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use gangline_scheduler::budget::{MemoryBudget, Room};
use gangline_scheduler::reorder::Reorder;

use crate::base::Order;
use crate::error::Error;

/// A result, and the index of its item in the stream.
pub(crate) type IndexedResult<T> = (u64, Result<T, Error>);

/// The open items of a stream: sent, and their results not taken.
#[derive(Debug)]
pub(super) struct StreamItems<T> {
    /// The results that may be taken, in the order of the stream.
    ready: VecDeque<IndexedResult<T>>,
    /// The results that wait for those of earlier items. `None` in completion order.
    held_back: Option<Reorder<Result<T, Error>>>,
    /// The largest number of open items.
    window: usize,
    /// The number of items that the producers work on at once.
    at_work: usize,
    memory: Option<MemoryBudget>,
    /// The number of items that were sent.
    sent: u64,
    /// The number of items whose results are to come.
    unanswered: usize,
    end: StreamEnd,
}

/// What bounds a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamLimits {
    pub(super) order: Order,
    pub(super) window: usize,
    pub(super) at_work: usize,
    pub(super) memory: Option<MemoryLimit>,
}

/// The bytes that the open items may take, and the number of items that may be open whatever they take.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryLimit {
    pub(super) bytes: u64,
    pub(super) least: usize,
}

/// How far a stream has come to its end.
#[derive(Debug)]
enum StreamEnd {
    /// More items may be sent.
    Open,
    /// No more items are sent. The stream ends with this error, if any, behind the results of all open items.
    InputEnded(Option<Error>),
    /// Open items were lost. The stream ends with this error behind the results that are ready.
    Failed(Error),
    /// Its last result was taken, or its results are not wanted.
    Over,
}

/// What the receiver of a stream finds.
#[derive(Debug)]
pub(super) enum NextResult<T> {
    Result(u64, Result<T, Error>),
    /// The error that ends the stream.
    Last(Error),
    /// No result is there yet.
    Missing,
    Over,
}

/// What is left of a stream that is over. It is dropped without a lock.
#[derive(Debug)]
#[expect(dead_code, reason = "it is only dropped")]
pub(super) struct Leftover<T> {
    results: Vec<Result<T, Error>>,
    end: StreamEnd,
}

impl<T> StreamItems<T> {
    pub(super) fn new(limits: StreamLimits) -> Self {
        let StreamLimits { order, window, at_work, memory } = limits;
        let budget = |MemoryLimit { bytes, least }| {
            MemoryBudget::new(bytes, &[at_work.max(1)]).with_least(&[least])
        };
        StreamItems {
            ready: VecDeque::new(),
            held_back: match order {
                Order::Input => Some(Reorder::default()),
                Order::Completion => None,
            },
            window: window.max(1),
            at_work,
            memory: memory.map(budget),
            sent: 0,
            unanswered: 0,
            end: StreamEnd::Open,
        }
    }

    /// The number of items that were sent and whose results were not taken.
    pub(super) fn open(&self) -> usize {
        let held_back = self.held_back.as_ref().map_or(0, Reorder::held);
        self.unanswered + self.ready.len() + held_back
    }

    /// Whether more items may be sent, now or once there is room.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.end, StreamEnd::Open)
    }

    /// The number of items that may be sent now, if the first is `next`.
    pub(super) fn room(&self, next: Room) -> usize {
        if !self.has_room(next) {
            return 0;
        }
        let fit = self.memory.as_ref().map_or(usize::MAX, |memory| memory.room(0).max(1));
        (self.window - self.open()).min(fit)
    }

    fn has_room(&self, next: Room) -> bool {
        let has_memory = || self.memory.as_ref().is_none_or(|memory| memory.has_room(0, next));
        self.accepts() && self.open() < self.window && has_memory()
    }

    /// Opens items with inputs of these sizes, up to the first for which there is no room. Returns their indices.
    pub(super) fn admit(&mut self, sizes: impl IntoIterator<Item = u64>) -> Range<u64> {
        let first = self.sent;
        for bytes in sizes {
            if !self.has_room(Room::For(bytes)) {
                break;
            }
            if let Some(memory) = &mut self.memory {
                memory.take(0, self.sent, bytes);
            }
            self.sent += 1;
            self.unanswered += 1;
        }
        first..self.sent
    }

    /// Adds the result of an open item, whose output takes `bytes` if it is measured. Returns a result that is not
    /// wanted.
    pub(super) fn answer(
        &mut self,
        index: u64,
        result: Result<T, Error>,
        bytes: Option<u64>,
    ) -> Option<Result<T, Error>> {
        if let StreamEnd::Over = self.end {
            return Some(result);
        }
        self.unanswered -= 1;
        if let (Some(memory), Some(bytes)) = (&mut self.memory, bytes) {
            memory.settle(0, index, bytes);
        }
        match &mut self.held_back {
            Some(held_back) if held_back.next() != index || held_back.held() > 0 => {
                held_back.insert(index, result);
                self.ready.extend(std::iter::from_fn(|| held_back.pop()));
            }
            Some(held_back) => {
                held_back.pass(1);
                self.ready.push_back((index, result));
            }
            None => self.ready.push_back((index, result)),
        }
        None
    }

    /// Takes the next result.
    pub(super) fn take(&mut self) -> NextResult<T> {
        if let Some((index, result)) = self.ready.pop_front() {
            if let Some(memory) = &mut self.memory {
                memory.give_back(0, index);
            }
            return NextResult::Result(index, result);
        }
        if !self.has_next() {
            return NextResult::Missing;
        }
        match mem::replace(&mut self.end, StreamEnd::Over) {
            StreamEnd::InputEnded(Some(error)) | StreamEnd::Failed(error) => {
                NextResult::Last(error)
            }
            StreamEnd::InputEnded(None) | StreamEnd::Over => NextResult::Over,
            StreamEnd::Open => {
                unreachable!("an open stream has a next step only if it has a result")
            }
        }
    }

    /// Whether a result may be taken, or the stream has ended.
    pub(super) fn has_next(&self) -> bool {
        !self.ready.is_empty() || self.unanswered == 0 && !self.accepts()
    }

    /// The number of results that may be taken.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether a sender that waits for `room` is to be woken.
    ///
    /// A wake-up costs more than a short item. So the sender waits until half of what may be open is free. Only if the
    /// producers may run dry meanwhile, and the receiver too, does it go on at once.
    pub(super) fn wakes_sender(&self, next: Room) -> bool {
        let (room, open) = (self.room(next), self.open());
        let may_run_dry =
            || self.unanswered <= self.at_work && 2 * self.ready.len() < room.saturating_add(open);
        !self.accepts() || room > 0 && (room >= open || may_run_dry())
    }

    /// Ends the input. The stream then ends behind the results of the open items, with `error` if there is one. Returns an
    /// error that is not needed, since the stream has ended before.
    pub(super) fn end_input(&mut self, error: Option<Error>) -> Option<Error> {
        if !self.accepts() {
            return error;
        }
        self.end = StreamEnd::InputEnded(error);
        None
    }

    /// Ends the stream with `error`, since no result comes for `lost` of the open items. A stream that has sent all items
    /// and has lost none is left as it is. Returns what is not needed.
    pub(super) fn fail(&mut self, error: Error, lost: usize) -> Option<Error> {
        let is_over = matches!(self.end, StreamEnd::Over | StreamEnd::Failed(_));
        if is_over || lost == 0 && !self.accepts() {
            return Some(error);
        }
        self.unanswered -= lost;
        match mem::replace(&mut self.end, StreamEnd::Failed(error)) {
            StreamEnd::InputEnded(before) => before,
            StreamEnd::Open | StreamEnd::Failed(_) | StreamEnd::Over => None,
        }
    }

    /// Ends the stream: results are no longer wanted. Returns those that are here.
    pub(super) fn abandon(&mut self) -> Leftover<T> {
        self.unanswered = 0;
        let mut results: Vec<_> = self.ready.drain(..).map(|(_, result)| result).collect();
        results.extend(
            self.held_back.take().into_iter().flat_map(|mut held| held.drain().collect::<Vec<_>>()),
        );
        Leftover { results, end: mem::replace(&mut self.end, StreamEnd::Over) }
    }
}
