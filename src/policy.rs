//! The user's rules for items that fail; no threads or clocks here.

use std::fmt;
use std::sync::Arc;

use gangline_scheduler::{Backoff, OnError};

use crate::base::MaxFailures;
use crate::error::Error;

/// The decision about one failure, by [`Builder::classify`](crate::Builder::classify).
///
/// ```
/// use std::error::Error as _;
/// use std::io::ErrorKind;
/// use gangline::{Error, OrderedRunner, Verdict, each};
///
/// /// A file that is missing stays so; other errors of reading may pass.
/// fn verdict(error: &Error) -> Verdict {
///     let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
///     match cause.map(std::io::Error::kind) {
///         Some(ErrorKind::NotFound) => Verdict::Skip,
///         Some(_) => Verdict::Retry,
///         None => Verdict::Stop,
///     }
/// }
///
/// let read = each(|path: &'static str| Ok(std::fs::read(path)?.len()));
/// let mut pool = OrderedRunner::builder(read).devices(1).retries(2).classify(verdict).build()?;
/// assert!(pool.run(["/no/such/file"])?.is_empty());
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The item is tried again, if the builder allows another [attempt](crate::Builder::retries). If not,
    /// [`on_error`](crate::Builder::on_error) decides whether it is skipped or ends the run.
    Retry,
    /// The item is tried again as for [`Retry`](Verdict::Retry), but by the producer that failed it.
    ///
    /// The item waits for that producer, which does other work meanwhile. If the producer is lost, another
    /// one tries the item. Such a failure is the item's: it does not count towards
    /// [quarantine](crate::Builder::quarantine_after).
    ///
    /// ```
    /// use gangline::{OrderedRunner, Verdict, map};
    ///
    /// // A second attempt continues from a file that the first has left on the producer's own disk.
    /// let resumed = map(
    ///     |_| Ok(0),
    ///     |cx, steps: &mut u64, x: u64| {
    ///         *steps += 1;
    ///         if cx.attempt() == 1 { Err("cut off".into()) } else { Ok((x, *steps)) }
    ///     },
    /// );
    /// let builder = OrderedRunner::builder(resumed).devices(2).retries(1);
    /// let mut pool = builder.classify(|_| Verdict::RetryHere).build()?;
    /// assert_eq!(pool.run([7])?, [(7, 2)], "both attempts had the same state");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    RetryHere,
    /// The item is skipped, and the run goes on.
    Skip,
    /// The run ends with the error.
    Stop,
}

/// What an idle producer does while the run waits for a slow item of another producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stragglers {
    /// It waits.
    #[default]
    Wait,
    /// It starts a second copy of the item.
    Copy,
}

type Classify = dyn Fn(&Error) -> Verdict + Send + Sync;

/// The rules of a pool for items that fail.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    pub(crate) on_error: OnError,
    /// The number of attempts after the first.
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) classify: Option<Arc<Classify>>,
    pub(crate) max_failures: Option<MaxFailures>,
    /// The number of consecutive failures that quarantine a producer, and of producers whose failures blame
    /// an item.
    pub(crate) quarantine_after: Option<usize>,
    pub(crate) stragglers: Stragglers,
    /// The minimum number of live producers. `None`: all to start, then one.
    pub(crate) min_producers: Option<usize>,
}

impl Policy {
    /// Whether a run may go on after a failure.
    pub(crate) fn may_skip(&self) -> bool {
        self.on_error == OnError::Skip || self.classify.is_some()
    }

    /// The verdict of the user's rules, or [`Verdict::Retry`] without rules. It may run the user's code.
    pub(crate) fn ask(&self, error: &Error) -> Verdict {
        let asked = self.classify.as_ref().map_or(Verdict::Retry, |classify| classify(error));
        match asked {
            // Another attempt would only hide that the hook is wrong.
            Verdict::Retry | Verdict::RetryHere if error.is_output_count() => {
                self.verdict_without_retry(error)
            }
            asked => asked,
        }
    }

    /// Turns the verdict `asked` of the user's rules into the final one. [`Verdict::Retry`] only if another
    /// attempt is left.
    pub(crate) fn judge(&self, error: &Error, asked: Verdict) -> Verdict {
        match asked {
            Verdict::Retry | Verdict::RetryHere if self.has_another_attempt(error) => asked,
            Verdict::Retry | Verdict::RetryHere => self.verdict_without_retry(error),
            Verdict::Skip | Verdict::Stop => asked,
        }
    }

    /// Only the work of a producer can be repeated.
    fn has_another_attempt(&self, error: &Error) -> bool {
        error.is_of_work() && error.attempt().is_some_and(|attempt| attempt <= self.retries)
    }

    pub(crate) fn verdict_without_retry(&self, error: &Error) -> Verdict {
        match self.on_error {
            // The consumer's sink is broken, and would fail for the next item too.
            _ if error.is_of_consumer() => Verdict::Stop,
            // No more items can be read, and a skipped failure would make the run look complete.
            _ if error.ends_input() => Verdict::Stop,
            OnError::Skip => Verdict::Skip,
            _ => Verdict::Stop,
        }
    }

    /// Whether `failed` of `items` finished items are too many.
    pub(crate) fn gives_up_at(&self, failed: u64, items: u64) -> bool {
        self.max_failures.is_some_and(|most| most.are_exceeded(failed, items, false))
    }

    /// Whether `failed` of `items` finished items are too many at the end of the run.
    pub(crate) fn gives_up_at_end(&self, failed: u64, items: u64) -> bool {
        self.max_failures.is_some_and(|most| most.are_exceeded(failed, items, true))
    }

    /// The error of a run with too many failures, the last of which is `last`.
    pub(crate) fn too_many(&self, failed: u64, items: u64, last: Option<Error>) -> Error {
        let most = self.max_failures.expect("only a limit can be exceeded");
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
    fn a_run_may_go_on_if_it_skips_or_asks() {
        assert!(!Policy::default().may_skip());
        assert!(Policy { on_error: OnError::Skip, ..Policy::default() }.may_skip());
        assert!(
            Policy { classify: Some(Arc::new(|_| Verdict::Stop)), ..Policy::default() }.may_skip()
        );
    }

    #[test]
    fn an_input_that_has_ended_for_good_is_not_skipped() {
        let policy = Policy { on_error: OnError::Skip, ..Policy::default() };
        let source = Box::new(Error::Cancelled {});
        assert_eq!(judge(&policy, &Error::InputFailed { item: 3, source }), Verdict::Stop);
    }

    #[test]
    fn a_run_gives_up_at_the_failure_after_the_last_that_is_allowed() {
        let policy = Policy { max_failures: Some(2.into()), ..Policy::default() };
        assert!(!policy.gives_up_at(2, 9) && policy.gives_up_at(3, 9));
        assert!(!policy.gives_up_at_end(2, 9) && policy.gives_up_at_end(3, 9));
        assert!(!Policy::default().gives_up_at(9, 9) && !Policy::default().gives_up_at_end(9, 9));
        // A share is known for sure only at the end of a short run.
        let half = Policy { max_failures: Some(MaxFailures::share(0.5)), ..Policy::default() };
        assert!(!half.gives_up_at(2, 2) && half.gives_up_at_end(2, 2));
    }
}
