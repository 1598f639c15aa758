//! The part of a report about copies of slow items.

use serde::{Deserialize, Serialize};

use super::formats::Many;
use super::vocabulary::Words;

/// Items that a second producer worked on because the first was slow: see
/// [`speculate`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.speculate).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CopyReport {
    /// The number of calls for a copy. A call may have a batch.
    pub made: u64,
    /// The number of those whose result came first, and counts.
    pub won: u64,
}

impl CopyReport {
    /// The counts of a run.
    #[doc(hidden)]
    pub fn new(made: u64, won: u64) -> Self {
        CopyReport { made, won }
    }

    /// The sum of both.
    pub(crate) fn and(self, other: CopyReport) -> Self {
        let made = self.made.saturating_add(other.made);
        CopyReport { made, won: self.won.saturating_add(other.won) }
    }

    /// Says what the copies came to; `None` if there was none.
    pub(crate) fn sentence(&self, words: &Words) -> Option<String> {
        let CopyReport { made, won } = *self;
        (made > 0).then(|| {
            let copies = match made {
                1 => "1 copy was".to_owned(),
                _ => format!("{} were", Many(made, "copy")),
            };
            format!("copies: {copies} made of slow {}, and {won} of them came first", words.items)
        })
    }
}
