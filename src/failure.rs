//! One failure, as it is told and kept.

use std::error::Error as _;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, debug_is_told};
use crate::plain::Plain;

/// What an item, or a run, failed with: as text, so that it can be kept, sent and written down.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The item's index in the input; `None` where it was no item that failed.
    pub item: Option<u64>,
    /// The item's key, if [keys](crate::Builder::key) were asked for.
    pub key: Option<String>,
    /// The number of the producer that it failed on, if on one.
    pub producer: Option<usize>,
    /// That producer's first device.
    pub device: Option<String>,
    /// The hook, as it is called in [`Runner`](crate::Runner); `None` for an error of the input.
    pub hook: Option<String>,
    /// How many attempts there were.
    pub attempts: u32,
    /// Whether it was a panic.
    pub is_panic: bool,
    /// What the error says.
    pub error: String,
    /// What its causes say, each with the cause of the one before.
    pub causes: Vec<String>,
}

/// So many bytes of a text are kept, and so many causes: what a user's error says has no bound of its own.
const LONGEST_TEXT: usize = 8 * 1_024;
const MOST_CAUSES: usize = 16;

impl Failure {
    /// What an error says. The texts of causes are the user's code.
    pub(crate) fn of(error: &Error) -> Self {
        Failure {
            item: error.item(),
            key: error.key().map(str::to_owned),
            producer: error.producer(),
            device: error.device().map(ToString::to_string),
            hook: error.hook().map(|hook| hook.to_string()),
            attempts: error.attempt().unwrap_or(1),
            is_panic: error.is_panic(),
            error: bounded(error.to_string()),
            causes: causes(error),
        }
    }
}

impl fmt::Display for Failure {
    /// The error, and its causes, on one line: control characters are written out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plain(&self.error))?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {}", Plain(cause)))
    }
}

debug_is_told!(Failure);

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

fn bounded(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Hook, Site};

    #[test]
    fn a_text_without_end_is_cut_between_characters() {
        let source = "ä".repeat(LONGEST_TEXT).into();
        let site = Box::new(Site { items: vec![7], ..Site::default() });
        let error = Error::HookFailed { hook: Hook::ProducerWork, site, source };
        let failure = Failure::of(&error);
        assert_eq!(failure.item, Some(7));
        assert_eq!(failure.causes.len(), 1);
        assert_eq!(failure.causes[0].len(), LONGEST_TEXT + " ...".len());
    }
}
