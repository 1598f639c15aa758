//! Why an item that was pulled is not given out.

use super::measures::TooLarge;
use crate::base::Measure;
use crate::error::{Error, PanicMessage};
use crate::journal::JournalError;

pub(crate) enum Rejected {
    /// It exceeds the limit of a batch.
    TooLarge(TooLarge),
    /// The function that measures it panicked.
    MeasurePanicked(Measure, PanicMessage),
    /// The function that names or hashes it panicked.
    KeyPanicked(PanicMessage),
    /// It differs from the item of an earlier run, or the journal failed.
    Journal(JournalError),
    /// It did not fail: an earlier run has done it.
    AlreadyDone,
}

impl Rejected {
    /// The error for `item`.
    pub(crate) fn into_error(self, item: u64) -> Error {
        match self {
            Rejected::TooLarge(TooLarge { measure, amount, most }) => {
                Error::TooLarge { item, measure, amount, most, key: None }
            }
            Rejected::MeasurePanicked(measure, source) => {
                Error::MeasurePanicked { item, measure, key: None, source }
            }
            Rejected::KeyPanicked(source) => Error::KeyPanicked { item, source },
            Rejected::Journal(source) => Error::Journal { source },
            Rejected::AlreadyDone => {
                unreachable!("an item that is already done never needs an error")
            }
        }
    }
}
