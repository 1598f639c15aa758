//! The streams of a board, and their open items.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use gangline_scheduler::IndexMap;

use super::Board;
use crate::base::panic::drop_quietly;
use crate::concurrency::{MutexGuard, lock};
use crate::engine::service::service_state::{OpenCall, ServiceState};
use crate::engine::service::stream_channel::{Recipient, StreamChannel};
use crate::error::Error;
use crate::run::no_output::NoOutput;
use crate::run::outbox::Outcome;

impl<T> Board<T> {
    /// Adds a stream. If no more items are accepted, it ends with the reason.
    pub(in crate::engine::service) fn add_stream(&self, stream: &Arc<StreamChannel<T>>) {
        let mut state = lock(&self.state);
        let refused = state.check();
        if refused.is_ok() {
            state.streams.push(stream.clone());
        }
        drop(state);
        if let Err(error) = refused {
            stream.end_input(Some(error));
        }
    }

    /// Opens the first of the items of a stream with inputs of these sizes, as far as the stream has room. Returns
    /// their indices.
    pub(in crate::engine::service) fn open_items(
        &self,
        stream: &Arc<StreamChannel<T>>,
        sizes: impl IntoIterator<Item = u64>,
    ) -> Result<Range<u64>, Error> {
        let mut state = lock(&self.state);
        state.check()?;
        // Under the lock of the board, so that what `end` and `remove_stream` find open is what the stream has open.
        let in_stream = stream.admit(sizes);
        let first = state.next;
        for (index, in_stream) in (first..).zip(in_stream) {
            let recipient = Recipient::Stream(stream.clone(), in_stream);
            state.open.insert(index, OpenCall { recipient, deadline: None, since: None });
            state.next = index + 1;
        }
        self.event_log.read(state.next);
        Ok(first..state.next)
    }

    /// Removes a stream that was abandoned. Gives up its open items, and returns their indices, the last one first.
    pub(in crate::engine::service) fn remove_stream(
        &self,
        stream: &Arc<StreamChannel<T>>,
    ) -> Vec<u64> {
        let mut state = lock(&self.state);
        state.streams.retain(|other| !Arc::ptr_eq(other, stream));
        let of_stream = state.open.iter().filter(|(_, it)| it.recipient.is_of(stream));
        let mut indices: Vec<u64> = of_stream.map(|(&index, _)| index).collect();
        indices.sort_unstable_by_key(|&index| Reverse(index));
        let given_up: Vec<_> = indices.iter().map(|index| state.open.remove(index)).collect();
        state.account.cancelled += indices.len() as u64;
        state.background.cancelled += indices.len() as u64;
        let is_last = self.note_settled(&state);
        drop(state);
        drop(given_up);
        if is_last {
            self.changed.notify_all();
        }
        indices
    }

    /// Measures the output of an item of a stream that bounds its memory, without the lock. Returns the outcome with
    /// the size of the output, and the locked state.
    pub(super) fn measured(
        &self,
        index: u64,
        outcome: Outcome<T>,
    ) -> (Outcome<T>, Option<u64>, MutexGuard<'_, ServiceState<T>>) {
        let state = lock(&self.state);
        let measuring = state.open.get(&index).and_then(|it| it.recipient.measuring()).cloned();
        let (Some(stream), Ok(output)) = (measuring, &outcome) else {
            return (outcome, None, state);
        };
        drop(state);
        let (outcome, bytes) = match stream.measure(index, output) {
            Ok(bytes) => (outcome, bytes),
            Err(error) => {
                drop_quietly(outcome);
                (Err(NoOutput::skipped(error)), None)
            }
        };
        drop(stream);
        (outcome, bytes, lock(&self.state))
    }
}

impl<T> ServiceState<T> {
    /// The streams that are to learn that no more items are accepted, with the reason.
    pub(super) fn streams_to_halt(&mut self) -> Vec<(Arc<StreamChannel<T>>, Error)> {
        if std::mem::replace(&mut self.is_halt_told, true) {
            return vec![];
        }
        self.streams.iter().map(|stream| (stream.clone(), self.why())).collect()
    }

    /// Takes all streams at the end, with the number of the items that each has among `open`.
    pub(super) fn streams_to_fail(
        &mut self,
        open: &IndexMap<OpenCall<T>>,
    ) -> Vec<(Arc<StreamChannel<T>>, usize)> {
        let lost = |stream: &_| open.values().filter(|it| it.recipient.is_of(stream)).count();
        let streams = std::mem::take(&mut self.streams).into_iter();
        streams.map(|stream| (lost(&stream), stream)).map(|(lost, stream)| (stream, lost)).collect()
    }
}
