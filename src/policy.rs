//! What becomes of items that fail: decisions without threads or clocks.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// What a run does about an item that failed: [`Builder::on_error`](crate::Builder::on_error).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The run ends with the error.
    #[default]
    Stop,
    /// The item is left out, and the run goes on.
    Skip,
}

/// What is to become of one failure, by [`Builder::classify`](crate::Builder::classify).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The item is left out, and the run goes on.
    Skip,
    /// The run ends with the error.
    Stop,
}

/// How many items may fail before the run does: [`Builder::max_failures`](crate::Builder::max_failures).
///
/// ```
/// use gangline::MaxFailures;
///
/// let ten = MaxFailures::from(10);
/// let one_in_twenty = MaxFailures::share(0.05);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxFailures(Most);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Most {
    Number(u64),
    Share(f64),
}

/// From how many items on a share of them means something.
const FIRST_JUDGED: u64 = 100;

type Classify = dyn Fn(&Error) -> Verdict + Send + Sync;

/// What becomes of the items of a runner that fail.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    pub(crate) on_error: OnError,
    pub(crate) classify: Option<Arc<Classify>>,
    pub(crate) max_failures: Option<MaxFailures>,
}

impl MaxFailures {
    /// Up to that share of the items, from 0 to 1, judged at each failure from the hundredth item on, and
    /// at the end.
    ///
    /// Another number is refused when the runner is built.
    pub fn share(share: f64) -> Self {
        MaxFailures(Most::Share(share))
    }

    /// What was given as a share and is none.
    pub(crate) fn bad_share(&self) -> Option<f64> {
        match self.0 {
            Most::Share(share) if !(0.0..=1.0).contains(&share) => Some(share),
            _ => None,
        }
    }

    /// Whether `failed` of the `items` that are done with are too many.
    fn are_exceeded(&self, failed: u64, items: u64, at_end: bool) -> bool {
        match self.0 {
            Most::Number(most) => failed > most,
            Most::Share(share) => {
                (at_end || items >= FIRST_JUDGED) && failed as f64 > share * items as f64
            }
        }
    }
}

/// So many items.
impl From<u64> for MaxFailures {
    fn from(items: u64) -> Self {
        MaxFailures(Most::Number(items))
    }
}

impl Policy {
    /// What the user's rules say of a failure. May run the user's code.
    pub(crate) fn judge(&self, error: &Error) -> Verdict {
        match (&self.classify, self.on_error) {
            (Some(classify), _) => classify(error),
            // What the consumer writes to is not there: it will not be for the next item either.
            (None, _) if error.is_of_consumer() => Verdict::Stop,
            (None, OnError::Stop) => Verdict::Stop,
            (None, OnError::Skip) => Verdict::Skip,
        }
    }

    /// Whether `failed` of the `items` that are done with so far are too many.
    pub(crate) fn gives_up_at(&self, failed: u64, items: u64) -> bool {
        self.max_failures.is_some_and(|most| most.are_exceeded(failed, items, false))
    }

    /// The same, where there are no more.
    pub(crate) fn gives_up_at_end(&self, failed: u64, items: u64) -> bool {
        self.max_failures.is_some_and(|most| most.are_exceeded(failed, items, true))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("on_error", &self.on_error)
            .field("classifies", &self.classify.is_some())
            .field("max_failures", &self.max_failures)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Hook, Site};

    fn failed(hook: Hook) -> Error {
        Error::HookFailed { hook, site: Box::new(Site::default()), source: "bad".into() }
    }

    #[test]
    fn a_consumer_that_fails_stops_the_run_unless_the_user_says_otherwise() {
        let skip = Policy { on_error: OnError::Skip, ..Policy::default() };
        assert_eq!(skip.judge(&failed(Hook::ProducerWork)), Verdict::Skip);
        assert_eq!(skip.judge(&failed(Hook::ConsumerWork)), Verdict::Stop);
        let all = Policy { classify: Some(Arc::new(|_| Verdict::Skip)), ..Policy::default() };
        assert_eq!(all.judge(&failed(Hook::ConsumerWork)), Verdict::Skip);
        assert_eq!(Policy::default().judge(&failed(Hook::ProducerWork)), Verdict::Stop);
    }

    #[test]
    fn a_number_of_failures_is_the_most_that_may_be() {
        let most = MaxFailures::from(2);
        let exceeded = [0, 1, 2, 3].map(|failed| most.are_exceeded(failed, 10, false));
        assert_eq!(exceeded, [false, false, false, true]);
    }

    #[test]
    fn a_share_is_judged_from_a_hundred_items_on_and_at_the_end() {
        let most = MaxFailures::share(0.05);
        assert!(!most.are_exceeded(99, 99, false));
        assert!(most.are_exceeded(99, 99, true));
        assert!(!most.are_exceeded(5, 100, false));
        assert!(most.are_exceeded(6, 100, false));
        assert!(!most.are_exceeded(0, 0, true), "no item, no failure");
    }

    #[test]
    fn a_share_is_between_none_and_all() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(MaxFailures::share(share).bad_share().is_some(), "{share}");
        }
        assert_eq!(MaxFailures::share(1.0).bad_share(), None);
    }
}
