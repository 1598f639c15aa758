//! Calls of a pool, and the places where threads and event loops wait for many of them.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use gangline::Error;
use gangline::service::Call;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::answer::Answer;
use crate::lock;
use crate::messages::FailedLoad;
use crate::outcome::Outcome;
use crate::runner::PyRunner;
use crate::wait::EventWait;

/// A place where one thread, or one event loop, waits for many calls and streams at once.
///
/// Each has a number, which the caller chooses. A producer that has an answer notes the number and rings a bell. So one
/// wake-up serves many answers, and no thread of the library attaches to Python.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativeCalls {
    /// Polled and dropped by detached threads only: objects of the user's that are dropped with them wait until a thread
    /// attaches. So no code of the user's runs under this lock.
    open: Mutex<HashMap<u64, OpenCall>>,
    ready: Arc<ReadyNumbers>,
}

/// A call that was not given up, and whose answer was not taken.
struct OpenCall {
    stage: CallStage,
    waker: Waker,
    failed: FailedLoad,
}

enum CallStage {
    Waits(Call<PyRunner>),
    /// It was answered when it began.
    Answered(Option<Box<Result<Answer, Error>>>),
}

/// The numbers of what was woken.
struct ReadyNumbers {
    numbers: Mutex<Vec<u64>>,
    wait: EventWait,
}

/// Notes the number of one call or stream.
struct NumberWaker {
    number: u64,
    ready: Arc<ReadyNumbers>,
}

/// A number, and the answer of its call if that has come.
type Noted = (u64, Option<(Result<Answer, Error>, FailedLoad)>);

#[pymethods]
impl NativeCalls {
    #[new]
    fn new() -> PyResult<Self> {
        let ready = ReadyNumbers { numbers: Mutex::default(), wait: EventWait::new()? };
        Ok(NativeCalls { open: Mutex::default(), ready: Arc::new(ready) })
    }

    /// Gives a call up.
    fn give_up(&self, py: Python<'_>, number: u64) {
        py.detach(|| {
            let call = lock(&self.open).remove(&number);
            drop(call);
        });
    }

    /// Gives a call up if it waits for its place in the queue. Returns whether that is so.
    fn give_up_waiting(&self, py: Python<'_>, number: u64) -> bool {
        py.detach(|| {
            let mut open = lock(&self.open);
            let waits = open.get(&number).is_some_and(OpenCall::waits_for_place);
            let call = if waits { open.remove(&number) } else { None };
            drop(open);
            drop(call);
            waits
        })
    }

    /// Waits for answers, and returns them: see [`take_ready`](NativeCalls::take_ready). For a thread of the package's,
    /// to which signals do not matter.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let noted = py.detach(|| {
            loop {
                let noted = self.noted();
                if !noted.is_empty() {
                    return noted;
                }
                self.ready.wait.block();
            }
        });
        list_of(py, noted)
    }

    /// Returns the answers that are there, without waiting: tuples of the number of a call, and the tuple of its outcome
    /// or the exception that ended it. A number that has `None` beside it is that of a stream that was woken, or of a call
    /// that was given up.
    fn take_ready<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let noted = py.detach(|| {
            // First, so that what is noted later rings anew.
            self.ready.wait.silence();
            self.noted()
        });
        list_of(py, noted)
    }

    /// The descriptor that can be read from while there is something to take.
    fn fileno(&self) -> i32 {
        self.ready.wait.fd().as_raw_fd()
    }
}

impl NativeCalls {
    /// The waker of a stream, which notes this number.
    pub(crate) fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(NumberWaker { number, ready: self.ready.clone() }))
    }

    /// Opens a call that has begun. It is polled here.
    pub(crate) fn open_call(&self, number: u64, call: Call<PyRunner>, failed: FailedLoad) {
        let stage = CallStage::Waits(call);
        let mut begun = OpenCall { stage, waker: self.waker(number), failed };
        // Under the lock: the answer may come before the call is among the open ones.
        let mut open = lock(&self.open);
        if let Poll::Ready(answer) = begun.poll() {
            begun.stage = CallStage::Answered(Some(Box::new(answer)));
            self.ready.note(number);
        }
        open.insert(number, begun);
    }

    /// What was noted since the last look, without the calls that were woken to take their places.
    fn noted(&self) -> Vec<Noted> {
        let numbers = std::mem::take(&mut *lock(&self.ready.numbers));
        if numbers.is_empty() {
            return vec![];
        }
        let mut open = lock(&self.open);
        let answer_of = |number: u64| {
            let Some(call) = open.get_mut(&number) else { return Some((number, None)) };
            let Poll::Ready(answer) = call.poll() else { return None };
            let call = open.remove(&number).expect("it was just polled");
            Some((number, Some((answer, call.failed))))
        };
        numbers.into_iter().filter_map(answer_of).collect()
    }
}

impl OpenCall {
    fn poll(&mut self) -> Poll<Result<Answer, Error>> {
        match &mut self.stage {
            CallStage::Waits(call) => Pin::new(call).poll(&mut Context::from_waker(&self.waker)),
            CallStage::Answered(answer) => {
                Poll::Ready(*answer.take().expect("an answer is taken once"))
            }
        }
    }

    fn waits_for_place(&self) -> bool {
        matches!(&self.stage, CallStage::Waits(call) if call.waits_for_place())
    }
}

impl ReadyNumbers {
    fn note(&self, number: u64) {
        let mut numbers = lock(&self.numbers);
        let is_first = numbers.is_empty();
        numbers.push(number);
        drop(numbers);
        // The bell rings until the numbers are taken.
        if is_first {
            self.wait.waker().wake_by_ref();
        }
    }
}

impl Wake for NumberWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.note(self.number);
    }
}

fn list_of(py: Python<'_>, noted: Vec<Noted>) -> PyResult<Bound<'_, PyList>> {
    let tuples = noted.into_iter().map(|(number, answered)| {
        let outcome = answered.map(|(answer, failed)| outcome_of(py, answer, &failed));
        (number, outcome).into_pyobject(py)
    });
    PyList::new(py, tuples.collect::<PyResult<Vec<Bound<'_, PyTuple>>>>()?)
}

/// The tuple of an outcome, or the exception in its place.
fn outcome_of<'py>(
    py: Python<'py>,
    answer: Result<Answer, Error>,
    failed: &FailedLoad,
) -> Bound<'py, PyAny> {
    let outcome = Outcome::of_result(0, answer, failed);
    let tuple = outcome.and_then(|outcome| outcome.to_python(py));
    tuple.map_or_else(|error| error.into_value(py).into_bound(py).into_any(), Bound::into_any)
}
