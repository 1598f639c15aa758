//! The origin of errors, and what they say beside it.

use std::time::Duration;

use super::error_display::Unplaced;
use super::{Crash, Error, Hook, OutputCount, Site, WorkerError};
use crate::base::BoxError;
use crate::base::causes::WithCauses;

impl Error {
    /// What a backend of another crate says: it cannot serve, or refuses a setting.
    #[doc(hidden)]
    pub fn of_backend(source: impl Into<BoxError>) -> Self {
        WorkerError::Backend { source: source.into() }.into()
    }

    /// A hook has returned an error, as a backend has heard.
    #[doc(hidden)]
    pub fn hook_failed(hook: Hook, site: Site, source: BoxError) -> Self {
        Error::HookFailed { hook, site: Box::new(site), source }
    }

    /// The process of a hook has died, as a backend has heard.
    #[doc(hidden)]
    pub fn hook_crashed(hook: Hook, site: Site, source: Crash) -> Self {
        Error::HookCrashed { hook, site: Box::new(site), source }
    }

    /// A hook has exceeded its time limit, as a backend has heard.
    #[doc(hidden)]
    pub fn hook_timed_out(hook: Hook, site: Site, limit: Duration) -> Self {
        Error::TimedOut { hook, site: Box::new(site), limit }
    }

    /// Names the stage of the producer in which a hook failed, from 1.
    pub(crate) fn in_stage(mut self, stage: usize) -> Self {
        if let Error::HookFailed { site, .. }
        | Error::HookPanicked { site, .. }
        | Error::HookCrashed { site, .. }
        | Error::TimedOut { site, .. } = &mut self
        {
            site.stage = Some(stage);
        }
        self
    }

    /// Returns whether this is the error that another runner's `Outputs` ended with.
    pub(crate) fn ends_input(&self) -> bool {
        let Error::InputFailed { source, .. } = self else { return false };
        let Some(error) = source.downcast_ref::<Error>() else { return false };
        match error {
            Error::Cancelled {}
            | Error::Closed {}
            | Error::OwnThread {}
            | Error::Forked { .. }
            | Error::TooManyFailures { .. }
            | Error::TooFewProducers { .. }
            | Error::RunTimedOut { .. }
            | Error::Thread { .. } => true,
            error => error.hook() == Some(Hook::ProducerInit),
        }
    }

    /// Returns whether a producer failed at an item.
    pub(crate) fn is_of_work(&self) -> bool {
        matches!(self.hook(), Some(Hook::ProducerWork | Hook::ProducerWorkBatch))
    }

    /// Returns whether a hook of the consumer failed.
    pub(crate) fn is_of_consumer(&self) -> bool {
        matches!(
            self.hook(),
            Some(
                Hook::ConsumerInit
                    | Hook::ConsumerWork
                    | Hook::ConsumerSkipped
                    | Hook::ConsumerFlush
                    | Hook::ConsumerEnd
            )
        )
    }

    /// Returns whether a hook returned another number of outputs than it had inputs.
    pub(crate) fn is_output_count(&self) -> bool {
        matches!(self, Error::HookFailed { source, .. } if source.is::<OutputCount>())
    }

    /// Returns the number of items that it fails: those of a batch fail together.
    pub(crate) fn failed_items(&self) -> u64 {
        self.items().len().max(1) as u64
    }

    /// What happened, without the hook, the item and the device, which a list of failures has already. `None` if the
    /// causes alone say it: those of a hook, and of the input.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Error::TimedOut { .. }
            | Error::RunTimedOut { .. }
            | Error::DeadlineExceeded { .. }
            | Error::TooLarge { .. }
            | Error::BatchFailed { source: None, .. } => Some(Unplaced(self).to_string()),
            Error::GatherPanicked { source } => Some(format!("{}: {source}", Unplaced(self))),
            Error::MeasurePanicked { measure, source, .. } => {
                Some(format!("measuring its {measure} panicked: {source}"))
            }
            Error::KeyPanicked { source, .. } => Some(format!("its key panicked: {source}")),
            Error::ClassifyPanicked { message, .. } => {
                Some(format!("classifying its error panicked: {message}"))
            }
            Error::PartFailed { source, .. } => source.reason(),
            Error::BatchFailed { source: Some(source), .. } => source.reason_or_causes(),
            Error::TooFewProducers { source: Some(source), .. } => source.reason_or_causes(),
            _ => None,
        }
    }

    /// What the hook did, if the text of the error is that of the call: `failed`.
    pub(crate) fn happened(&self) -> Option<String> {
        Some(match self {
            Error::HookFailed { .. } => "failed".to_owned(),
            Error::HookPanicked { .. } => "panicked".to_owned(),
            Error::HookCrashed { .. } => "crashed".to_owned(),
            Error::TimedOut { .. } => Unplaced(self).to_string(),
            _ => return None,
        })
    }

    /// The host of the worker on which the error happened, in a cluster.
    pub(crate) fn host(&self) -> Option<&str> {
        self.site()?.host.as_deref()
    }

    /// The reason, or else the causes, for an error around this one.
    fn reason_or_causes(&self) -> Option<String> {
        let causes = || std::error::Error::source(self).map(|it| WithCauses(it).to_string());
        self.reason().or_else(causes)
    }
}
