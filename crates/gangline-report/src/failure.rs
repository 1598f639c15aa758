//! One failure, as text.

use std::fmt;

use gangline_scheduler::causes::debug_with_causes;
use gangline_scheduler::plain::Plain;
use serde::{Deserialize, Serialize};

/// The failure of an item or a run, as text, so that it can be kept, sent and written down.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The name of the stage, in the report of a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The item's index in the input; `None` if no item failed. Of a part, the index of its parent.
    pub item: Option<u64>,
    /// The index of a [part](https://docs.rs/gangline/latest/gangline/struct.Pool.html#method.expand) in its item;
    /// then, if that was expanded too, that of its own part, and so on. Empty if the item is no part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
    /// The item's key, if [keys](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.key) are in use.
    pub key: Option<String>,
    /// The number of the producer that it failed on, if any.
    pub producer: Option<usize>,
    /// That producer's first device.
    pub device: Option<String>,
    /// The host of that producer's worker, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The items of the call, if there were several and all failed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRange>,
    /// The name of the [`Runner`](https://docs.rs/gangline/latest/gangline/trait.Runner.html) hook; `None` for an error
    /// of the input.
    pub hook: Option<String>,
    /// The number of attempts made.
    pub attempts: u32,
    /// Whether it was a panic.
    pub is_panic: bool,
    /// The text of the error.
    pub error: String,
    /// The texts of its causes, each the cause of the one before.
    pub causes: Vec<String>,
    /// What the hook did, such as `failed`, if `error` says this with the place and no more.
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub happened: Option<String>,
    /// What happened, without the place that the other fields have. `None` if the causes alone say it: those of a hook,
    /// and of the input.
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The items of a call that failed for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchRange {
    /// The number of items.
    pub items: u64,
    /// The index of the first item.
    pub first: u64,
    /// The index of the last item.
    pub last: u64,
}

impl Failure {
    /// The error and its causes. A cause that the text before ends with is not written.
    pub(crate) fn with_causes(&self) -> String {
        let (mut text, mut said) = (self.error.clone(), &self.error);
        for cause in &self.causes {
            if !said.ends_with(cause.as_str()) {
                text.push_str(&format!(": {cause}"));
            }
            said = cause;
        }
        text
    }

    /// The most specific text: what happened, without the place, or else the innermost cause.
    pub(crate) fn essence(&self) -> &str {
        self.reason.as_ref().or(self.causes.last()).unwrap_or(&self.error)
    }

    /// Whether an attempt at an item failed, not the consumer at its result.
    #[doc(hidden)]
    pub fn is_of_attempt(&self) -> bool {
        let is_of_consumer = |hook: &String| hook.starts_with("consumer");
        self.item.is_some() && !self.hook.as_ref().is_some_and(is_of_consumer)
    }
}

impl fmt::Display for Failure {
    /// Writes the error and its causes on one line, with control characters escaped. As in the alternate form of
    /// [`Error`](https://docs.rs/gangline/latest/gangline/error/enum.Error.html), a cause that the text before ends
    /// with is not written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plain(&self.with_causes()))
    }
}

debug_with_causes!(Failure);

impl std::error::Error for Failure {}
