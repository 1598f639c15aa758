//! One failure, as text.

use std::error::Error as _;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::bounded;
use crate::base::debug_with_causes;
use crate::base::plain::Plain;
use crate::error::Error;

/// The failure of an item or a run, as text, so that it can be kept, sent and written down.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The name of the stage, in the report of a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The item's index in the input; `None` if no item failed. Of a part, the index of its parent.
    pub item: Option<u64>,
    /// The index of a [part](crate::Pool::expand) in its item; then, if that was expanded too, that of its own
    /// part, and so on. Empty if the item is no part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
    /// The item's key, if [keys](crate::Builder::key) are in use.
    pub key: Option<String>,
    /// The number of the producer that it failed on, if any.
    pub producer: Option<usize>,
    /// That producer's first device.
    pub device: Option<String>,
    /// The name of the [`Runner`](crate::Runner) hook; `None` for an error of the input.
    pub hook: Option<String>,
    /// The number of attempts made.
    pub attempts: u32,
    /// Whether it was a panic.
    pub is_panic: bool,
    /// The text of the error.
    pub error: String,
    /// The texts of its causes, each the cause of the one before.
    pub causes: Vec<String>,
    /// What happened, without the place that the other fields have. `None` if the causes alone say it: those of a hook,
    /// and of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

const MOST_CAUSES: usize = 16;

impl Failure {
    /// Takes the texts of an error. The texts of causes come from the user's code.
    pub(crate) fn of(error: &Error) -> Self {
        let parts = match error {
            Error::PartFailed { parts, .. } => parts.clone(),
            _ => vec![],
        };
        Failure {
            stage: None,
            item: error.item(),
            parts,
            key: error.key().map(str::to_owned),
            producer: error.producer(),
            device: error.device().map(ToString::to_string),
            hook: error.hook().map(|hook| hook.to_string()),
            attempts: error.attempt().unwrap_or(1),
            is_panic: error.is_panic(),
            error: bounded(error.to_string()),
            causes: causes(error),
            reason: error.reason().map(bounded),
        }
    }

    /// The most specific text: what happened, without the place, or else the innermost cause.
    pub(crate) fn essence(&self) -> &str {
        self.reason.as_ref().or(self.causes.last()).unwrap_or(&self.error)
    }

    /// Whether an attempt at an item failed, not the consumer at its result.
    #[cfg(any(feature = "metrics", feature = "progress"))]
    pub(crate) fn is_of_attempt(&self) -> bool {
        let is_of_consumer = |hook: &String| hook.starts_with("consumer");
        self.item.is_some() && !self.hook.as_ref().is_some_and(is_of_consumer)
    }
}

impl fmt::Display for Failure {
    /// Writes the error and its causes on one line, with control characters escaped. As in the alternate form of
    /// [`Error`](crate::Error), a cause that the text before ends with is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plain(&self.error))?;
        let mut said = &self.error;
        for cause in &self.causes {
            if !said.ends_with(cause.as_str()) {
                write!(f, ": {}", Plain(cause))?;
            }
            said = cause;
        }
        Ok(())
    }
}

debug_with_causes!(Failure);

impl std::error::Error for Failure {}

fn causes(error: &Error) -> Vec<String> {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause.filter(|_| texts.len() < MOST_CAUSES) {
        texts.push(bounded(error.to_string()));
        cause = error.source();
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Hook, Site};

    #[test]
    fn a_text_without_end_is_cut_between_characters() {
        let source = "ä".repeat(100_000).into();
        let site = Box::new(Site { items: vec![7], ..Site::default() });
        let error = Error::HookFailed { hook: Hook::ProducerWork, site, source };
        let failure = Failure::of(&error);
        assert_eq!(failure.item, Some(7));
        assert_eq!(failure.causes.len(), 1);
        assert!(failure.causes[0].len() <= 8 * 1_024, "{}", failure.causes[0].len());
        assert!(failure.causes[0].ends_with(" more bytes)"));
    }
}
