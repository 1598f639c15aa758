//! The decision whether an item is retried, and when.

use std::time::Duration;

use super::health::{Blame, ProducerHealth};
use super::items::{ItemState, Items};
use super::time::RunTime;

/// The verdict of the user's rules on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureVerdict {
    /// The item is retried if an attempt is left; else `on_error` decides.
    Retry,
    /// The item is retried by the producer that failed it, if an attempt is left; else `on_error` decides.
    RetryHere,
    /// The item is skipped, and the run goes on.
    Skip,
    /// The item ends the run.
    Fail,
}

/// Where the input of a failed item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// In the hook's input list, where the hook has left it.
    Kept,
    /// The backend has a copy.
    Copied,
    /// There is none.
    Gone,
}

/// What the backend knows of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureFacts {
    /// What the rules of the user say.
    pub verdict: FailureVerdict,
    /// Where the inputs are.
    pub inputs: Inputs,
}

/// The decision about items that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Each item is retried by itself, at this time or later.
    Retry(RunTime),
    /// Each is skipped, and the run goes on.
    Skip,
    /// The first item ends the run. The scheduler has given up all items after it.
    Fail,
    /// The items are no longer wanted: the error is dropped.
    Discard,
}

/// What happens to an item that failed and is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The run ends with the error.
    #[default]
    Stop,
    /// The item is skipped, and the run goes on.
    Skip,
}

/// The delay before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the first retry.
    pub first: Duration,
    /// The largest delay.
    pub most: Duration,
}

/// Long enough for a device that was busy, and bounded for one that stays so.
impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The delay after this number of attempts; it doubles each time.
    pub fn after(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

/// The rules for retries.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryPolicy {
    pub(super) retries: u32,
    pub(super) backoff: Backoff,
    pub(super) on_error: OnError,
}

impl RetryPolicy {
    /// From here on, retries are due at once.
    pub(super) fn end_backoff(&mut self) {
        self.backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    }

    /// Decides about an item with a failure that counts, and notes what is to blame for it.
    pub(super) fn judge(
        &self,
        index: u64,
        items: &mut Items,
        FailureFacts { verdict, inputs }: FailureFacts,
        health: &mut ProducerHealth,
        now: RunTime,
    ) -> Decision {
        let Some(record) = items.get_mut(index) else { return Decision::Discard };
        debug_assert_eq!(record.state, ItemState::Undecided, "its failure counts");
        let (history, is_kept) = (&mut record.history, verdict == FailureVerdict::RetryHere);
        if inputs == Inputs::Gone || !(is_kept || verdict == FailureVerdict::Retry) {
            return self.without_retry(verdict);
        }
        history.claims.keeper = history.claims.tried.last().copied().filter(|_| is_kept);
        let may_be_open = !is_kept && history.blame == Blame::Open;
        if may_be_open && health.failed(index, &history.claims.tried) == Blame::Open {
            return Decision::Retry(now);
        }
        history.blame = Blame::Item;
        self.decide(history.attempt, verdict, now)
    }

    /// Decides about an item that is to blame for its failures. `attempt` is its last attempt.
    fn decide(&self, attempt: u32, verdict: FailureVerdict, now: RunTime) -> Decision {
        match verdict {
            FailureVerdict::Retry | FailureVerdict::RetryHere if attempt <= self.retries => {
                Decision::Retry(now.after(self.backoff.after(attempt)))
            }
            verdict => self.without_retry(verdict),
        }
    }

    /// Decides if no further attempt is possible.
    fn without_retry(&self, verdict: FailureVerdict) -> Decision {
        match (verdict, self.on_error) {
            (FailureVerdict::Skip, _)
            | (FailureVerdict::Retry | FailureVerdict::RetryHere, OnError::Skip) => Decision::Skip,
            (FailureVerdict::Fail, _)
            | (FailureVerdict::Retry | FailureVerdict::RetryHere, OnError::Stop) => Decision::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(1);

    fn later() -> RunTime {
        RunTime::START.after(LATER)
    }

    #[test]
    fn an_item_has_the_attempts_that_were_asked_for() {
        let backoff = Backoff { first: LATER, most: LATER };
        let policy = RetryPolicy { retries: 2, backoff, on_error: OnError::Skip };
        let decide = |attempt, verdict| policy.decide(attempt, verdict, RunTime::START);
        assert_eq!(decide(1, FailureVerdict::Retry), Decision::Retry(later()));
        assert_eq!(decide(2, FailureVerdict::Retry), Decision::Retry(later()));
        assert_eq!(decide(3, FailureVerdict::Retry), Decision::Skip);
        assert_eq!(decide(1, FailureVerdict::Fail), Decision::Fail);
        let stops = RetryPolicy { on_error: OnError::Stop, ..policy };
        assert_eq!(stops.decide(3, FailureVerdict::Retry, RunTime::START), Decision::Fail);
        assert_eq!(stops.decide(1, FailureVerdict::Skip, RunTime::START), Decision::Skip);
    }

    #[test]
    fn an_item_waits_twice_as_long_each_time() {
        let ms = Duration::from_millis;
        let backoff = Backoff { first: ms(100), most: ms(1_000) };
        let waits = [1, 2, 3, 4, 5, 1_000].map(|attempts| backoff.after(attempts));
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000].map(ms));
    }
}
