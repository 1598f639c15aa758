//! What became of an item, as the package's Python makes a record of it.

use std::time::Duration;

use gangline::Error;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answer::{Answer, Made};
use crate::errors::{task_failed, text_in, text_of_item, text_of_place};
use crate::item::{Content, StageItem};
use crate::messages::FailedLoad;
use crate::recorded_stage::RecordedStage;

/// What became of an item.
pub(crate) struct Outcome {
    /// The item's place in the input.
    index: u64,
    worker: Option<usize>,
    attempts: u32,
    /// How long the last attempt took.
    took: Duration,
    end: End,
}

/// How an item has ended.
enum End {
    Output(Content),
    Failed(String),
    /// An earlier run had done it, so it has no record.
    AlreadyDone,
}

impl Outcome {
    /// What the result of an item says.
    ///
    /// # Errors
    ///
    /// The exception for an error that belongs to no item, or for a deadline.
    pub(crate) fn of_result(
        index: u64,
        result: Result<Answer, Error>,
        failed: &FailedLoad,
    ) -> PyResult<Self> {
        match result {
            Ok(answer) => Ok(Outcome::of_answer(index, answer)),
            Err(error @ Error::DeadlineExceeded { .. }) => Err(failed.or(&error)),
            Err(error) if error.items().is_empty() => Err(failed.or(&error)),
            Err(error) => Ok(Outcome::of_error(index, &error)),
        }
    }

    pub(crate) fn of_answer(index: u64, Answer { value, made }: Answer) -> Self {
        Outcome::of_output(index, Content::One(value), made, 0)
    }

    /// An output of the last stage of a pipeline.
    pub(crate) fn of_item(index: u64, item: StageItem, stage: &RecordedStage) -> Self {
        Outcome::of_output(index, item.content, item.made, stage.first_worker)
    }

    fn of_output(index: u64, output: Content, made: Made, first_worker: usize) -> Self {
        let worker = made.producer.map(|producer| first_worker + producer as usize);
        let (attempts, took) = (made.attempt, made.took);
        Outcome { index, worker, attempts, took, end: End::Output(output) }
    }

    pub(crate) fn of_error(index: u64, error: &Error) -> Self {
        Outcome {
            index,
            worker: error.producer(),
            attempts: error.attempt().unwrap_or(0),
            took: task_failed(error).map_or(Duration::ZERO, |task| task.took),
            end: End::Failed(text_of_item(error)),
        }
    }

    /// What failed in this stage of a pipeline, an item or a part of it.
    pub(crate) fn of_failure(index: u64, error: &Error, stage: &RecordedStage) -> Self {
        let Outcome { worker, attempts, took, .. } = Outcome::of_error(index, error);
        let text = text_of_item(error);
        let place = stage.name.as_ref().map(|name| text_of_place(error, name));
        let text = text_in(place.as_deref(), text);
        let worker = worker.map(|worker| stage.first_worker + worker);
        Outcome { index, worker, attempts, took, end: End::Failed(text) }
    }

    pub(crate) fn already_done(index: u64) -> Self {
        let took = Duration::ZERO;
        Outcome { index, worker: None, attempts: 0, took, end: End::AlreadyDone }
    }

    /// What it takes in memory, in bytes, as far as that is known.
    pub(crate) fn size(&self) -> u64 {
        match &self.end {
            End::Output(content) => content.size(),
            End::Failed(text) => text.len() as u64,
            End::AlreadyDone => 0,
        }
    }

    /// A tuple: index, worker or `None`, attempts, seconds, and the end of the item. That is the pickled output, the
    /// text of its error, or `None` if an earlier run had done it.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let end = match &self.end {
            End::Output(value) => value.to_python(py)?.into_any(),
            End::Failed(text) => text.into_pyobject(py)?.into_any(),
            End::AlreadyDone => py.None().into_bound(py),
        };
        (self.index, self.worker, self.attempts, self.took.as_secs_f64(), end).into_pyobject(py)
    }
}
