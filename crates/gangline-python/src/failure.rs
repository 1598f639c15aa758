//! The exception of a task, as it travels from a worker to the driver.

use std::time::Duration;

use gangline::BoxError;
use gangline::error::{DeviceLost, OutOfMemory};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a task raised: its first line, an empty line, and the traceback.
///
/// The exception itself stays in the worker: it may not be rebuildable, or hold a tensor on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{text}")]
pub(crate) struct TaskFailed {
    pub(crate) text: String,
    /// How long the attempt took.
    pub(crate) took: Duration,
}

/// What an exception means beside the failure of its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    Plain,
    /// The device, or the process, ran out of memory: smaller lists may fit.
    OutOfMemory,
    /// The process can no longer use its GPU, so another has to take its place.
    LostGpu,
}

impl TaskFailed {
    /// Reads what the worker's Python describes a failure by: the text and the number of its kind.
    pub(crate) fn of(described: &Bound<'_, PyAny>, took: Duration) -> PyResult<BoxError> {
        let (text, kind): (String, u8) = described.extract()?;
        let failed = TaskFailed { text, took };
        Ok(match FailureKind::of(kind) {
            FailureKind::Plain => failed.into(),
            FailureKind::OutOfMemory => OutOfMemory::new(failed).into(),
            FailureKind::LostGpu => DeviceLost::new(failed).into(),
        })
    }
}

impl FailureKind {
    /// The kinds of `_worker.py`.
    fn of(number: u8) -> Self {
        match number {
            1 => FailureKind::OutOfMemory,
            2 => FailureKind::LostGpu,
            _ => FailureKind::Plain,
        }
    }
}
