//! Errors after which a device works no more in this process.

use std::error::Error as StdError;
use std::fmt;

use super::out_of_memory::cause;
use super::{BoxError, Error};
use crate::base::debug_with_causes;
use crate::base::panic::catch;

/// Marks an error after which a device works no more in this process.
///
/// After an illegal address in a kernel of CUDA, every later call fails, whatever the item; only another process can use
/// the GPU. So an error that is marked, or has a marked cause, costs its producer more than the attempt:
///
/// - In a child process (`Builder::processes`), the process is ended, without
///   [`producer_end`](crate::Runner::producer_end), and another takes its place. Items that it had not begun go back, and
///   cost no attempt.
/// - On threads, the state is dropped and [`producer_init`](crate::Runner::producer_init) is called again, as after a
///   panic. That helps where the state has opened the device, and not with CUDA, whose errors stay in the process.
///
/// Otherwise it is an error like any other: the attempt has failed, and [`retries`](crate::Builder::retries) apply. A
/// [batch](crate::Runner::producer_work_batch) that fails with it is divided, so that in the end the item fails that
/// loses the device, and no other.
///
/// ```
/// use gangline::Result;
/// use gangline::error::DeviceLost;
///
/// fn infer(_images: &[f32]) -> Result<f32> {
///     let outcome: Result<f32, std::io::Error> = Err(std::io::Error::other("illegal address"));
///     outcome.map_err(|error| match error.to_string().contains("illegal address") {
///         true => DeviceLost::new(error).into(),
///         false => error.into(),
///     })
/// }
/// assert_eq!(infer(&[]).unwrap_err().to_string(), "device lost");
/// ```
pub struct DeviceLost {
    source: BoxError,
}

impl DeviceLost {
    /// What it says.
    pub(crate) const TEXT: &str = "device lost";

    /// Marks `source` as an error after which the device works no more.
    pub fn new(source: impl Into<BoxError>) -> Self {
        DeviceLost { source: source.into() }
    }
}

impl fmt::Display for DeviceLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DeviceLost::TEXT)
    }
}

debug_with_causes!(DeviceLost);

impl StdError for DeviceLost {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Returns whether an error, or one of its causes, is marked.
pub(crate) fn is_device_lost(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| cause(error)).any(|error| error.is::<DeviceLost>())
}

/// Whether the state of the producer is lost with an error: a hook has panicked, or has lost its device.
pub(crate) fn costs_state(error: &Error) -> bool {
    // The causes of an error are user code, which may panic.
    error.is_panic() || catch(|| is_device_lost(error)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_among_the_causes() {
        let marked = || DeviceLost::new("CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(is_device_lost(&marked()));
        assert!(is_device_lost(&std::io::Error::other(marked())));
        assert!(!is_device_lost(&std::io::Error::other("CUDA_ERROR_ILLEGAL_ADDRESS")));
    }
}
