//! One call of `imap` on a pipeline, or on a pool with a journal: a run of its own, whose consumer hands the records over.

use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use gangline::{CancelToken, Error, Terminator};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::calls::NativeCalls;
use crate::errors::{PoolErrorClass, raised};
use crate::item::StageItem;
use crate::lock;
use crate::messages::FailedLoad;
use crate::outcome::Outcome;
use crate::outcome_queue::{OutcomeQueue, TakenOutcomes};
use crate::run_input::{RunInput, RunItems};
use crate::value::Value;
use crate::wait::EventWait;

/// One run, as its caller sees it.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativeRun {
    pub(crate) ends: Arc<RunEnds>,
    pub(crate) failed: FailedLoad,
}

/// The two ends of a run: the feeder's thread has one, and the caller the other.
pub(crate) struct RunEnds {
    inputs: RunInput,
    outcomes: Arc<OutcomeQueue>,
    wait: EventWait,
    /// Cancels the run.
    token: CancelToken,
    progress: Mutex<RunProgress>,
    /// How the run has ended, before the outcomes do. `None` if by a panic.
    result: Mutex<Option<Result<(), Error>>>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunProgress {
    Wanted,
    /// It was cancelled, since its caller has gone away.
    GivenUp,
    /// It has failed, and its workers are ended.
    Failed,
    Over,
}

/// The run in progress, as the hooks of the consumer find it. Those are made once for all runs.
#[derive(Clone, Default)]
pub(crate) struct RunSlot(Arc<Mutex<Option<RunHooks>>>);

#[derive(Clone)]
struct RunHooks {
    outcomes: Arc<OutcomeQueue>,
    ends: Weak<RunEnds>,
    terminators: Arc<[Terminator]>,
}

/// Ends what must not outlast the consumer of a run.
///
/// If the run has failed, nothing waits for the hooks of other stages, nor for the input.
pub(crate) struct RunGuard {
    hooks: Option<RunHooks>,
    is_complete: bool,
}

impl RunEnds {
    /// Makes the ends of a run, and its input.
    pub(crate) fn new(
        window: Option<usize>,
        first_window: Option<usize>,
        token: CancelToken,
    ) -> io::Result<(Arc<Self>, RunItems)> {
        let wait = EventWait::new()?;
        let (inputs, items) = RunInput::new(first_window);
        let outcomes = Arc::new(OutcomeQueue::new(window));
        let ends = Arc::new(RunEnds {
            inputs,
            outcomes,
            wait,
            token,
            progress: Mutex::new(RunProgress::Wanted),
            result: Mutex::default(),
        });
        Ok((ends, items))
    }

    /// Gives up what has not come. The hooks that run are not ended, and not waited for.
    pub(crate) fn give_up(&self) {
        self.inputs.end();
        self.outcomes.give_up();
        let mut progress = lock(&self.progress);
        if *progress == RunProgress::Wanted {
            *progress = RunProgress::GivenUp;
            self.token.cancel();
        }
    }

    /// Notes that the run is over. Returns whether it was cancelled.
    pub(crate) fn note_end(&self) -> bool {
        let progress = std::mem::replace(&mut *lock(&self.progress), RunProgress::Over);
        progress == RunProgress::GivenUp
    }

    /// Notes that the run has failed, if it is still wanted. Returns whether it was.
    fn note_failure(&self) -> bool {
        let mut progress = lock(&self.progress);
        let is_wanted = *progress == RunProgress::Wanted;
        if is_wanted {
            *progress = RunProgress::Failed;
        }
        is_wanted
    }

    /// Tells the caller how the run has ended; `None` if by a panic.
    pub(crate) fn end(&self, slot: &RunSlot, result: Option<Result<(), Error>>) {
        self.inputs.end();
        *lock(&self.result) = result;
        let hooks = lock(&slot.0).take();
        drop(hooks);
        self.outcomes.finish();
    }
}

impl RunSlot {
    /// Lets the hooks find the run that is about to begin.
    pub(crate) fn fill(&self, ends: &Arc<RunEnds>, terminators: Arc<[Terminator]>) {
        let (outcomes, ends) = (ends.outcomes.clone(), Arc::downgrade(ends));
        *lock(&self.0) = Some(RunHooks { outcomes, ends, terminators });
    }

    /// Hands a record to the caller, once there is room. Returns whether it is still wanted.
    pub(crate) fn send(&self, outcome: Outcome) -> bool {
        let hooks = lock(&self.0).clone();
        hooks.is_some_and(|hooks| hooks.outcomes.send(outcome))
    }

    /// The state of a run's consumer.
    pub(crate) fn guard(&self) -> RunGuard {
        RunGuard { hooks: lock(&self.0).clone(), is_complete: false }
    }
}

impl RunGuard {
    /// Notes that the run has worked on all items.
    pub(crate) fn complete(mut self) {
        self.is_complete = true;
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(RunHooks { ends, terminators, .. }) = self.hooks.take() else { return };
        let Some(ends) = ends.upgrade() else { return };
        // The run's thread may wait for the next item.
        ends.inputs.end();
        if !self.is_complete && ends.note_failure() {
            terminators.iter().for_each(Terminator::terminate);
        }
    }
}

#[pymethods]
impl NativeRun {
    /// Returns for how many items there is room; 0 if no more are wanted.
    fn room(&self) -> usize {
        let is_open = self.ends.inputs.is_open() && self.ends.outcomes.is_wanted();
        if is_open { self.ends.inputs.group() } else { 0 }
    }

    /// Returns for how many items there is room without a wait: 0 if no more are wanted. `None` if there is none yet: the
    /// number is noted in `calls` once there is.
    fn room_ready(&self, py: Python<'_>, calls: &NativeCalls, number: u64) -> Option<usize> {
        let waker = calls.waker(number);
        let asks = py.detach(|| self.ends.inputs.poll_asks(&mut Context::from_waker(&waker)));
        match asks {
            Poll::Ready(asks) => Some(usize::from(asks)),
            Poll::Pending => None,
        }
    }

    /// Sends items, and waits until they are taken.
    fn send(&self, py: Python<'_>, items: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let values: Vec<Value> = items.iter().map(Value::of_input).collect::<PyResult<_>>()?;
        py.detach(|| self.ends.inputs.send(values.into_iter().map(StageItem::new).collect()));
        Ok(())
    }

    /// Ends the input.
    fn finish(&self) {
        self.ends.inputs.end();
    }

    /// Waits for records, and returns up to `most`; none after the last.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let taken = self.ends.wait.until(py, |cx| self.ends.outcomes.poll_some(cx, most))?;
        self.list_of(py, taken)
    }

    /// Returns what [`take`](NativeRun::take) does, without waiting. `None` if there is nothing yet: the number is noted in
    /// `calls` once there is.
    fn take_ready<'py>(
        &self,
        py: Python<'py>,
        calls: &NativeCalls,
        number: u64,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let waker = calls.waker(number);
        let poll = || self.ends.outcomes.poll_some(&mut Context::from_waker(&waker), most);
        match py.detach(poll) {
            Poll::Ready(taken) => self.list_of(py, taken).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Gives up what has not come. Hooks that run are not waited for.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.ends.give_up());
    }
}

impl NativeRun {
    fn list_of<'py>(&self, py: Python<'py>, taken: TakenOutcomes) -> PyResult<Bound<'py, PyList>> {
        let taken = match taken {
            TakenOutcomes::Some(taken) => taken,
            TakenOutcomes::Unwanted => {
                return Err(raised(PoolErrorClass::Closed, "the pool was closed".to_owned()));
            }
        };
        if taken.is_empty() {
            let result = lock(&self.ends.result).take();
            let panicked = || raised(PoolErrorClass::Any, "the run has panicked".to_owned());
            result.ok_or_else(panicked)?.map_err(|error| self.failed.or(&error))?;
        }
        let records = taken.iter().map(|outcome| outcome.to_python(py));
        PyList::new(py, records.collect::<PyResult<Vec<_>>>()?)
    }
}
