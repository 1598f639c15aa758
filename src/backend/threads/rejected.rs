//! Why an item that was pulled is not given out.

use super::measures::TooLarge;
use crate::base::Measure;
use crate::error::{Error, PanicMessage};
use crate::journal::JournalError;

/// Why an item that was pulled is not given out.
pub(crate) enum Rejected {
    /// It is more than a batch may be.
    TooLarge(TooLarge),
    /// What measures it panicked.
    MeasurePanicked(Measure, PanicMessage),
    /// What names it panicked.
    KeyPanicked(PanicMessage),
    /// It is not what it was in an earlier run.
    Journal(JournalError),
    /// It did not fail: an earlier run was done with it.
    LeftOut,
}

impl Rejected {
    /// The failure of `item`.
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
            Rejected::LeftOut => {
                unreachable!("its place is taken before anybody asks for an error")
            }
        }
    }
}
