//! How long producers wait for retries that others watch.

use std::time::{Duration, Instant};

use gangline_scheduler::RunTime;

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::now;
use crate::observe::run_stats::IdleReason;

/// The time in which a producer watched for a retry: it had nothing else to do, and asks again when the retry is due.
///
/// Only that producer knows what it waits for. Others without items wait for the same, and read here for how long.
#[derive(Debug, Default)]
pub(super) struct RetryWatch {
    nanos: AtomicU64,
}

/// A sleep of a producer that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    pub(super) since: Instant,
    /// The time watched before it.
    watched: u64,
}

impl RetryWatch {
    /// Begins a sleep.
    pub(super) fn begin(&self) -> Sleep {
        Sleep { since: now(), watched: self.nanos.load(Ordering::Relaxed) }
    }

    /// Ends a sleep. Returns how long another producer watched for a retry meanwhile, if this one lacked items.
    pub(super) fn end(&self, sleep: Sleep, lack: IdleReason, until: Option<RunTime>) -> Duration {
        self.ended(now() - sleep.since, sleep.watched, lack, until)
    }

    fn ended(
        &self,
        slept: Duration,
        before: u64,
        lack: IdleReason,
        until: Option<RunTime>,
    ) -> Duration {
        match (lack, until) {
            (IdleReason::Retries, Some(_)) => {
                self.nanos.fetch_add(slept.as_nanos() as u64, Ordering::Relaxed);
                Duration::ZERO
            }
            (IdleReason::Items, _) => {
                let watched = self.nanos.load(Ordering::Relaxed) - before;
                Duration::from_nanos(watched).min(slept)
            }
            (IdleReason::Retries | IdleReason::Permits, _) => Duration::ZERO,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_producer_without_items_waits_for_the_retry_that_another_watches() {
        let (ms, due) = (Duration::from_millis, Some(RunTime::at(Duration::from_secs(1))));
        let watch = RetryWatch::default();
        assert_eq!(
            watch.ended(ms(60), 0, IdleReason::Retries, due),
            ms(0),
            "it counts its own time"
        );
        assert_eq!(watch.ended(ms(100), 0, IdleReason::Items, None), ms(60));
        assert_eq!(watch.ended(ms(40), 0, IdleReason::Items, None), ms(40), "it came later");
        assert_eq!(
            watch.ended(ms(100), 60_000_000, IdleReason::Items, None),
            ms(0),
            "it was before"
        );
        assert_eq!(
            watch.ended(ms(100), 0, IdleReason::Permits, None),
            ms(0),
            "the window was full"
        );
        watch.ended(ms(5), 0, IdleReason::Retries, None);
        assert_eq!(
            watch.ended(ms(100), 60_000_000, IdleReason::Items, None),
            ms(0),
            "it did not watch"
        );
    }
}
