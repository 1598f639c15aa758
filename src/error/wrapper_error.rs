//! Errors of the function around producers.

use std::fmt;

use crate::base::{PanicMessage, debug_with_causes};

/// What the function of [`around_producers`](crate::Builder::around_producers) did wrong: the cause of
/// [`Error::Wrapper`](crate::Error::Wrapper).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrapperError {
    /// It did not call its argument, or called it again.
    #[non_exhaustive]
    Calls {
        /// The number of calls.
        calls: u64,
    },
    /// It panicked, before or after its call.
    Panicked(PanicMessage),
}

impl fmt::Display for WrapperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrapperError::Calls { calls } => {
                write!(f, "it called the producer {calls} times, not once")
            }
            WrapperError::Panicked(message) => message.fmt(f),
        }
    }
}

debug_with_causes!(WrapperError);

impl std::error::Error for WrapperError {}
