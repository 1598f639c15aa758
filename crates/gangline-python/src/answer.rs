//! What a worker answers for an item.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::value::Value;

/// The output of one item, with what its hook knows of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) producer: u32,
    pub(crate) attempt: u32,
    /// How long the call of `work` took, with the pickling of its inputs and outputs.
    pub(crate) took: Duration,
}
