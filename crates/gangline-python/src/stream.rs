//! One call of `imap`: items that a feeder sends, and their records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use gangline::service::{StreamReceiver, StreamResult, StreamSender};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::answer::Answer;
use crate::calls::NativeCalls;
use crate::lock;
use crate::messages::FailedLoad;
use crate::outcome::Outcome;
use crate::runner::PyRunner;
use crate::value::Value;
use crate::wait::EventWait;

/// The two ends of a stream: the feeder's thread has one, and the caller the other.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativeStream {
    /// `None` once the input has ended.
    sender: Mutex<Option<StreamSender<PyRunner>>>,
    /// `None` once no more records are wanted.
    receiver: Mutex<Option<StreamReceiver<PyRunner>>>,
    wait: EventWait,
    failed: FailedLoad,
    /// The size of the largest input, in bytes.
    largest: AtomicU64,
}

impl NativeStream {
    pub(crate) fn new(
        (sender, receiver): (StreamSender<PyRunner>, StreamReceiver<PyRunner>),
        failed: FailedLoad,
    ) -> PyResult<Self> {
        Ok(NativeStream {
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(receiver)),
            wait: EventWait::new()?,
            failed,
            largest: AtomicU64::new(0),
        })
    }

    fn has_room(&self, items: usize) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let sender = lock(&self.sender);
        let room = sender.as_ref().map(|sender| sender.poll_room(&mut cx));
        room.is_some_and(|room| matches!(room, Poll::Ready(room) if room >= items))
    }

    /// What a result says of its item. An error that belongs to no item ends the stream, and is raised.
    fn outcome_of(&self, result: StreamResult<Answer>) -> PyResult<Outcome> {
        let StreamResult { index, result, .. } = result;
        Outcome::of_result(index, result, &self.failed)
    }

    /// Polls for records, of which it takes up to `most`. None come after the last.
    fn poll_some(&self, cx: &mut Context<'_>, most: usize) -> Poll<Vec<StreamResult<Answer>>> {
        let mut receiver = lock(&self.receiver);
        let Some(receiver) = receiver.as_mut() else { return Poll::Ready(vec![]) };
        receiver.poll_next(cx).map(|first| {
            let Some(first) = first else { return vec![] };
            let mut taken = vec![first];
            taken.extend(receiver.take_ready(most - 1));
            taken
        })
    }

    fn list_of<'py>(
        &self,
        py: Python<'py>,
        taken: Vec<StreamResult<Answer>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let records = taken.into_iter().map(|result| self.outcome_of(result)?.to_python(py));
        PyList::new(py, records.collect::<PyResult<Vec<_>>>()?)
    }

    fn send_values(&self, values: Vec<Value>) {
        // Those that are not wanted any more come back. Without the lock they may run the user's code.
        let unwanted = lock(&self.sender).as_mut().map(|sender| sender.send_some(values));
        drop(unwanted);
    }
}

#[pymethods]
impl NativeStream {
    /// Waits until there is room, and returns for how many items: 0 if no more are wanted.
    fn room(&self, py: Python<'_>) -> usize {
        py.detach(|| lock(&self.sender).as_ref().map_or(0, StreamSender::room))
    }

    /// Sends items, for which there was room: tuples of the name in a journal and the pickled input.
    fn send(&self, py: Python<'_>, items: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let values: Vec<Value> = items.iter().map(Value::of_input).collect::<PyResult<_>>()?;
        let largest = values.iter().map(Value::size).max().unwrap_or(0);
        let is_usual = self.largest.fetch_max(largest, Ordering::Relaxed) >= largest;
        // A thread that detaches may wait long until it is attached again, so it stays attached if it surely need not
        // wait for room: the room is that for values as large as those before.
        match is_usual && self.has_room(values.len()) {
            true => self.send_values(values),
            false => py.detach(|| self.send_values(values)),
        }
        Ok(())
    }

    /// Ends the input.
    fn finish(&self, py: Python<'_>) {
        py.detach(|| {
            let sender = lock(&self.sender).take();
            drop(sender);
        });
    }

    /// Waits for records, and returns up to `most`, as tuples: see [`Outcome::to_python`]. None after the last.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        if most == 0 {
            return Err(PyValueError::new_err("most must be at least 1"));
        }
        let taken = self.wait.until(py, |cx| self.poll_some(cx, most))?;
        self.list_of(py, taken)
    }

    /// Returns what [`take`](NativeStream::take) does, without waiting. `None` if there is nothing yet: the number is noted
    /// in `calls` once there is.
    fn take_ready<'py>(
        &self,
        py: Python<'py>,
        calls: &NativeCalls,
        number: u64,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let waker = calls.waker(number);
        let polled = py.detach(|| self.poll_some(&mut Context::from_waker(&waker), most));
        match polled {
            Poll::Ready(taken) => self.list_of(py, taken).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Returns what [`room`](NativeStream::room) does, without waiting. `None` if there is no room yet: the number is noted
    /// in `calls` once there is.
    fn room_ready(&self, py: Python<'_>, calls: &NativeCalls, number: u64) -> Option<usize> {
        let waker = calls.waker(number);
        py.detach(|| {
            let sender = lock(&self.sender);
            let Some(sender) = sender.as_ref() else { return Some(0) };
            match sender.poll_room(&mut Context::from_waker(&waker)) {
                Poll::Ready(room) => Some(room),
                Poll::Pending => None,
            }
        })
    }

    /// Gives up what has not come.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let receiver = lock(&self.receiver).take();
            drop(receiver);
        });
    }
}
