//! What a pool tells beside its records: workers that cannot load, and failed attempts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gangline::event::{Event, Observer};
use gangline::{CancelToken, Error};
use pyo3::prelude::*;

use crate::errors::{PoolErrorClass, pool_failure, raised};
use crate::prints::PrintSender;

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
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedLoad(Arc<OnceLock<String>>);

impl FailedLoad {
    /// `gangline.PoolError` for an error that belongs to no item.
    pub(crate) fn or(&self, error: &Error) -> PyErr {
        match self.0.get() {
            Some(text) => raised(PoolErrorClass::NoWorkers, text.clone()),
            None => pool_failure(error),
        }
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
    fn stage_text(&self) -> String {
        self.stage.as_ref().map_or_else(String::new, |stage| format!("in {stage}: "))
    }

    fn lost(&self, worker: usize, reason: &str) {
        // The reason begins with the hook and the device.
        let (_, reason) = reason.split_once(": ").unwrap_or_default();
        match &self.first_load {
            Some(FailedLoad(text)) => {
                let stage = self.stage_text();
                _ = text.set(format!("{stage}load failed on worker {worker}: {reason}"));
                self.token.cancel();
            }
            None => {
                let stage = self.stage_text();
                let text = format!("gangline: {stage}worker {worker} cannot load: {reason}\n");
                self.prints.send(text.as_bytes());
            }
        }
    }
}
