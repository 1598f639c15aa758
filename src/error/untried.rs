//! Errors of items of a batch that its hook has not tried.

use std::error::Error as StdError;
use std::fmt;

use super::out_of_memory::cause;
use super::{BoxError, Error};
use crate::base::debug_with_causes;

/// Marks the error of an item in a batch: the hook has not tried the item, which comes again in a smaller batch.
///
/// A hook for [batches](crate::Runner::producer_work_batch) that fails part of the way returns the outputs that it has,
/// and such an error for each other item. Their inputs have to be left in `inputs`: these alone, in their order, or all.
/// No attempt is spent, and no item is worked on twice. What comes again is divided as a batch that failed as a whole. If
/// the cause is that the device is [out of memory](super::OutOfMemory), later batches of the producer are smaller too.
///
/// Without its input, or in a batch of one item, the item has failed with this error.
///
/// ```
/// use gangline::error::{OutOfMemory, Untried};
/// use gangline::{Batch, OrderedRunner, map_batches};
///
/// // There is memory for five images at a time.
/// let sizes = map_batches(
///     |_| Ok(()),
///     |_, (), images: &mut Vec<Vec<u8>>| {
///         let fitting = images.len().min(5);
///         let mut outputs: Vec<_> = images.drain(..fitting).map(|image| Ok(image.len())).collect();
///         let untried = || Err(Untried::new(OutOfMemory::new("arena exhausted")).into());
///         outputs.extend(images.iter().map(|_| untried()));
///         Ok(outputs)
///     },
/// );
/// let mut pool = OrderedRunner::builder(sizes).devices(1).batch(Batch::of(8)).build()?;
/// assert_eq!(pool.run((0..8).map(|size| vec![0; size]))?, [0, 1, 2, 3, 4, 5, 6, 7]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub struct Untried {
    source: BoxError,
}

impl Untried {
    /// What it says.
    pub(crate) const TEXT: &str = "not tried";

    /// Marks `source`, the reason for which the item was not tried.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Untried { source: source.into() }
    }
}

impl fmt::Display for Untried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Untried::TEXT)
    }
}

debug_with_causes!(Untried);

impl StdError for Untried {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Returns whether an error, or one of its causes, is marked.
pub fn is_untried(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| cause(error)).any(|error| error.is::<Untried>())
}

/// Takes the mark off an error of a hook: the reason for which the item was not tried.
pub(crate) fn reason(error: Error) -> Error {
    match error {
        Error::HookFailed { hook, site, source } => {
            let source = source.downcast::<Untried>().map_or_else(|other| other, |it| it.source);
            Error::HookFailed { hook, site, source }
        }
        other => other,
    }
}
