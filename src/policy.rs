//! What becomes of items that fail: decisions without threads or clocks.

mod straggler;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::straggler::copy_after;
use crate::base::MaxFailures;
use crate::error::Error;

/// What a run does about an item that failed: [`Builder::on_error`](crate::Builder::on_error).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The run ends with the error.
    #[default]
    Stop,
    /// The item is left out, and the run goes on.
    Skip,
}

/// What is to become of one failure, by [`Builder::classify`](crate::Builder::classify).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The item is tried again, if the builder allows another [attempt](crate::Builder::retries). If not,
    /// it is left out or ends the run, as [`on_error`](crate::Builder::on_error) says.
    Retry,
    /// The item is left out, and the run goes on.
    Skip,
    /// The run ends with the error.
    Stop,
}

/// What a producer does that is idle while the run waits for an item of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stragglers {
    /// It waits too.
    #[default]
    Wait,
    /// It starts that item as well.
    Copy,
}

type Classify = dyn Fn(&Error) -> Verdict + Send + Sync;

/// What becomes of the items of a runner that fail.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    pub(crate) on_error: OnError,
    /// How many attempts at an item there are after the first.
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) classify: Option<Arc<Classify>>,
    pub(crate) max_failures: Option<MaxFailures>,
    /// How many failures in a row quarantine a producer, and how many producers blame an item.
    pub(crate) quarantine_after: Option<usize>,
    pub(crate) stragglers: Stragglers,
    /// How many producers there have to be. `None`: all at the beginning, and then one.
    pub(crate) min_producers: Option<usize>,
}

/// How long an item waits before it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

/// A moment for what was busy, and not for ever for what stays so.
impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// Before the attempt after so many: twice as long each time.
    pub(crate) fn after(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

impl Policy {
    /// Whether there are failures that the run goes on after.
    pub(crate) fn may_skip(&self) -> bool {
        self.on_error == OnError::Skip || self.classify.is_some()
    }

    /// What the user's rules say of a failure, which may run the user's code. [`Verdict::Retry`] where they
    /// say nothing.
    pub(crate) fn ask(&self, error: &Error) -> Verdict {
        self.classify.as_ref().map_or(Verdict::Retry, |classify| classify(error))
    }

    /// What becomes of a failure of which the user's rules say `asked`. [`Verdict::Retry`] only where
    /// there is another attempt.
    pub(crate) fn judge(&self, error: &Error, asked: Verdict) -> Verdict {
        match asked {
            Verdict::Retry if self.has_another_attempt(error) => Verdict::Retry,
            Verdict::Retry => self.verdict_without_retry(error),
            verdict => verdict,
        }
    }

    /// Only what a producer did can be done again.
    fn has_another_attempt(&self, error: &Error) -> bool {
        error.is_of_work() && error.attempt().is_some_and(|attempt| attempt <= self.retries)
    }

    pub(crate) fn verdict_without_retry(&self, error: &Error) -> Verdict {
        match self.on_error {
            // What the consumer writes to is not there: it will not be for the next item either.
            _ if error.is_of_consumer() => Verdict::Stop,
            // There is nothing to go on with, and the run would look complete.
            _ if error.ends_input() => Verdict::Stop,
            OnError::Stop => Verdict::Stop,
            OnError::Skip => Verdict::Skip,
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

    /// What a run fails with that gives up, having failed at `last`.
    pub(crate) fn too_many(&self, failed: u64, items: u64, last: Option<Error>) -> Error {
        let most = self.max_failures.expect("there are too many where there is a most");
        Error::TooManyFailures { failed, items, most, source: last.map(Box::new) }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("on_error", &self.on_error)
            .field("retries", &self.retries)
            .field("backoff", &self.backoff)
            .field("classifies", &self.classify.is_some())
            .field("max_failures", &self.max_failures)
            .field("quarantine_after", &self.quarantine_after)
            .field("stragglers", &self.stragglers)
            .field("min_producers", &self.min_producers)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Hook, Site};

    fn judge(policy: &Policy, error: &Error) -> Verdict {
        policy.judge(error, policy.ask(error))
    }

    fn failed(hook: Hook) -> Error {
        Error::HookFailed { hook, site: Box::new(Site::default()), source: "bad".into() }
    }

    #[test]
    fn a_consumer_that_fails_stops_the_run_unless_the_user_says_otherwise() {
        let skip = Policy { on_error: OnError::Skip, ..Policy::default() };
        assert_eq!(judge(&skip, &failed(Hook::ProducerWork)), Verdict::Skip);
        assert_eq!(judge(&skip, &failed(Hook::ConsumerWork)), Verdict::Stop);
        let all = Policy { classify: Some(Arc::new(|_| Verdict::Skip)), ..Policy::default() };
        assert_eq!(judge(&all, &failed(Hook::ConsumerWork)), Verdict::Skip);
        assert_eq!(judge(&Policy::default(), &failed(Hook::ProducerWork)), Verdict::Stop);
    }

    #[test]
    fn there_are_so_many_attempts_more() {
        let policy = Policy { retries: 2, on_error: OnError::Skip, ..Policy::default() };
        let failed = |attempt| {
            let site = Box::new(Site { attempt: Some(attempt), ..Site::default() });
            Error::HookFailed { hook: Hook::ProducerWork, site, source: "bad".into() }
        };
        let verdicts = [1, 2, 3].map(|attempt| judge(&policy, &failed(attempt)));
        assert_eq!(verdicts, [Verdict::Retry, Verdict::Retry, Verdict::Skip]);
        let input = Error::InputFailed { item: 0, source: "bad".into() };
        assert_eq!(judge(&policy, &input), Verdict::Skip, "it is not there to be tried again");
        let stops = Policy { classify: Some(Arc::new(|_| Verdict::Stop)), ..policy };
        assert_eq!(judge(&stops, &failed(1)), Verdict::Stop);
    }

    #[test]
    fn an_item_waits_twice_as_long_each_time() {
        let ms = Duration::from_millis;
        let backoff = Backoff { first: ms(100), most: ms(1_000) };
        let waits = [1, 2, 3, 4, 5, 1_000].map(|attempts| backoff.after(attempts));
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000].map(ms));
    }
}
