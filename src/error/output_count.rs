//! A batch with more or fewer outputs than inputs.

use std::fmt;

use crate::base::debug_with_causes;

/// The cause of a failure of [`producer_work_batch`](crate::Runner::producer_work_batch) that returned more
/// or fewer outputs than it had inputs. Which output belongs to which input is then unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputCount {
    /// The number of inputs.
    pub inputs: usize,
    /// The number of outputs.
    pub outputs: usize,
}

impl fmt::Display for OutputCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutputCount { inputs, outputs } = self;
        write!(f, "{outputs} outputs were given for {inputs} inputs")
    }
}

debug_with_causes!(OutputCount);

impl std::error::Error for OutputCount {}
