//! Errors of a device that runs out of memory, for which no item is to blame.

use std::error::Error as StdError;
use std::fmt;

use super::BoxError;
use crate::base::debug_with_causes;

/// Marks an error as running out of a device's memory.
///
/// A [batch](crate::Runner::producer_work_batch) that fails for this reason is tried again in smaller
/// parts, and the batches of its producer stay smaller for a while. The allocation errors of CUDA, cuBLAS
/// and cuDNN are recognised anywhere in the chain of causes. So is an error that says in its
/// text that a GPU, or Metal, is out of memory. A runner can mark other errors:
///
/// ```
/// use gangline::error::OutOfMemory;
/// use gangline::Result;
///
/// fn infer(images: &[Vec<f32>]) -> Result<()> {
///     let outcome: Result<(), std::io::Error> = Err(std::io::Error::other("arena exhausted"));
///     outcome.map_err(OutOfMemory::new)?;
///     Ok(())
/// }
/// assert_eq!(infer(&[]).unwrap_err().to_string(), "out of memory");
/// ```
pub struct OutOfMemory {
    source: BoxError,
}

impl OutOfMemory {
    /// Marks `source` as an error of running out of memory.
    pub fn new(source: impl Into<BoxError>) -> Self {
        OutOfMemory { source: source.into() }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

debug_with_causes!(OutOfMemory);

impl StdError for OutOfMemory {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}

/// What CUDA's libraries, PyTorch and Metal say, in lower case. cuBLAS and cuDNN allocate when a handle is
/// made.
const SAYINGS: &[&str] = &[
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cuda out of memory",
    "kiogpucommandbuffercallbackerroroutofmemory",
];

/// Returns whether an error, or one of its causes, says that a device is out of memory.
pub(crate) fn is_out_of_memory(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| cause(error))
        .any(|error| error.is::<OutOfMemory>() || says_so(error))
}

/// Returns the cause of an error. `std::io::Error::source` passes over the error that it was made of.
pub(super) fn cause<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// Matches the text: the types belong to libraries that are optional.
fn says_so(error: &dyn StdError) -> bool {
    let text = error.to_string().to_lowercase();
    SAYINGS.iter().any(|saying| text.contains(saying))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Hook, PanicMessage, Site};

    fn failed(source: impl Into<BoxError>) -> Error {
        let site = Box::new(Site::default());
        Error::HookFailed { hook: Hook::ProducerWorkBatch, site, source: source.into() }
    }

    #[test]
    fn what_libraries_say() {
        for text in [
            r#"DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")"#,
            "CublasError(CUBLAS_STATUS_ALLOC_FAILED)",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "CUDA out of memory. Tried to allocate 20.00 MiB",
        ] {
            assert!(is_out_of_memory(&failed(text)), "{text}");
        }
        let panic =
            PanicMessage::new("called `Result::unwrap()`: CUDA_ERROR_OUT_OF_MEMORY".to_owned());
        let site = Box::new(Site::default());
        let panicked = Error::HookPanicked { hook: Hook::ProducerWorkBatch, site, source: panic };
        assert!(is_out_of_memory(&panicked));
    }

    #[test]
    fn what_is_marked() {
        assert!(is_out_of_memory(&failed(OutOfMemory::new("arena exhausted"))));
        let wrapped = std::io::Error::other(OutOfMemory::new("arena exhausted"));
        assert!(is_out_of_memory(&failed(wrapped)));
    }

    #[test]
    fn nothing_else() {
        for text in ["CUDA_ERROR_ILLEGAL_ADDRESS", "memory", "a review: out of memory, out of mind"]
        {
            assert!(!is_out_of_memory(&failed(text)), "{text}");
        }
    }
}
