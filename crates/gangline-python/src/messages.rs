//! What a pool tells beside its records: workers that cannot load, and failed attempts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gangline::event::{Event, Observer};
use gangline::{CancelToken, Error};
use pyo3::prelude::*;

use crate::errors::{PoolErrorClass, lost_stage, pool_failure_in, raised, text_in};
use crate::prints::PrintSender;
use crate::recorded_stage::RecordedStage;

/// Passes on what a pool tells, and ends it if the first `load` fails.
pub(crate) struct Messages {
    pub(crate) prints: PrintSender,
    pub(crate) failed_attempts: Shown,
    /// Where the text of a `load` goes that failed before any worker was ready; `None` if others may go on then.
    pub(crate) first_load: Option<FailedLoad>,
    /// The name of the stage in a pipeline.
    pub(crate) stage: Option<String>,
    pub(crate) token: CancelToken,
}

/// Whether something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Yes,
    No,
}

/// Why a pool was ended whose first `load` has failed.
#[derive(Clone, Default)]
pub(crate) struct FailedLoad {
    /// The text, once a worker is lost that others could stand in for.
    text: Arc<OnceLock<String>>,
    /// The stages of a pipeline.
    stages: Arc<[RecordedStage]>,
}

impl FailedLoad {
    /// That of a pipeline.
    pub(crate) fn of_stages(stages: Arc<[RecordedStage]>) -> Self {
        FailedLoad { text: Arc::default(), stages }
    }

    /// `gangline.PoolError` for an error that belongs to no item.
    pub(crate) fn or(&self, error: &Error) -> PyErr {
        match self.text.get() {
            Some(text) => raised(PoolErrorClass::NoWorkers, text.clone()),
            // The last worker is lost with the error of the run, and not before.
            None => pool_failure_in(self.stage_of(error), error),
        }
    }

    /// The name of the stage whose workers are lost.
    fn stage_of(&self, error: &Error) -> Option<&str> {
        self.stages.get(lost_stage(error)? - 1)?.name.as_deref()
    }
}

impl Observer for Messages {
    fn observe(&mut self, _: Duration, event: &Event) {
        match event {
            Event::ProducerReady { .. } => self.first_load = None,
            Event::ProducerQuarantined { producer, reason, .. } => self.lost(*producer, reason),
            Event::ItemRetried { failure, .. } | Event::ItemFailed { failure, .. }
                if self.failed_attempts == Shown::Yes =>
            {
                self.prints.send(format!("gangline: {failure}\n").as_bytes());
            }
            _ => {}
        }
    }
}

impl Messages {
    fn lost(&self, worker: usize, reason: &str) {
        // The reason begins with the hook and the device.
        let (_, reason) = reason.split_once(": ").unwrap_or_default();
        match &self.first_load {
            Some(FailedLoad { text, .. }) => {
                let failed = format!("load failed on worker {worker}: {reason}");
                _ = text.set(text_in(self.stage.as_deref(), failed));
                self.token.cancel();
            }
            None => {
                let lost = format!("worker {worker} cannot load: {reason}");
                let text = format!("gangline: {}\n", text_in(self.stage.as_deref(), lost));
                self.prints.send(text.as_bytes());
            }
        }
    }
}
