//! Classifies errors by their origin.

use super::{Error, Hook, OutputCount};

impl Error {
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
}
